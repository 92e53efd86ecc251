"""Reading a table by key from its runs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from godwit.model.keys import Hashes, Mask, Rows, changes, equal, flat
from godwit.model.routing import SEGMENTS
from godwit.state.merge import merge, settle
from godwit.state.run import Run, segment_offsets
from godwit.state.table import OP, UPSERT, TableSpec
from godwit.state.timed import KEY_HASH, NEVER, WatermarkSpan, due


@dataclass(frozen=True, slots=True)
class Own:
    """What is the reader's of a table in the order of time: segments, and hashes in them."""

    segments: Sequence[int]
    has: Callable[[Hashes], Mask]


ALL = Own(range(SEGMENTS), lambda hashes: np.ones(len(hashes), np.bool_))


@dataclass(frozen=True, slots=True)
class View:
    """The rows of one state table as of the end of an epoch, readable by key.

    `segments` gives the runs of a segment, newest first; it is called only for the segments that a
    read touches, once for each read. `span` and `own` are for tables in the order of time.
    """

    spec: TableSpec
    segments: Callable[[int], Sequence[Run]]
    span: WatermarkSpan = NEVER
    own: Own = ALL

    def get(self, hashes: Hashes, keys: pa.Table) -> tuple[Mask, pa.Table]:
        """For distinct keys in hash order: which have a value, and the value columns (else null).

        In a table with a sub-key, `keys` has its columns, too. That is for tables of which nothing
        is cleared, and fast where few rows share a hash.
        """
        index, rows = self._newest_of_hash(hashes, keys.column_names)
        right = equal(rows.select(keys.column_names), keys.take(pa.array(index)))
        if not right.all():  # another key has this hash: look at all the rows that do, in all runs
            clash = index[~right]
            found, others = self._settled(hashes[clash], keys.take(pa.array(clash)), final=False)
            index = np.concatenate((index[right], clash[found]))
            others = others.select(rows.column_names)
            rows = pa.concat_tables((rows.filter(pa.array(right)), others)).combine_chunks()
        alive = np.flatnonzero(flat(rows.column(OP)).to_numpy() == UPSERT)
        row_of = np.full(len(hashes), -1, np.int64)
        row_of[index[alive]] = alive
        absent = row_of < 0
        return ~absent, rows.select(self.spec.value.names).take(pa.array(row_of, mask=absent))

    def scan(self, hashes: Hashes, keys: pa.Table) -> tuple[Rows, pa.Table]:
        """All rows of distinct keys in hash order: per row the index of its key, and sub-key and
        value columns; rows in the order of (key index, sub-key).
        """
        index, rows = self._settled(hashes, keys, final=True)
        return index, rows.select([*self.spec.sub.names, *self.spec.value.names])

    def between(self, lows: Hashes, highs: Hashes) -> pa.Table:
        """All rows with a hash from `lows[i]` to `highs[i]`, in hash order; such a range is in one
        segment, and they ascend without an overlap."""
        found = [self.spec.schema.empty_table()]
        for segment, index in _by_segment(lows):
            pieces = [_between(run, lows[index], highs[index]) for run in self.segments(segment)]
            if runs := [piece for piece in pieces if len(piece)]:
                found.append(merge(runs, self.spec, final=True).rows)
        return pa.concat_tables(found).combine_chunks()

    def due(self) -> pa.Table:
        """For a table in the order of time: the rows of the reader's bins that are due."""
        rows = due(((s, self.segments(s)) for s in self.own.segments), self.spec, self.span)
        hashes = flat(rows.column(KEY_HASH)).to_numpy().view(np.uint64)
        return rows.filter(pa.array(self.own.has(hashes)))

    def rows(self) -> Iterator[Run]:
        """All that the table holds, one run a segment."""
        for segment in range(SEGMENTS):
            if runs := self.segments(segment):
                yield merge(runs, self.spec, final=True)

    def _newest_of_hash(self, hashes: Hashes, identity: Sequence[str]) -> tuple[Rows, pa.Table]:
        """The first row with each hash in the newest run that has it, and the index of its hash."""
        columns = [OP, *identity, *self.spec.value.names]
        indices, pieces = [np.empty(0, np.int64)], [self.spec.schema.empty_table().select(columns)]
        for segment, index in _by_segment(hashes):
            sought = hashes[index]
            for run in filter(len, self.segments(segment)):
                places = np.searchsorted(run.hash, sought)
                hit = run.hash.take(places, mode="clip") == sought  # beyond the end is no hit
                if hit.any():
                    indices.append(index.compress(hit))
                    pieces.append(run.rows.select(columns).take(pa.array(places.compress(hit))))
                    index, sought = index.compress(~hit), sought.compress(~hit)
        return np.concatenate(indices), pa.concat_tables(pieces).combine_chunks()

    def _settled(self, hashes: Hashes, keys: pa.Table, final: bool) -> tuple[Rows, pa.Table]:
        """The rows of each key that newer ones do not hide, and the index of their key."""
        index, ages, rows = self._all_of_hash(hashes)
        right = equal(rows.select(keys.column_names), keys.take(pa.array(index)))
        if not right.all():
            index, ages, rows = index[right], ages[right], rows.filter(pa.array(right))
        order = np.argsort(index, kind="stable")
        starts = np.flatnonzero(changes(index[order]))
        kept = settle(order, starts, ages, rows, self.spec, final)
        if np.array_equal(kept, np.arange(len(index))):  # a list of one key is not copied
            return index, rows
        return index[kept], rows.take(pa.array(kept))

    def _all_of_hash(self, hashes: Hashes) -> tuple[Rows, Rows, pa.Table]:
        """All rows with each hash, oldest run first: the index of the hash, and the run's age."""
        indices, ages = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        pieces = [self.spec.schema.empty_table()]
        for segment, index in _by_segment(hashes):
            sought = hashes[index]
            for age, run in enumerate(reversed(self.segments(segment))):
                starts = np.searchsorted(run.hash, sought)
                counts = np.searchsorted(run.hash, sought, side="right") - starts
                if counts.any():
                    pieces.append(_ranges(run.rows, starts, counts))
                    indices.append(np.repeat(index, counts))
                    ages.append(np.full(pieces[-1].num_rows, age))
        return np.concatenate(indices), np.concatenate(ages), pa.concat_tables(pieces)


def _by_segment(hashes: Hashes) -> Iterator[tuple[int, Rows]]:
    """The segments that sorted hashes fall into, and the indices of those hashes."""
    offsets = segment_offsets(hashes)
    for segment in np.flatnonzero(np.diff(offsets)).tolist():
        yield segment, np.arange(offsets[segment], offsets[segment + 1])


def _between(run: Run, lows: Hashes, highs: Hashes) -> Run:
    starts = np.searchsorted(run.hash, lows)
    counts = np.searchsorted(run.hash, highs, side="right") - starts
    return Run.of(_ranges(run.rows, starts, counts)) if counts.any() else run.slice(0, 0)


def _ranges(rows: pa.Table, starts: Rows, counts: Rows) -> pa.Table:
    """Of each range of rows, one after the other; without a copy where they adjoin."""
    starts, counts = starts[counts > 0], counts[counts > 0]
    if np.array_equal(starts[1:], starts[:-1] + counts[:-1]):
        return rows.slice(starts[0], counts.sum())
    before = np.cumsum(counts) - counts
    return rows.take(pa.array(np.repeat(starts - before, counts) + np.arange(counts.sum())))
