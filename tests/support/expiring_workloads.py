"""Operators whose keys expire, each with a model of it in plain Python."""

from collections import defaultdict
from datetime import datetime, timedelta

import pyarrow as pa

import godwit.operators as ops
from godwit.operators import AggregateOperator, StateMachine
from godwit.operators.expiring import Expiring
from tests.support.counting_workloads import (
    COMMANDS,
    FORMS,
    KEY,
    KEY_FIELDS,
    Key,
    PlainCollect,
    Row,
    Workload,
    collect,
    combine,
    in_total_order,
    key_of,
    row_of,
)
from tests.support.timed_workloads import DELAY, MOMENT, NUMBERS, Timed, at

TTL = 2  # seconds


class Expiries(Timed):
    """When each key expires; `_touched` and `_expiry` of the engine."""

    def __init__(self) -> None:
        super().__init__()
        self._newest: dict[Key, datetime] = {}

    def _expired(self, rows: list[Row], until: datetime | None) -> list[Key]:
        for row in rows:
            self._newest[key_of(row)] = max(self._newest.get(key_of(row), row["at"]), row["at"])
        ttl = timedelta(seconds=TTL)
        gone = [key for key, time in self._newest.items() if until and time + ttl <= until]
        for key in gone:
            del self._newest[key]
        return gone

    def _tables(self) -> dict[str, list[Row]]:
        touched = [row_of(key, newest=time) for key, time in self._newest.items()]
        return {"_touched": touched, "_expiry": [row_of(key) for key in self._newest]}


class Fading(Expiries):
    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[Key, list[int]] = defaultdict(list)

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        for row in rows:
            self._sums[key_of(row)].append(row["n"])
        outputs = [self._row(key) for key in set(map(key_of, rows))]
        for key in self._expired(rows, until):
            del self._sums[key]
        return outputs

    def _row(self, key: Key) -> Row:
        return row_of(key, rows=len(self._sums[key]), total=sum(self._sums[key]))

    def state(self) -> dict[str, list[Row]]:
        return {"value": [self._row(key) for key in self._sums], **self._tables()}


class Forgetful(Expiries):
    def __init__(self) -> None:
        super().__init__()
        self._of = PlainCollect()

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        outputs = []
        for row in in_total_order(rows, "at", "op", "x"):
            outputs += self._of.feed([row])
        for key in self._expired(rows, until):
            self._of._logs.pop(key, None)
            self._of._maps.pop(key, None)
        return outputs

    def state(self) -> dict[str, list[Row]]:
        return {**self._of.state(), **self._tables()}


FADING = Workload(
    "fading",
    NUMBERS,
    Expiring.define(
        AggregateOperator.of(
            "fading",
            KEY,
            {"rows": ops.count(), "total": ops.sum("n")},
            NUMBERS,
            time="at",
            delay=f"{DELAY} s",
        ),
        f"{TTL} s",
    ),
    Fading,
    combine(at=[at(s) for s in (0, 1, 2, 3, 4, 6)], n=(1, 2, 4, 8, 16, 32)),
)

_TIMED_COMMANDS = pa.schema([*KEY_FIELDS, ("at", MOMENT), *list(COMMANDS)[2:]])

FORGETFUL = Workload(
    "forgetful",
    _TIMED_COMMANDS,
    Expiring.define(
        StateMachine.of(
            "forgetful",
            KEY,
            collect,
            FORMS,
            "name string, part int, one long, other long",
            _TIMED_COMMANDS,
            time="at",
            delay=f"{DELAY} s",
        ),
        f"{TTL} s",
    ),
    Forgetful,
    combine(
        at=[at(s) for s in (0, 1, 2, 3, 4, 6, 9, 4, 3)],
        op=("append", "put", "append", "drop", "bump", "read", "length", "bump", "put"),
        x=(1, 1, 2, 1, 1, None, None, 2, 2),
    ),
)
