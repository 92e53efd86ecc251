"""The number of records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords
from godwit.aggregates.columns import valid
from godwit.aggregates.reduction import ADD


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """The number of records, or of those in which `column` is not null."""

    column: str | None = None
    spark_buffer: ClassVar[Mapping[str, str | None]] = {"count": ""}

    @property
    def columns(self) -> Sequence[str]:
        return () if self.column is None else (self.column,)

    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        return {"": pa.int64()}

    def output(self, input: AggregateInput) -> pa.DataType:
        return pa.int64()

    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        counts = records.sizes
        given = None if self.column is None else valid(records.column(self.column))
        if given is not None:
            counts = np.add.reduceat(given.view(np.int8), records.starts, dtype=np.int64)
        return self.merge(state, [pa.array(counts)])

    def merge(self, state: Columns, other: Columns) -> Columns:
        return [ADD.merge(state[0], other[0])]

    def partial(self, input: AggregateInput) -> Mapping[str, str]:
        return {"": f"count({'1' if self.column is None else input.quoted(self.column)})"}

    def __str__(self) -> str:
        return f"count({self.column or ''})"


def count(column: str | None = None) -> Aggregate:
    """The number of records, or of those in which `column` is not null.

    >>> str(count("url"))
    'count(url)'
    """
    return Count(column)
