"""The smallest and the largest value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from godwit.aggregates.base import (
    Aggregate,
    AggregateInput,
    Columns,
    GroupedRecords,
    OfColumn,
    grouped,
)
from godwit.aggregates.columns import is_number
from godwit.aggregates.reduction import Reduction
from godwit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class _Extreme(OfColumn):
    """One end of the order of values; nulls have no place in it, and NaN is the largest number."""

    end: ClassVar[Literal["min", "max"]]

    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        return {"": self.output(input)}

    def output(self, input: AggregateInput) -> pa.DataType:
        kind = input.type(self.column)
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise ConfigError(f"column '{self.column}' is of type {kind}, which has no order")
        return kind

    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        values, old = records.column(self.column), state[0]
        if is_number(old.type):
            return [self._reduction(old.type).fold(records, values, old)]
        groups = np.arange(len(old))
        return [self._compared(old, np.repeat(groups, records.sizes), values)]

    def merge(self, state: Columns, other: Columns) -> Columns:
        old, new = state[0], other[0]
        if is_number(old.type):
            return [self._reduction(old.type).merge(old, new)]
        return [self._compared(old, np.arange(len(new)), new)]

    def partial(self, input: AggregateInput) -> Mapping[str, str]:
        return {"": f"{self.end}({input.quoted(self.column)})"}

    def _compared(self, old: pa.Array, groups: Any, values: pa.Array) -> pa.Array:
        """Values that numpy does not compare: strings, binary, booleans and large decimals."""
        # The old ones come first, so that the groups come out in their order.
        both = np.concatenate([np.arange(len(old)), groups])
        return grouped(both, pa.concat_arrays([old, values]), self.end)

    def _reduction(self, kind: pa.DataType) -> Reduction:
        """`fmin` passes over NaN, the largest number, and `maximum` does not."""
        low = self.end == "min"
        if pa.types.is_floating(kind):
            return Reduction(np.fmin, np.nan) if low else Reduction(np.maximum, -np.inf)
        limits = np.iinfo(np.int64 if kind.bit_width > 64 else f"i{kind.bit_width // 8}")
        return Reduction(np.minimum, limits.max) if low else Reduction(np.maximum, limits.min)


@dataclass(frozen=True, slots=True)
class Min(_Extreme):
    """The smallest value."""

    end: ClassVar[Literal["min", "max"]] = "min"
    spark_buffer: ClassVar[Mapping[str, str | None]] = {"min": ""}


@dataclass(frozen=True, slots=True)
class Max(_Extreme):
    """The largest value."""

    end: ClassVar[Literal["min", "max"]] = "max"
    spark_buffer: ClassVar[Mapping[str, str | None]] = {"max": ""}


def min(column: str) -> Aggregate:
    """The smallest value.

    >>> str(min("price"))
    'min(price)'
    """
    return Min(column)


def max(column: str) -> Aggregate:
    """The largest value.

    >>> str(max("price"))
    'max(price)'
    """
    return Max(column)
