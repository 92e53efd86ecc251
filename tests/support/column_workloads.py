"""Operators that compute with whole columns, each with a model of it in plain Python."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from godwit.operators.deduplicate import Deduplicate
from godwit.operators.expiring import Expiring
from godwit.operators.vectorised import Vectorised
from tests.support.counting_workloads import (
    KEY,
    KEY_FIELDS,
    Key,
    Row,
    Workload,
    combine,
    in_total_order,
    key_of,
    row_of,
)
from tests.support.expiring_workloads import TTL, Expiries
from tests.support.timed_workloads import DELAY, NUMBERS, Timed, at

WITHIN = 2  # seconds

_NUMBERED = pa.schema([*KEY_FIELDS, ("at", pa.int64()), ("n", pa.int64())])
_VALUES = pa.schema([*_NUMBERED, ("x", pa.int64())])
_TIMES = [at(s) for s in (0, 1, 2, 3, 4, 6)]


# -- each key once ---------------------------------------------------------------------------------


class Once:
    """The first record of each key, for good; `n` is a part of the key, so that there are many."""

    def __init__(self) -> None:
        self._given: dict[tuple[Any, ...], Row] = {}

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        outputs = []
        for row in in_total_order(rows, "at", "x"):
            key = row_of(key_of(row), n=row["n"])
            if tuple(key.values()) not in self._given:
                self._given[tuple(key.values())] = key
                outputs.append(row)
        return outputs

    def state(self) -> dict[str, list[Row]]:
        return {"given": [*self._given.values()]}


class Apart(Timed):
    """The records of each key that are `WITHIN` after the one given before, by their time."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[Key, datetime] = {}

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        within, outputs = timedelta(seconds=WITHIN), []
        for row in in_total_order(rows, "at", "n"):
            given = self._given.get(key_of(row))
            if given is None or row["at"] >= given + within:
                self._given[key_of(row)] = row["at"]
                outputs.append(row)
        if until is not None:
            self._given = {key: t for key, t in self._given.items() if t + within > until}
        return outputs

    def state(self) -> dict[str, list[Row]]:
        given = [row_of(key, given=time) for key, time in self._given.items()]
        return {"given": given, "_expiry": [row_of(key) for key in self._given]}


ONCE = Workload(
    "once",
    _VALUES,
    Deduplicate.of("once", [*KEY, "n"], _VALUES, time="at"),
    Once,
    combine(at=(1, 1, 1, 2, None, None), n=(1, 1, None, 1, None, 3), x=(2, None, 1, 3, 4, 5)),
)

APART = Workload(
    "apart",
    NUMBERS,
    Deduplicate.of("apart", KEY, NUMBERS, time="at", within=f"{WITHIN} s", delay=f"{DELAY} s"),
    Apart,
    combine(at=[*_TIMES, at(2), None], n=(1, 2, 3, 4, 5, 6, None, 7)),
)


# -- a function of columns -------------------------------------------------------------------------


def balances(records: pa.Table, starts: Any, state: pa.Table) -> Any:
    """The total of a key after each of its records; a key whose total is a multiple of 4 leaves."""
    n = records["n"].fill_null(0).to_numpy()
    sizes = np.diff(starts, append=len(n))
    sums = np.cumsum(n) + np.repeat(state["total"].fill_null(0).to_numpy(), sizes)
    after = sums - np.repeat(np.cumsum(n)[starts] - n[starts], sizes)
    total, rows = after[starts + sizes - 1], state["rows"].fill_null(0).to_numpy() + sizes
    leave = total % 4 == 0
    outputs = {"name": records["name"], "part": records["part"], "after": after}
    return {"rows": pa.array(rows, mask=leave), "total": pa.array(total, mask=leave)}, outputs


class Balances:
    def __init__(self) -> None:
        self._of: dict[Key, tuple[int, int]] = defaultdict(lambda: (0, 0))

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        outputs = []
        for row in in_total_order(rows, "at", "n"):
            count, total = self._of[key_of(row)]
            self._of[key_of(row)] = count + 1, total + (row["n"] or 0)
            outputs.append(row_of(key_of(row), after=total + (row["n"] or 0)))
        for key, (_, total) in list(self._of.items()):
            if total % 4 == 0:
                del self._of[key]
        return outputs

    def drop(self, key: Key) -> None:
        self._of.pop(key, None)

    def state(self) -> dict[str, list[Row]]:
        return {"value": [row_of(key, rows=n, total=t) for key, (n, t) in self._of.items()]}


class FadingBalances(Expiries):
    def __init__(self) -> None:
        super().__init__()
        self._balances = Balances()

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        outputs = self._balances.feed(rows)
        for key in self._expired(rows, until):
            self._balances.drop(key)
        return outputs

    def state(self) -> dict[str, list[Row]]:
        return {**self._balances.state(), **self._tables()}


_STATE, _OUTPUT = "rows long, total long", "name string, part int, after long"

BALANCES = Workload(
    "balances",
    _NUMBERED,
    Vectorised.of("balances", KEY, balances, _STATE, _OUTPUT, _NUMBERED, time="at"),
    Balances,
    combine(at=(1, 1, 2, None, 3, 3), n=(2, None, 1, 3, -1, 0)),
)

FADING_BALANCES = Workload(
    "fading-balances",
    NUMBERS,
    Expiring.define(
        Vectorised.of(
            "fading-balances",
            KEY,
            balances,
            _STATE,
            _OUTPUT,
            NUMBERS,
            time="at",
            delay=f"{DELAY} s",
        ),
        f"{TTL} s",
    ),
    FadingBalances,
    combine(at=_TIMES, n=(1, 2, 4, None, -1, 3)),
)
