"""Each key once: the first record of a key is given, the others are dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Self, cast

import numpy as np
import pyarrow as pa

from godwit.errors import ConfigError
from godwit.model.description import OperatorDescription
from godwit.model.keys import Groups, Mask, Rows, contained
from godwit.model.schema import check_names, to_ddl
from godwit.model.time import Duration, micros
from godwit.operators import definition, sorting
from godwit.operators.base import Changes, Hashes, Horizon, TableView, TimedView
from godwit.operators.due_keys import deletions, due_keys, in_order, keys_not_among, rows_where
from godwit.operators.expiring import EXPIRY
from godwit.state.table import UPSERT, TableSpec
from godwit.state.timed import Moments, moments, timed_spec, waiting

TABLE: Final = "given"
_GIVEN: Final = pa.schema([("given", pa.timestamp("us", tz="UTC"))])


@dataclass(frozen=True)
class Deduplicate:
    """Gives the first record of each key, in the order of (epoch, time, content).

    With `within`, a record is a duplicate if one of its key was given whose time is after its own
    less `within`. So what is given of a key is at least `within` apart, and a key leaves the state
    when the watermark is `within` after the time last given: no record to come is its duplicate.
    A key has one timer; when it is due, it is set anew, or the key leaves.
    """

    name: str
    key: pa.Schema
    input: pa.Schema
    time: str | None
    delay: int | None
    within: int | None
    inputs: ClassVar[int] = 1
    prefold: ClassVar[None] = None

    @classmethod
    def of(
        cls,
        name: str,
        key: str | Sequence[str],
        input: pa.Schema,
        *,
        time: str | None = None,
        within: Duration | None = None,
        delay: Duration | None = None,
    ) -> Self:
        """Over records of schema `input`.

        >>> schema = pa.schema({"id": pa.string(), "at": pa.timestamp("us", tz="UTC")})
        >>> orders = Deduplicate.of("orders", "id", schema, time="at", within="1 h", delay="1 m")
        >>> orders.output.names, [table.name for table in orders.tables]
        (['id', 'at'], ['given', '_expiry'])
        """
        with definition.defining(name):
            keys = definition.key_schema(key, input)
            allowed = definition.watermark_delay(definition.time_field(time, input), delay)
            if within is not None and allowed is None:
                raise ConfigError("`within` needs event time: give it time=... and delay=...")
            horizon = None if within is None else micros(within)
            if horizon is not None and horizon <= 0:
                raise ConfigError(f"`within` must be longer than nothing, not '{within}'")
            check_names(input)
            to_ddl(input)
            self = cls(name, keys, input, time, allowed, horizon)
            definition.check_table(self.tables[0])
            return self

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        nothing = pa.schema([])
        if self.within is None:
            return (TableSpec(TABLE, self.key, nothing, nothing),)
        given = TableSpec(TABLE, self.key, nothing, _GIVEN)
        return given, timed_spec(EXPIRY, self.key, nothing)

    @cached_property
    def output(self) -> pa.Schema:
        return pa.schema([field.with_nullable(True) for field in self.input])

    @property
    def ordered(self) -> bool:
        return not sorting.can_sort(self.input)

    @property
    def horizon(self) -> Horizon:
        return definition.own_time(self.time)

    def describe(self) -> OperatorDescription:
        return definition.describe("deduplicate", self.key, self.tables, self.output)

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        groups, records = sorting.in_order(
            hashes, records, self.key, self.time, ordered=self.ordered
        )
        if self.within is not None:
            return self._apart(epoch, groups, records, state, self.within)
        known, _ = state[TABLE].get(groups.hashes, groups.keys)
        delta = self._upserts(groups.hashes[~known], rows_where(groups.keys, ~known))
        return Changes({TABLE: delta}, records.take(pa.array(groups.starts[~known])))

    def _apart(
        self,
        epoch: int,
        groups: Groups,
        records: pa.Table,
        state: Mapping[str, TableView],
        within: int,
    ) -> Changes:
        expiry, until = cast(TimedView, state[EXPIRY]), cast(TimedView, state[EXPIRY]).span.until
        known, stored = state[TABLE].get(groups.hashes, groups.keys)
        times = moments(records.column(self.time))
        last = moments(stored.column("given").fill_null(pa.scalar(0, _GIVEN[0].type))).copy()
        given = _apart(groups, times, known, last, within)
        changed = np.zeros(len(groups.starts), np.bool_)
        group = groups.of_records(len(times))[given]
        changed[group], last[group] = True, times[given]

        due = due_keys(expiry)
        others, other_keys = keys_not_among(due, groups.hashes, groups.keys)
        there, stored = state[TABLE].get(others, other_keys)  # not, if `within` was longer before
        others, other_keys = others[there], rows_where(other_keys, there)

        # All keys that the epoch is about: those with records, then those that are only due.
        hash = np.concatenate((groups.hashes, others))
        keys = pa.concat_tables([groups.keys, other_keys]).combine_chunks()
        last = np.concatenate((last, moments(rows_where(stored, there).column("given"))))
        known = np.concatenate((known, np.ones(len(others), np.bool_)))
        changed = np.concatenate((changed, np.zeros(len(others), np.bool_)))
        gone = np.zeros(len(hash), np.bool_) if until is None else last + within <= until
        write = changed & ~gone
        wait = ~gone & (~known | contained(hash, keys, due.hashes, due.keys))
        at = pa.array(last[write]).view(pa.timestamp("us")).cast(_GIVEN[0].type)
        deltas = {
            TABLE: in_order(
                self._upserts(hash[write], rows_where(keys, write), at),
                deletions(self.tables[0], hash[gone & known], rows_where(keys, gone & known)),
            ),
            EXPIRY: waiting(
                expiry.spec,
                epoch,
                hash[wait],
                last[wait] + within,
                rows_where(keys, wait),
                pa.table({}),
            ),
        }
        return Changes(deltas, records.take(pa.array(given)))

    def _upserts(self, hashes: Hashes, keys: pa.Table, *values: pa.Array) -> pa.Table:
        ops = np.full(len(hashes), UPSERT, np.int8)
        columns = [pa.array(hashes), pa.array(ops), *keys.columns, *values]
        return pa.table(columns, schema=self.tables[0].schema)


def _apart(groups: Groups, times: Moments, known: Mask, last: Moments, within: int) -> Rows:
    """The records that are given, in their order: of each group the first, and then each first one
    that is at least `within` after the one given before. Records are sorted by group and time.

    >>> groups = Groups(None, np.array([0, 4]), np.array([1, 2], np.uint64), pa.table({}))
    >>> times, last = np.array([0, 3, 5, 9, 4, 7]), np.array([0, 2])
    >>> _apart(groups, times, np.array([False, True]), last, within=5).tolist()
    [0, 2, 5]
    """
    ranked, rank = np.unique(times, return_inverse=True)
    order = groups.of_records(len(times)) * (len(ranked) + 1) + rank
    ends = np.append(groups.starts[1:], len(times))
    group = np.arange(len(groups.starts))

    def next_after(given: Moments) -> Rows:
        """The first record of each group that is `within` after what was given of it."""
        least = group * (len(ranked) + 1) + np.searchsorted(ranked, given + within)
        return np.searchsorted(order, least)

    found: list[Rows] = []
    place = np.where(known, next_after(last), groups.starts)
    while len(group):
        some = place < ends[group]
        group, place = group[some], place[some]
        found.append(place)
        place = next_after(times[place])
    return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)
