"""Folding records before they reach their worker, where that leaves the same result.

A folded row has what some records of a key would leave on an empty state. It can take their place,
whatever the order and however many such rows a key has, as long as a function depends neither on
the order of records nor on intermediate results that a type may be too small for. So `first`,
`last`, sums of floats and sums of the largest decimals have to see the records themselves.
"""

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from godwit.aggregates.folds import Average, Count, Extreme, Fold, Reduce, WideSum
from godwit.aggregates.functions import Function, Kind

_PREFIX: Final = "_partial_"  # before the name of a column of the state
_SUMMED_DIGITS: Final = 28  # a sum has ten more, which are enough for the records of an epoch


def partial_column(column: str) -> str:
    """The column of folded rows that has what `column` of the state would have."""
    return _PREFIX + column


def is_possible(function: Function, fold: Fold, input: pa.Schema) -> bool:
    """Can folded rows take the place of records?"""
    if function.kind not in ("sum", "avg") or function.column is None:
        return not fold.ordered
    kind = input.field(function.column).type
    return not fold.ordered and not (pa.types.is_decimal(kind) and kind.precision > _SUMMED_DIGITS)


def functions(name: str, function: Function, fold: Fold) -> dict[str, Function]:
    """What a folded row has of a result: functions of the records, by column.

    >>> from godwit.aggregates.bind import bind
    >>> from godwit.aggregates.functions import avg
    >>> mean = bind(avg("length"), pa.schema({"length": pa.int32()}), None)
    >>> {column: str(one) for column, one in functions("mean", avg("length"), mean).items()}
    {'_partial_mean_sum': 'sum(length)', '_partial_mean_count': 'count(length)'}
    """
    kinds: tuple[Kind, ...] = ("sum", "count") if function.kind == "avg" else (function.kind,)
    return {
        partial_column(name + suffix): Function(kind, function.column)
        for suffix, kind in zip(fold.state, kinds, strict=True)
    }


def merging(name: str, fold: Fold) -> Fold:
    """The fold that takes folded rows."""
    match fold:
        case Average():
            total, count = merging(name, fold.total), merging(name, fold.count)
            assert isinstance(total, Reduce | WideSum)
            assert isinstance(count, Reduce)
            return replace(fold, total=total, count=count)
        case Count():
            column = partial_column(name + fold.suffix)
            return Reduce(column, np.add, 0, fold.output, fold.suffix)
        case Reduce() | WideSum():
            return replace(fold, column=partial_column(name + fold.suffix))
        case Extreme():
            return replace(fold, column=partial_column(name))
    raise TypeError(f"{fold} has to see the records themselves")
