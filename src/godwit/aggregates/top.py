"""The records with the largest values of a column, or the smallest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords
from godwit.aggregates.columns import is_number, numbers, one_of_equals, valid
from godwit.aggregates.extremes import Max
from godwit.aggregates.lists import elements, joined, lists_of, places
from godwit.errors import ConfigError
from godwit.model.keys import Rows, changes

Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Top(Aggregate):
    """At most `n` records, the best first; of equal ones by `by`, the columns of `of` decide.

    Nulls come before all values and NaN after all numbers, as in Spark. A record without `by` does
    not count. There is no partial: before Spark 4.2 its SQL collects all records of a key in memory
    to choose some of them.
    """

    n: int
    by: str
    of: tuple[str, ...]
    smallest: bool = False

    @property
    def columns(self) -> Sequence[str]:
        return tuple(dict.fromkeys((self.by, *self.of)))

    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        return {"": pa.list_(pa.struct([(name, input.type(name)) for name in self.columns]))}

    def output(self, input: AggregateInput) -> pa.DataType:
        for name in self.columns:
            Max(name).output(input)  # refuses what has no order
        return pa.list_(pa.struct([(name, input.type(name)) for name in self.of]))

    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        there = pc.is_valid(records.column(self.by))
        rows = np.repeat(np.arange(len(records.sizes)), records.sizes)
        new = [records.column(name).filter(there) for name in self.columns]
        return [self._best(state[0], rows[there.to_numpy(zero_copy_only=False)], new)]

    def merge(self, state: Columns, other: Columns) -> Columns:
        rows, structs = elements(other[0])
        return [self._best(state[0], rows, structs.flatten())]

    def result(self, state: Columns, output: pa.DataType) -> pa.Array:
        if state[0].type == output:
            return state[0]
        rows, structs = elements(state[0])
        kept = [structs.field(name) for name in self.of]
        return lists_of(rows, _structs(kept, output.value_type), len(state[0]))

    def _best(self, old: pa.Array, new_rows: Rows, new: Sequence[pa.Array]) -> pa.Array:
        """The best of those that were, and of others, of which the row is told."""
        count = len(old)
        old_rows, structs = elements(old)
        both = joined(structs.flatten(), [one_of_equals(column) for column in new])
        rows = np.concatenate((old_rows, new_rows))
        (by,) = self._ranks(both[0])
        chosen = self._candidates(rows, by, count)
        both, rows = [pc.take(column, pa.array(chosen)) for column in both], rows[chosen]
        of = [rank for column in reversed(both[1:]) for rank in self._ranks(column)]
        order = np.lexsort((*of, by[chosen], rows))
        order = order[places(rows[order]) < self.n]
        best = [pc.take(column, pa.array(order)) for column in both]
        return lists_of(rows[order], _structs(best, old.type.value_type), count)

    def _candidates(self, rows: Rows, by: Ranks, count: int) -> Rows:
        """The best of each row, and those as good as the last of them; sorting numbers is fast."""
        if not len(rows):
            return rows
        placed = rows << 32 | _dense(by)
        ascending = np.sort(placed)
        ends = np.searchsorted(ascending, np.arange(1, count + 1) << 32)
        last = np.minimum(np.append(0, ends[:-1]) + self.n, ends) - 1
        return np.flatnonzero(placed <= ascending[last][rows])

    def _ranks(self, column: pa.Array) -> list[Ranks]:
        """Numbers in the order of the values, the best first: for `np.lexsort`, so last ones count
        most."""
        ranks = list(_ascending(column))
        return ranks if self.smallest else [~rank for rank in ranks]

    def __str__(self) -> str:
        end = ", smallest" if self.smallest else ""
        return f"top({self.n}, by={self.by}, of={'+'.join(self.of)}{end})"


def _ascending(column: pa.Array) -> Iterator[Ranks]:
    """Numbers in the order of the values, and then those that tell where there is one."""
    given = valid(column)
    if not is_number(column.type):
        ranks = pc.rank(column, tiebreaker="dense").to_numpy().astype(np.int64)
    elif pa.types.is_floating(column.type):
        bits = numbers(column)[0].astype(np.float64).view(np.int64)
        ranks = np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
    else:
        ranks = numbers(column)[0].astype(np.int64, copy=False)
    yield ranks if given is None else np.where(given, ranks, 0)
    if given is not None:
        yield given.astype(np.int64)


def _dense(ranks: Ranks) -> Ranks:
    """Small numbers in the same order."""
    order = np.argsort(ranks)
    found = np.empty(len(ranks), np.int64)
    found[order] = np.cumsum(changes(ranks[order]))
    return found


def _structs(columns: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def top(n: int, *, by: str, of: str | Sequence[str], smallest: bool = False) -> Aggregate:
    """The columns `of` of the `n` records with the largest `by`, or the smallest, as structs.

    The best comes first. Where `by` is equal the columns `of` decide: the larger, or the smaller,
    is better. Records in which `by` is null do not count.

    >>> str(top(3, by="price", of=["auction", "price"]))
    'top(3, by=price, of=auction+price)'
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(f"top() keeps at least one record, not {n!r}")
    names = (of,) if isinstance(of, str) else tuple(of) if isinstance(of, Iterable) else ()
    if not names:
        raise ConfigError("top() needs the columns to keep of each record; name them in of=[...]")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"top() names column '{name}' twice in of=[...]")
    return Top(n, by, names, smallest)
