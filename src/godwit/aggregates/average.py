"""The mean of numbers, with Spark's result types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords, OfColumn
from godwit.aggregates.columns import column, numbers
from godwit.aggregates.count import Count
from godwit.aggregates.int128 import doubles, means, narrow, widen
from godwit.aggregates.sum import MAX_DIGITS, Sum


@dataclass(frozen=True, slots=True)
class Avg(OfColumn):
    """A sum and a count, divided when asked for."""

    spark_buffer: ClassVar[Mapping[str, str | None]] = {"sum": "_sum", "count": "_count"}

    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        # The sum of longs may need more bits than a long has; their mean does not.
        total = pa.decimal128(MAX_DIGITS, 0) if self._is_long(input) else self._sum.output(input)
        return {"_sum": total, "_count": pa.int64()}

    def output(self, input: AggregateInput) -> pa.DataType:
        total = self._sum.output(input)
        if not pa.types.is_decimal(total):
            return pa.float64()
        kind = input.type(self.column)
        return pa.decimal128(min(kind.precision + 4, MAX_DIGITS), min(kind.scale + 4, MAX_DIGITS))

    def ordered(self, input: AggregateInput) -> bool:
        return self._sum.ordered(input)

    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        return *self._sum.fold(records, state[:1]), *self._count.fold(records, state[1:])

    def merge(self, state: Columns, other: Columns) -> Columns:
        return (
            *self._sum.merge(state[:1], other[:1]),
            *self._count.merge(state[1:], other[1:]),
        )

    def result(self, state: Columns, output: pa.DataType) -> pa.Array:
        total, (counts, _) = state[0], numbers(state[1])
        divisor = np.maximum(counts, 1)
        if pa.types.is_decimal(output):
            shift = output.scale - total.type.scale
            return narrow(means(widen(total)[0], divisor, shift), counts > 0, output)
        sums = doubles(widen(total)[0]) if pa.types.is_decimal(total.type) else numbers(total)[0]
        return column(sums / divisor, counts > 0, output)

    def partial(self, input: AggregateInput) -> Mapping[str, str] | None:
        total = self._sum.partial(input)
        if total is None:
            return None
        value = input.quoted(self.column)
        # Spark's sum of longs is a long.
        wide = f"sum(cast({value} as decimal(20,0)))" if self._is_long(input) else total[""]
        return {"_sum": wide, "_count": f"count({value})"}

    @property
    def _sum(self) -> Sum:
        return Sum(self.column)

    @property
    def _count(self) -> Count:
        return Count(self.column)

    def _is_long(self, input: AggregateInput) -> bool:
        return bool(input.type(self.column) == pa.int64())


def avg(column: str) -> Aggregate:
    """The mean: a double, or for decimals a decimal with 4 more digits after the point.

    >>> str(avg("price"))
    'avg(price)'
    """
    return Avg(column)
