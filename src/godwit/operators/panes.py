"""Aggregates over sliding windows, kept in panes that windows share.

A pane is as long as the greatest common divisor of a window's length and slide, so every window is
a sequence of whole panes. A record changes one pane, however many windows it is in; what a window
comes to is merged from its panes when it closes.

All panes of a key are with the key's worker, since windows merge them. So a pane's row is in the
bin of its key: its hash has the upper bits of the key's, and in the lower ones the pane's number.
A single pane is found as fast as a key, and the panes of a key are one range in the order of time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any, ClassVar, Final, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.aggregates.base import Aggregate
from godwit.model.keys import Groups, Mask, Rows, changes, contained, distinct, flat
from godwit.model.time import Duration
from godwit.operators.aggregate import TABLE
from godwit.operators.base import Changes, Hashes, TableView, TimedView
from godwit.operators.due_keys import deletions, due_keys, first_timers, in_order, rows_where
from godwit.operators.ranges import Nodes, Ranges, codes, merge_ranges, positions
from godwit.operators.windowed import CLOSING, Windowed, check_merges, times
from godwit.operators.windows import END, START, Sliding
from godwit.state.table import HASH, TableSpec
from godwit.state.timed import Moments, moments, timed_spec

_NUMBERS: Final = np.uint64((1 << 20) - 1)  # the bits of a hash that number panes: no bin's are


def pane(window: Sliding) -> int:
    """The length of panes, in microseconds.

    >>> pane(Sliding(10, 4))
    2
    """
    return gcd(window.length, window.slide)


@dataclass(frozen=True)
class Panes(Windowed):
    """Like `Windowed`, of records that have the columns of their pane: from its start to the end of
    the last window that it is in, when it leaves the state.

    A key with panes has a timer that is due at the end of its next window, or before.
    """

    kind: ClassVar[str] = "panes"

    @classmethod
    def define(
        cls,
        name: str,
        key: str | Sequence[str],
        functions: Mapping[str, Aggregate],
        input: pa.Schema,
        window: Sliding,
        *,
        time: str | None,
        delay: Duration | None,
    ) -> Self:
        """Over records of schema `input`, which have the columns of their pane already."""
        panes = super().define(name, key, functions, input, window, time=time, delay=delay)
        check_merges(panes.of, "sliding windows merge")
        return panes

    @property
    def key(self) -> pa.Schema:
        return pa.schema(list(self.of.key)[:-2])

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        span, value = pa.schema(list(self.of.key)[-2:]), self.of.tables[0].value
        closing = timed_spec(CLOSING, self.key, pa.schema([]))
        return TableSpec(TABLE, self.key, span, value), closing

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        view, closing = state[TABLE], cast(TimedView, state[CLOSING])
        known, rows = self._fold(epoch, hashes, records, view)
        until, passed = closing.span.until, closing.span.passed
        due = due_keys(closing)
        soon = np.zeros(rows.num_rows, np.bool_)
        if until is not None:
            soon = self._next_end(rows, passed) <= until
        old = _stored(view, np.concatenate((due.hashes, _hashes(rows)[soon])))
        old = rows_where(old, ~self._among(old, rows))
        both = pa.concat_tables([rows, old]).combine_chunks()
        fresh = np.concatenate((~known, np.zeros(old.num_rows, np.bool_)))
        groups, of_pane, closes = self._groups(due, both, soon)

        closed = self.of.tables[0].schema.empty_table()
        if until is not None and closes.any():
            closed = self._closed(epoch, groups, of_pane, both, closes[of_pane], passed, until)
        gone = np.zeros(both.num_rows, np.bool_)
        if until is not None:
            gone = moments(both.column(END)) <= until
        changed = np.arange(both.num_rows) < rows.num_rows
        leaving = rows_where(both, gone & ~fresh)
        waits = ~gone & (fresh | closes[of_pane])
        next_ends = self._next_end(rows_where(both, waits), until)
        return Changes(
            {
                TABLE: in_order(
                    rows_where(both, changed & ~gone),
                    deletions(self.tables[0], _hashes(leaving), self._identity(leaving)),
                ),
                CLOSING: first_timers(closing, epoch, groups, of_pane[waits], next_ends),
            },
            self._outputs(epoch, closed),
        )

    def _fold(
        self, epoch: int, hashes: Hashes, records: pa.Table, view: TableView
    ) -> tuple[Mask, pa.Table]:
        """The new rows of the records' panes, and which of them had one before."""
        if not records.num_rows:
            return np.empty(0, np.bool_), self.of.tables[0].schema.empty_table()
        numbers = (moments(records.column(START)) // pane(self.window)).view(np.uint64)
        hashes = (hashes & ~_NUMBERS) | (numbers & _NUMBERS)
        groups = distinct(hashes, self._identity(records), ordered=False)
        known, old = view.get(groups.hashes, groups.keys)
        return known, self.of.folded(epoch, groups, records, old)

    def _groups(self, due: Groups, panes: pa.Table, soon: Mask) -> tuple[Groups, Rows, Mask]:
        """The keys of panes and those that are due; the key of each pane; which keys have windows
        that close, among them those of the panes that come first, where these close `soon`."""
        hashes = np.concatenate((_hashes(panes), due.hashes)) & ~_NUMBERS
        keys = pa.concat_tables([panes.select(self.key.names), due.keys]).combine_chunks()
        groups = distinct(hashes, keys, ordered=False)
        group = groups.of_records(len(hashes))
        closes = np.zeros(len(groups.starts), np.bool_)
        closes[group[panes.num_rows :]] = True
        closes[group[: len(soon)][soon]] = True
        return groups, group[: panes.num_rows], closes

    def _closed(
        self,
        epoch: int,
        groups: Groups,
        of_pane: Rows,
        panes: pa.Table,
        closes: Mask,
        passed: int | None,
        until: int,
    ) -> pa.Table:
        """The windows that end up to `until`, as rows of `of`, key by key in the order of time."""
        order = np.flatnonzero(closes)
        (by_time,) = codes(of_pane[order], moments(panes.column(START))[order])
        order = order[np.argsort(by_time, kind="stable")]
        panes, group = panes.take(pa.array(order)), of_pane[order]
        # Of each pane the windows that end now and have no earlier pane: the ends from `low` on.
        low = self._next_end(panes, passed)
        high = self._last_end(np.minimum(moments(panes.column(END)), until))
        same = ~changes(group)[1:]
        low[1:][same] = np.maximum(low[1:], high[:-1] + self.window.slide)[same]
        counts = np.maximum((high - low) // self.window.slide + 1, 0)
        of_window = np.repeat(group, counts)
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        ends = np.repeat(low, counts) + place * self.window.slide
        length = pane(self.window)
        numbers = moments(panes.column(START)) // length
        starts = (ends - self.window.length) // length
        first = positions(group, numbers, of_window, starts)
        stop = positions(group, numbers, of_window, ends // length)
        keys = self._identity(panes)

        def merge(which: Rows, state: pa.Table, other: pa.Table) -> pa.Table:
            return self.of.merged(epoch, keys, which, state, other)

        nodes = Nodes(group, numbers, panes.select(self.tables[0].value.names))
        values = merge_ranges(nodes, Ranges(starts, ends // length, first, stop), merge)
        kind = panes.schema.field(END).type
        whole = groups.keys.take(pa.array(of_window))
        spans = [times(ends - self.window.length, kind), times(ends, kind)]
        heads = [pa.array(groups.hashes[of_window]), pa.nulls(len(ends), pa.int8())]
        columns = [*heads, *whole.columns, *spans, *values.columns]
        return pa.table(columns, schema=self.of.tables[0].schema)

    def _identity(self, rows: pa.Table) -> pa.Table:
        return rows.select(self.of.key.names)

    def _among(self, rows: pa.Table, others: pa.Table) -> Mask:
        """Which panes are among others?"""
        identities = self._identity(rows), self._identity(others)
        return contained(_hashes(rows), identities[0], _hashes(others), identities[1])

    def _next_end(self, panes: pa.Table, after: int | None) -> Moments:
        """The first end of a window of each pane that is later than a moment."""
        starts = moments(panes.column(START))
        later = starts if after is None else np.maximum(starts, after)
        return self._last_end(later) + self.window.slide

    def _last_end(self, moment: Moments) -> Moments:
        """The last end of a window up to a moment."""
        length, slide = self.window.length, self.window.slide
        return (moment - length) // slide * slide + length


def _hashes(rows: pa.Table) -> Hashes:
    hashes: npt.NDArray[Any] = flat(rows.column(HASH)).to_numpy()
    return hashes


def _stored(view: TableView, hashes: Hashes) -> pa.Table:
    """All panes of keys, and perhaps of others that share the upper bits of their hash."""
    lows = np.unique(hashes & ~_NUMBERS)
    return view.between(lows, lows | _NUMBERS)
