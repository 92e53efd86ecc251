"""Which fold computes a function over a column of some type, with Spark's result types."""

from typing import Any, Literal

import numpy as np
import pyarrow as pa

from godwit.aggregates.columns import is_number
from godwit.aggregates.folds import (
    Average,
    Count,
    Extreme,
    First,
    Fold,
    Last,
    Reduce,
    TimedFold,
    WideSum,
)
from godwit.aggregates.functions import Function
from godwit.errors import ConfigError

_MAX_DIGITS = 38  # of a decimal
_DOUBLE = pa.float64()
_LONG = pa.int64()


def bind(function: Function, input: pa.Schema, time: pa.Field | None) -> Fold:
    """The fold of `function` over records of schema `input`, whose order in time `time` gives.

    >>> from godwit.aggregates.functions import avg
    >>> bind(avg("price"), pa.schema({"price": pa.decimal128(10, 2)}), None).output
    Decimal128Type(decimal128(14, 6))
    """
    if function.column is None:
        return Count(None)
    source = input.field(function.column)
    match function.kind:
        case "count":
            return Count(source.name)
        case "min" | "max":
            return _extreme(function.kind, source)
        case "first" | "last" if time is not None:
            return TimedFold(source.name, function.kind, source.type, time)
        case "first":
            return First(source.name, source.type)
        case "last":
            return Last(source.name, source.type)
        case "sum":
            return _sum(source)
        case "avg":
            return _average(source)


def _sum(source: pa.Field, suffix: str = "") -> Reduce | WideSum:
    kind = source.type
    if pa.types.is_floating(kind):
        return Reduce(source.name, np.add, 0, _DOUBLE, suffix, ordered=True)
    if pa.types.is_decimal128(kind):
        return WideSum(source.name, _decimal(kind.precision + 10, kind.scale), suffix)
    if pa.types.is_integer(kind):
        return Reduce(source.name, np.add, 0, _LONG, suffix)
    raise ConfigError(f"column '{source.name}' is of type {kind}: only numbers have a sum or mean")


def _average(source: pa.Field) -> Average:
    kind = source.type
    count = Count(source.name, "_count")
    if pa.types.is_decimal128(kind):
        return Average(_sum(source, "_sum"), count, _decimal(kind.precision + 4, kind.scale + 4))
    if kind == _LONG:
        # The sum of longs may need more bits than a long has; their mean does not.
        return Average(WideSum(source.name, _decimal(_MAX_DIGITS, 0), "_sum"), count, _DOUBLE)
    return Average(_sum(source, "_sum"), count, _DOUBLE)


def _extreme(end: Literal["min", "max"], source: pa.Field) -> Fold:
    kind = source.type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise ConfigError(f"column '{source.name}' is of type {kind}, which has no order")
    if not is_number(kind):
        return Extreme(source.name, end, kind)
    return Reduce(source.name, *_extreme_of_numbers(end, kind), kind)


def _extreme_of_numbers(end: Literal["min", "max"], kind: pa.DataType) -> tuple[np.ufunc, Any]:
    """NaN is larger than any number: `fmin` passes over it, `maximum` does not."""
    if pa.types.is_floating(kind):
        return (np.fmin, np.nan) if end == "min" else (np.maximum, -np.inf)
    limits = np.iinfo(f"i{min(kind.bit_width // 8, 8)}")
    return (np.minimum, limits.max) if end == "min" else (np.maximum, limits.min)


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(precision, _MAX_DIGITS), min(scale, _MAX_DIGITS))
