"""The sum of numbers, with Spark's result types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa

from godwit.aggregates import int128
from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords, OfColumn
from godwit.aggregates.reduction import ADD
from godwit.errors import ConfigError

MAX_DIGITS: Final = 38  # of a decimal
_SUMMED_DIGITS: Final = 28  # a sum has ten more, which are enough for the records of an epoch


@dataclass(frozen=True, slots=True)
class Sum(OfColumn):
    """The sum; null if there is no value."""

    spark_buffer: ClassVar[Mapping[str, str | None]] = {"sum": ""}

    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        return {"": self.output(input)}

    def output(self, input: AggregateInput) -> pa.DataType:
        kind = input.type(self.column)
        if pa.types.is_floating(kind):
            return pa.float64()
        if pa.types.is_decimal128(kind):
            return pa.decimal128(min(kind.precision + 10, MAX_DIGITS), kind.scale)
        if pa.types.is_integer(kind):
            return pa.int64()
        raise ConfigError(
            f"column '{self.column}' is of type {kind}: only numbers have a sum or mean"
        )

    def ordered(self, input: AggregateInput) -> bool:
        return bool(pa.types.is_floating(input.type(self.column)))

    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        values = records.column(self.column)
        if pa.types.is_decimal(state[0].type):
            return [int128.fold_sum(records, values, state[0])]
        return [ADD.fold(records, values, state[0])]

    def merge(self, state: Columns, other: Columns) -> Columns:
        add = int128.add if pa.types.is_decimal(state[0].type) else ADD.merge
        return [add(state[0], other[0])]

    def partial(self, input: AggregateInput) -> Mapping[str, str] | None:
        kind = input.type(self.column)
        if pa.types.is_decimal(kind) and kind.precision > _SUMMED_DIGITS:
            return None  # an intermediate sum may outgrow a type that the sum fits
        return None if self.ordered(input) else {"": f"sum({input.quoted(self.column)})"}


def sum(column: str) -> Aggregate:
    """The sum: a long for integers, a double for floats, a decimal with 10 digits more.

    >>> str(sum("price"))
    'sum(price)'
    """
    return Sum(column)
