"""All values of a key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords, OfColumn
from godwit.aggregates.columns import numbers
from godwit.aggregates.lists import elements, joined, lists_of
from godwit.model.keys import Rows


@dataclass(frozen=True, slots=True)
class CollectList(OfColumn):
    """The values that are not null, in their order.

    With a time, records without one are skipped, and the times are kept as well, since a later
    epoch may have earlier records.
    """

    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        times = {} if input.time is None else {"_time": pa.list_(input.type(input.time))}
        return {"": self.output(input), **times}

    def output(self, input: AggregateInput) -> pa.DataType:
        return pa.list_(input.type(self.column))

    def ordered(self, input: AggregateInput) -> bool:
        return True

    def describe(self, input: AggregateInput) -> str:
        return str(self) if input.time is None else f"{self} by {input.time}"

    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        new = [records.column(self.column), *([] if records.times is None else [records.times])]
        given = pc.is_valid(new[0])
        if records.times is not None:
            given = pc.and_(given, pc.is_valid(records.times))
        groups = np.repeat(np.arange(len(state[0])), records.sizes)
        rows = groups[given.to_numpy(zero_copy_only=False)]
        return self._appended(state, rows, [column.filter(given) for column in new])

    def merge(self, state: Columns, other: Columns) -> Columns:
        rows = elements(other[0])[0]
        return self._appended(state, rows, [elements(lists)[1] for lists in other])

    def _appended(self, state: Columns, new_rows: Rows, new: Sequence[pa.Array]) -> Columns:
        """The lists with further values, of which the row is told, and their times."""
        rows = np.concatenate((elements(state[0])[0], new_rows))
        columns = joined([elements(lists)[1] for lists in state], new)
        # Both are stable: of equal times those of the earlier epoch come first.
        if len(columns) == 1:
            order = np.argsort(rows, kind="stable")
        else:
            order = np.lexsort((numbers(columns[1])[0], rows))
        return [
            lists_of(rows[order], pc.take(column, pa.array(order)), len(state[0]))
            for column in columns
        ]

    def __str__(self) -> str:
        return f"collect_list({self.column})"


def collect_list(column: str) -> Aggregate:
    """All values in the order of their records' times, or as they came; nulls are skipped.

    The state grows with every record, and each epoch writes the whole list of a key that it
    changes. For the latest few use `top`; to append a row each use a `state_machine` with a `List`.

    >>> str(collect_list("url"))
    'collect_list(url)'
    """
    return CollectList(column)
