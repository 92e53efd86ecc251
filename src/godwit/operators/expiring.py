"""Keys that expire: their state is removed when they have had no record for some time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self, cast

import numpy as np
import pyarrow as pa

from godwit.errors import ConfigError
from godwit.model.description import OperatorDescription
from godwit.model.keys import Groups, contained, distinct, flat
from godwit.model.time import Duration, micros
from godwit.operators import definition
from godwit.operators.base import Changes, Hashes, Operator, TableView, TimedView
from godwit.operators.due_keys import deletions, due_keys, in_order, keys_not_among, rows_where
from godwit.operators.wrapper import Wrapper
from godwit.state.table import HASH, UPSERT, TableSpec
from godwit.state.timed import Moments, moments, timed_spec, waiting

TOUCHED: Final = "_touched"
EXPIRY: Final = "_expiry"


@dataclass(frozen=True)
class Expiring(Wrapper):
    """`of`, whose keys leave the state when the watermark is `ttl` microseconds after the time of
    their newest record.

    A key has one timer, whatever its records: when it is due, it is set anew to what the newest
    record asks for, or the key has expired.
    """

    ttl: int

    @classmethod
    def define(cls, operator: Operator, ttl: Duration) -> Self:
        with definition.defining(operator.name):
            if operator.delay is None:
                raise ConfigError("a ttl needs event time: give it time=... and delay=...")
            if micros(ttl) <= 0:
                raise ConfigError(f"its ttl must be longer than nothing, not '{ttl}'")
        return cls(operator, micros(ttl))

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        newest = pa.schema([("newest", pa.timestamp("us", tz="UTC"))])
        touched = TableSpec(TOUCHED, self.key, pa.schema([]), newest)
        return *self.of.tables, touched, timed_spec(EXPIRY, self.key, pa.schema([]))

    def describe(self) -> OperatorDescription:
        described = definition.describe("", self.key, self.tables, self.output)
        return replace(self.of.describe(), tables=described.tables)

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        expiry, until = cast(TimedView, state[EXPIRY]), cast(TimedView, state[EXPIRY]).span.until
        changes = self.of.process(epoch, hashes, records, state) if len(hashes) else Changes()
        groups = distinct(hashes, records.select(self.key.names), self.ordered)
        known, newest = self._newest(groups, records, state[TOUCHED])
        due = due_keys(expiry)
        others, other_keys = keys_not_among(due, groups.hashes, groups.keys)
        there, stored = state[TOUCHED].get(others, other_keys)
        if not there.all():  # with a longer ttl than now their timers were set for later
            others, other_keys = others[there], rows_where(other_keys, there)
            stored = rows_where(stored, there)

        # All keys that the epoch is about: those with records, then those that are only due.
        hash = np.concatenate((groups.hashes, others))
        keys = pa.concat_tables([groups.keys, other_keys]).combine_chunks()
        expires = np.concatenate((newest, moments(stored.column("newest")))) + self.ttl
        was_known = np.concatenate((known, np.ones(len(others), np.bool_)))
        gone = np.zeros(len(hash), np.bool_) if until is None else expires <= until
        was_due = contained(hash, keys, due.hashes, due.keys)
        wait = ~gone & (~was_known | was_due)
        leaving, leaving_keys = hash[gone], rows_where(keys, gone)
        stale, stale_keys = hash[gone & was_known], rows_where(keys, gone & was_known)
        deltas = {
            spec.name: self._without(
                changes.deltas.get(spec.name), spec, leaving, leaving_keys, stale, stale_keys
            )
            for spec in self.of.tables
        }
        touched = ~gone[: len(groups.hashes)]
        deltas[TOUCHED] = in_order(
            self._touch(groups, newest, touched), deletions(self.tables[-2], stale, stale_keys)
        )
        deltas[EXPIRY] = waiting(
            expiry.spec, epoch, hash[wait], expires[wait], rows_where(keys, wait), pa.table({})
        )
        return Changes(deltas, changes.outputs)

    def _newest(
        self, groups: Groups, records: pa.Table, touched: TableView
    ) -> tuple[np.ndarray, Moments]:
        """Which keys were known, and the time of each one's newest record."""
        assert self.time is not None
        known, before = touched.get(groups.hashes, groups.keys)
        times = moments(records.column(self.time))
        if groups.order is not None:
            times = times[groups.order]
        newest = np.maximum.reduceat(times, groups.starts) if len(times) else times
        old = moments(before.column("newest").fill_null(pa.scalar(0, before.column(0).type)))
        return known, np.where(known, np.maximum(newest, old), newest)

    def _touch(self, groups: Groups, newest: Moments, touched: np.ndarray) -> pa.Table:
        spec = self.tables[-2]
        times = pa.array(newest[touched]).view(pa.timestamp("us")).cast(spec.value[0].type)
        ops = np.full(len(times), UPSERT, np.int8)
        keys = rows_where(groups.keys, touched)
        columns = [pa.array(groups.hashes[touched]), pa.array(ops), *keys.columns, times]
        return pa.table(columns, schema=spec.schema)

    def _without(
        self,
        delta: pa.Table | None,
        spec: TableSpec,
        leaving: Hashes,
        leaving_keys: pa.Table,
        stale: Hashes,
        stale_keys: pa.Table,
    ) -> pa.Table:
        """A delta without what it says of keys that leave, and with the end of those stored."""
        kept = spec.schema.empty_table() if delta is None else delta
        if len(leaving) and kept.num_rows:
            hashes = flat(kept.column(HASH)).to_numpy()
            keys = kept.select(self.key.names)
            kept = rows_where(kept, ~contained(hashes, keys, leaving, leaving_keys))
        return in_order(kept, deletions(spec, stale, stale_keys)) if len(stale) else kept
