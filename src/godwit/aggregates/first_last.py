"""The value of the earliest and of the latest record; it may be null.

Without a time, the order of records decides. With one, records without a time are skipped; of equal
times in two epochs, the first is the earlier epoch's and the last the later epoch's.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords, OfColumn
from godwit.aggregates.columns import Mask, Values, numbers, valid
from godwit.model.keys import Rows


@dataclass(frozen=True, slots=True)
class _End(OfColumn):
    """One end of the order of records."""

    untimed: ClassVar[Mapping[str, pa.DataType]]  # what it keeps beside the value without a time

    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        rest = self.untimed if input.time is None else {"_time": input.type(input.time)}
        return {"": input.type(self.column), **rest}

    def output(self, input: AggregateInput) -> pa.DataType:
        return input.type(self.column)

    def ordered(self, input: AggregateInput) -> bool:
        return True

    def describe(self, input: AggregateInput) -> str:
        return str(self) if input.time is None else f"{self} by {input.time}"

    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        if records.times is None:
            return self._fold_untimed(records, state)
        given = valid(records.times)
        at = pa.array(self._end(records) if given is None else self._end_among(records, given))
        value, time = pc.take(records.column(self.column), at), pc.take(records.times, at)
        (new, given), (old, had) = numbers(time), numbers(state[1])
        replace = self._replaces(new, old)
        if had is not None:
            replace |= ~had
        if given is not None:
            replace &= given
        chosen = pa.array(replace)
        return pc.if_else(chosen, value, state[0]), pc.if_else(chosen, time, state[1])

    @abstractmethod
    def _fold_untimed(self, records: GroupedRecords, state: Columns) -> Columns: ...
    @abstractmethod
    def _end(self, records: GroupedRecords) -> Rows: ...
    @abstractmethod
    def _end_among(self, records: GroupedRecords, given: Mask) -> Rows:
        """The record at the end of those of a group that have a time; any one if none has."""

    @abstractmethod
    def _replaces(self, new: Values, old: Values) -> Mask: ...


@dataclass(frozen=True, slots=True)
class First(_End):
    """The value of the earliest record; that one was seen is kept too, for it may be null."""

    untimed: ClassVar[Mapping[str, pa.DataType]] = {"_seen": pa.bool_()}
    spark_buffer: ClassVar[Mapping[str, str | None]] = {"first": "", "valueSet": "_seen"}

    def _fold_untimed(self, records: GroupedRecords, state: Columns) -> Columns:
        new = pc.take(records.column(self.column), pa.array(records.starts))
        seen = pa.repeat(pa.scalar(True), len(new))
        return pc.if_else(state[1].fill_null(False), state[0], new), seen

    def merge(self, state: Columns, other: Columns) -> Columns:
        seen = state[1].is_valid()
        return [pc.if_else(seen, *pair) for pair in zip(state, other, strict=True)]

    def _end(self, records: GroupedRecords) -> Rows:
        return records.starts

    def _end_among(self, records: GroupedRecords, given: Mask) -> Rows:
        numbered = np.where(given, np.arange(len(given)), len(given))
        first = np.minimum.reduceat(numbered, records.starts)
        return np.where(first < len(given), first, records.starts)

    def _replaces(self, new: Values, old: Values) -> Mask:
        return new < old


@dataclass(frozen=True, slots=True)
class Last(_End):
    """The value of the latest record."""

    untimed: ClassVar[Mapping[str, pa.DataType]] = {}
    spark_buffer: ClassVar[Mapping[str, str | None]] = {"last": "", "valueSet": None}

    def _fold_untimed(self, records: GroupedRecords, state: Columns) -> Columns:
        return [pc.take(records.column(self.column), pa.array(self._end(records)))]

    def merge(self, state: Columns, other: Columns) -> Columns:
        return other

    def _end(self, records: GroupedRecords) -> Rows:
        return records.starts + records.sizes - 1

    def _end_among(self, records: GroupedRecords, given: Mask) -> Rows:
        last = np.maximum.reduceat(np.where(given, np.arange(len(given)), -1), records.starts)
        return np.where(last >= 0, last, records.starts)

    def _replaces(self, new: Values, old: Values) -> Mask:
        return new >= old


def first(column: str) -> Aggregate:
    """The value of the record with the earliest time; without times, of the first that came.

    >>> str(first("url"))
    'first(url)'
    """
    return First(column)


def last(column: str) -> Aggregate:
    """The value of the record with the latest time; without times, of the last that came.

    >>> str(last("url"))
    'last(url)'
    """
    return Last(column)
