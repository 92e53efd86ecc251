"""Aggregates over input of known types, and folding before records reach their worker.

A folded row has what some records of a key would leave on an empty state. It can take their place,
whatever the order and however many such rows a key has, as long as an aggregate depends neither on
the order of records nor on intermediate results that a type may be too small for. So `first`,
`last`, sums of floats and sums of the largest decimals have to see the records themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords
from godwit.aggregates.columns import valid
from godwit.errors import ConfigError
from godwit.model.keys import Rows

_PREFIX: Final = "_partial_"  # before the name of a column of the state


def partial_column(column: str) -> str:
    """The column of folded rows that has what `column` of the state would have."""
    return _PREFIX + column


@dataclass(frozen=True, slots=True)
class BoundAggregate:
    """An aggregate called `name`, and what it says of its input."""

    name: str
    aggregate: Aggregate
    state: Mapping[str, pa.DataType]  # by column
    output: pa.DataType
    ordered: bool
    partials: Mapping[str, str] | None  # by column
    description: str

    @classmethod
    def of(cls, name: str, aggregate: Aggregate, input: AggregateInput) -> Self:
        """
        >>> from godwit.aggregates.average import avg
        >>> mean = BoundAggregate.of("mean", avg("n"), AggregateInput(pa.schema({"n": pa.int32()})))
        >>> mean.output, mean.partials
        (DataType(double), {'mean_sum': 'sum(`n`)', 'mean_count': 'count(`n`)'})
        """
        if "__dataclass_fields__" not in vars(type(aggregate)):  # or it would hide its arguments
            raise ConfigError("put @dataclass(frozen=True) above its class: fields are arguments")
        state, ordered = aggregate.state(input), aggregate.ordered(input)
        partial = None if ordered else aggregate.partial(input)
        if partial is not None:
            _check_partial(aggregate, partial, state)
        return cls(
            name,
            aggregate,
            {name + suffix: kind for suffix, kind in state.items()},
            aggregate.output(input),
            ordered,
            None if partial is None else {name + suffix: partial[suffix] for suffix in state},
            aggregate.describe(input),
        )

    @property
    def merges(self) -> bool:
        """Can states of it be merged?"""
        return type(self.aggregate).merge is not Aggregate.merge

    def merge_later(self, state: Columns, other: Columns) -> Columns:
        """The state of records of which those of `other` are later; it may have seen none, if the
        aggregate is newer than the rows."""
        seen = np.zeros(len(other[0]), np.bool_)
        for column in other:
            given = valid(column)
            if given is None:
                return self.aggregate.merge(state, other)
            seen |= given
        places = np.flatnonzero(seen)
        which = pa.array(places)
        halves = ([pc.take(column, which) for column in half] for half in (state, other))
        new = self.aggregate.merge(*halves)
        return [_replaced(*pair, places) for pair in zip(state, new, strict=True)]

    def merge(self, rows: GroupedRecords, state: Columns) -> Columns:
        """The new state of each group from its old one and its folded rows."""
        parts = [rows.column(partial_column(column)) for column in self.state]
        for place in range(rows.sizes.max()):
            groups = np.flatnonzero(rows.sizes > place)
            which = pa.array(rows.starts[groups] + place)
            old = [pc.take(column, pa.array(groups)) for column in state]
            new = self.aggregate.merge(old, [pc.take(part, which) for part in parts])
            state = [_replaced(*pair, groups) for pair in zip(state, new, strict=True)]
        return state


def _replaced(column: pa.Array, values: pa.Array, places: Rows) -> pa.Array:
    """The column with other values at some places."""
    if len(values) == len(column):
        return values
    rows = np.arange(len(column))
    rows[places] = len(column) + np.arange(len(values))
    return pc.take(pa.concat_arrays([column, values]), pa.array(rows))


def _check_partial(
    aggregate: Aggregate, partial: Mapping[str, str], state: Mapping[str, pa.DataType]
) -> None:
    if partial.keys() != state.keys():
        raise ConfigError(
            f"its state has the columns {sorted(state)}, and its partial has {sorted(partial)}; "
            "give an expression for each column"
        )
    if type(aggregate).merge is Aggregate.merge:
        raise ConfigError("it has a partial, but no merge; define it, or leave out the partial")
