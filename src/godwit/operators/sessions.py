"""Aggregates over sessions: windows that begin with a record and last as long as others follow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self, cast

import numpy as np
import pyarrow as pa

from godwit.aggregates.base import Aggregate
from godwit.errors import ConfigError
from godwit.model.keys import Groups, Rows, changes, distinct, flat
from godwit.model.time import Duration
from godwit.operators import definition
from godwit.operators.aggregate import TABLE, AggregateOperator
from godwit.operators.base import Changes, Hashes, Horizon, TableView, TimedView
from godwit.operators.due_keys import deletions, due_keys, first_timers, in_order, rows_where
from godwit.operators.ranges import codes, put
from godwit.operators.windowed import CLOSING, Closing, check_merges, times
from godwit.operators.windows import END, START, Session
from godwit.state.table import HASH, UPSERT, TableSpec
from godwit.state.timed import Moments, moments, timed_spec


@dataclass(frozen=True)
class Sessions(Closing):
    """A row of state for each key and open session.

    A record alone is a session from its time until so much later as the gap is, or until the time
    in a column of its own. Sessions of a key that overlap are one, whose state is merged in the
    order of time. A record is late if the session that it is alone has closed: the watermark of the
    epoch before has reached its end. One that is not late never joins a session that has closed; it
    begins another.

    A key with sessions has a timer that is due at the end of the first, or before.
    """

    window: Session
    kind: ClassVar[str] = "sessions"

    @classmethod
    def define(
        cls,
        name: str,
        key: str | Sequence[str],
        functions: Mapping[str, Aggregate],
        input: pa.Schema,
        window: Session,
        *,
        time: str,
        delay: Duration,
    ) -> Self:
        """Over records of schema `input`; those whose session would be empty are not among them."""
        keys = [key] if isinstance(key, str) else list(key)
        kind = input.field(time).type
        kept = [field for field in input if field.name not in (START, END)]
        spans = pa.schema([*kept, pa.field(START, kind), pa.field(END, kind)])
        operator = AggregateOperator.of(
            name, [*keys, START, END], functions, spans, time=time, delay=delay
        )
        read = {*keys, time, *(column for one in functions.values() for column in one.columns)}
        with definition.defining(name):
            for column in read & {START, END}:
                raise ConfigError(
                    f"column '{column}' of its input has the name of a column of its output; "
                    "rename it before"
                )
        check_merges(operator, "sessions that a record bridges merge")
        return cls(operator, window)

    @property
    def key(self) -> pa.Schema:
        return pa.schema(list(self.of.key)[:-2])

    @cached_property
    def input(self) -> pa.Schema:
        kept = [field for field in self.of.input if field.name not in (START, END)]
        if isinstance(self.window.gap, str) and self.window.gap not in self.of.input.names:
            kept.append(self.of.input.field(END).with_name(self.window.gap))
        return pa.schema(kept)

    @property
    def horizon(self) -> Horizon:
        if isinstance(self.window.gap, str):
            return Horizon(self.window.gap)
        return Horizon(self.of.time or "", self.window.gap)

    @property
    def prefold(self) -> None:
        """Which records make up a session is not known before their worker has them all."""

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        (*_, start, end), values = self.of.key, self.of.tables[0].value
        rows = TableSpec(TABLE, self.key, pa.schema([start]), pa.schema([end, *values]))
        return rows, timed_spec(CLOSING, self.key, pa.schema([]))

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        closing = cast(TimedView, state[CLOSING])
        due, until, spec = due_keys(closing), closing.span.until, self.tables[0]
        keys = pa.concat_tables([records.select(self.key.names), due.keys]).combine_chunks()
        every = np.concatenate((hashes, due.hashes))
        groups = distinct(every, keys, ordered=False)
        of_record = groups.of_records(len(every))
        is_due = np.zeros(len(groups.starts), np.bool_)
        is_due[of_record[len(hashes) :]] = True
        of_stored, stored = state[TABLE].scan(groups.hashes, groups.keys)
        old = _rows(spec, groups, of_stored, stored)

        (starts, ends), (more, more_ends) = _spans(old, START, END), self._of_records(records)
        of_key = np.concatenate((of_stored, of_record[: len(hashes)]))
        found = _found(of_key, np.concatenate((starts, more)), np.concatenate((ends, more_ends)))
        touched, rows = self._fold(epoch, groups, found, records, stored)

        of_old = found.of_part[: old.num_rows]
        closes = np.zeros(len(found.start), np.bool_) if until is None else found.end <= until
        others = np.ones(len(closes), np.bool_)
        others[touched] = False
        closed = in_order(
            rows_where(rows, closes[touched]), rows_where(old, (closes & others)[of_old])
        )
        stale = rows_where(old, closes[of_old] | (found.start[of_old] != starts))
        begins = np.ones(len(closes), np.bool_)
        begins[of_old] = False
        waits = ~closes & (begins | is_due[found.key])
        return Changes(
            {
                TABLE: in_order(
                    rows_where(rows, ~closes[touched]),
                    deletions(
                        spec,
                        flat(stale.column(HASH)).to_numpy(),
                        stale.select([*self.key.names, START]),
                    ),
                ),
                CLOSING: first_timers(closing, epoch, groups, found.key[waits], found.end[waits]),
            },
            self._outputs(epoch, closed),
        )

    def _of_records(self, records: pa.Table) -> tuple[Moments, Moments]:
        """The session that each record is alone."""
        assert self.time is not None
        if isinstance(self.window.gap, str):
            return _spans(records, self.time, self.window.gap)
        starts = moments(records.column(self.time))
        return starts, starts + self.window.gap

    def _fold(
        self, epoch: int, groups: Groups, found: "_Found", records: pa.Table, stored: pa.Table
    ) -> tuple[Rows, pa.Table]:
        """The sessions that have records, and their new rows."""
        order = found.order[found.order >= stored.num_rows]
        session = found.of_part[order]
        first = np.flatnonzero(changes(session))
        touched = session[first]
        kind = self.of.key.field(START).type
        of_key = found.key[touched]
        keys = groups.keys.take(pa.array(of_key))
        for name, at in ((START, found.start), (END, found.end)):
            keys = keys.append_column(self.of.key.field(name), times(at[touched], kind))
        before = self._before(epoch, found, touched, keys, stored)
        sessions = Groups(order - stored.num_rows, first, groups.hashes[of_key], keys)
        return touched, self.of.folded(epoch, sessions, records, before)

    def _before(
        self, epoch: int, found: "_Found", touched: Rows, keys: pa.Table, stored: pa.Table
    ) -> pa.Table:
        """What the stored sessions come to that are now one, or null."""
        values = stored.select(self.of.tables[0].value.names)
        parts = found.order[found.order < stored.num_rows]
        session = found.of_part[parts]
        first = np.searchsorted(session, touched)
        counts = np.searchsorted(session, touched, side="right") - first
        state = values.take(pa.array(np.append(parts, 0)[first], mask=counts == 0))
        for place in range(1, counts.max(initial=0)):
            which = np.flatnonzero(counts > place)
            later = values.take(pa.array(parts[first[which] + place]))
            merged = self.of.merged(epoch, keys, which, state.take(pa.array(which)), later)
            state = put(state, merged, which)
        return state


@dataclass(frozen=True, slots=True)
class _Found:
    """The sessions that parts of some keys make up, by key and time; parts are stored sessions, and
    records."""

    order: Rows  # of the parts, by key and time
    of_part: Rows
    key: Rows
    start: Moments
    end: Moments


def _found(keys: Rows, starts: Moments, ends: Moments) -> _Found:
    """Cut where no part so far lasts until the next one begins."""
    begin, end = codes(keys, starts, ends)
    order = np.argsort(begin, kind="stable")
    begin, reached = begin[order], np.maximum.accumulate(end[order])
    first = np.ones(len(order), np.bool_)
    first[1:] = begin[1:] >= reached[:-1]  # the first part of another key is behind all of this one
    of_part = np.empty(len(order), np.int64)
    of_part[order] = np.cumsum(first) - 1
    heads = np.flatnonzero(first)
    last = np.maximum.reduceat(ends[order], heads) if len(heads) else ends
    return _Found(order, of_part, keys[order[heads]], starts[order[heads]], last)


def _rows(spec: TableSpec, groups: Groups, of_row: Rows, values: pa.Table) -> pa.Table:
    """Stored rows, with their keys."""
    heads = [pa.array(groups.hashes[of_row]), pa.array(np.full(len(of_row), UPSERT, np.int8))]
    keys = groups.keys.take(pa.array(of_row))
    return pa.table([*heads, *keys.columns, *values.columns], schema=spec.schema)


def _spans(rows: pa.Table, start: str, end: str) -> tuple[Moments, Moments]:
    return moments(rows.column(start)), moments(rows.column(end))
