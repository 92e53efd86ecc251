"""Operators with event time under test, each with a model of it in plain Python."""

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa

from godwit.operators.definition import INPUT
from godwit.operators.event_machine import EventMachine
from godwit.operators.events import Side
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

DELAY = 1  # all in seconds
LENGTH = 2
TICK = timedelta(microseconds=1)
FOREVER = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)
MOMENT = pa.timestamp("us", tz="UTC")


def at(second: int | None) -> datetime | None:
    return None if second is None else datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


class Silence:
    """Knows which inputs are idle: those that had no record since an epoch began `idle_after`
    seconds before the newest. Every process counts for itself, from the first epoch that it has
    published."""

    def __init__(self, idle_after: float) -> None:
        self._idle_after = idle_after
        self._shown: dict[int, float] = {}
        self._newest = 0.0
        self._process = -1

    def begin(self, now: float, decided_by: int, published_by: int) -> None:
        """An epoch begins, which these processes decide and publish."""
        self._now, self._decided_by, self._published_by = now, decided_by, published_by

    def idle(self) -> set[int]:
        """As the process sees it that decides the epoch."""
        if self._decided_by != self._process:
            return set()
        return {i for i, at in self._shown.items() if self._newest - at >= self._idle_after}

    def end(self, inputs: int, shown: Collection[int]) -> None:
        """The epoch has shown records of some inputs."""
        before = self._shown if self._published_by == self._process else {}
        now = self._now
        self._shown = {i: now if i in shown else before.get(i, now) for i in range(inputs)}
        self._newest, self._process = now, self._published_by


class Timed:
    """Knows the watermarks of an epoch and which of its records are late."""

    inputs = 1

    def __init__(self) -> None:
        self._clocks: dict[int, datetime] = {}  # by input
        self._passed: datetime | None = None
        self._finished = False
        self.late: list[Row] = []  # those of the last epoch
        self.silence: Silence | None = None  # if inputs can be idle

    def finish(self) -> None:
        self._finished = True

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        return self.run(rows, self.watermark())

    def watermark(self) -> datetime | None:
        """That of the next epoch."""
        if self._finished:
            return FOREVER
        awake = set(range(self.inputs)) - (self.silence.idle() if self.silence else set())
        if not awake <= self._clocks.keys() or not self._clocks:
            return self._passed
        clock = min(self._clocks[i] for i in awake) if awake else max(self._clocks.values())
        until = clock - timedelta(seconds=DELAY)
        return until if self._passed is None else max(until, self._passed)

    def run(self, rows: Sequence[Row], until: datetime | None) -> list[Row]:
        """An epoch with this watermark."""
        given = [row for row in rows if row["at"] is not None]
        punctual = [row for row in given if self._passed is None or self._is_punctual(row)]
        self.late = [row for row in rows if row not in punctual]
        outputs = self._epoch(punctual, until)
        self._passed = until
        for row in given:
            input = row.get(INPUT, 0)
            self._clocks[input] = max(self._clocks.get(input, row["at"]), row["at"])
        if self.silence is not None:
            self.silence.end(self.inputs, {row.get(INPUT, 0) for row in given})
        return outputs

    def _is_punctual(self, row: Row) -> bool:
        assert self._passed is not None
        return bool(row["at"] >= self._passed)

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        raise NotImplementedError


# -- events and notices ----------------------------------------------------------------------------

NUMBERS = pa.schema([*KEY_FIELDS, ("at", MOMENT), ("n", pa.int64())])


def alarm(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    """A record with n asks for a notice n seconds later, and that for another one, n times."""
    for kind, time, key, value, state in events:
        state.seen = (state.seen or 0) + 1
        yield *key, kind, time, value.n, state.seen
        if value.n:
            notify(key, time + timedelta(seconds=value.n), value.n - 1)


class Events(Timed):
    """Gives records and notices to `_event` in the order in which an event machine gets them.

    If `strict`, records wait until the watermark has passed them, and come between the notices.
    """

    columns: tuple[str, ...] = ("n",)  # of the records, besides key and time
    notice = "n"

    def __init__(self, *, strict: bool) -> None:
        super().__init__()
        self._strict = strict
        self._heap: list[Any] = []  # what the watermark has passed
        self._notices: list[tuple[datetime, int, Key, int]] = []
        self._held: list[tuple[int, Row]] = []
        self._numbers = count()
        self._until: datetime | None = None

    def _event(self, kind: str, time: datetime, key: Key, value: Row) -> Iterator[Row]:
        raise NotImplementedError

    def _kind(self, row: Row) -> str:
        return "record"

    def _notify(self, key: Key, time: datetime, n: int) -> None:
        self._remind((time, next(self._numbers), key, n))

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        self._until = until
        for row in in_total_order(rows, "at", *self.columns):
            self._held.append((next(self._numbers), row))
        held, self._held = self._held, []
        for number, row in held:
            if not self._strict or (until and row["at"] < until):
                late = TICK if self._strict else timedelta()
                event = self._kind(row), row["at"], key_of(row), row
                heapq.heappush(self._heap, (0, row["at"] + late, 0, number, event))
            else:
                self._held.append((number, row))
        waiting, self._notices = self._notices, []
        for notice in waiting:
            self._remind(notice)
        outputs: list[Row] = []
        while self._heap:
            outputs += self._event(*heapq.heappop(self._heap)[-1])
        return outputs

    def _remind(self, notice: tuple[datetime, int, Key, int]) -> None:
        time, number, key, n = notice
        if self._until and time <= self._until:
            event = "notice", time, key, {self.notice: n}
            heapq.heappush(self._heap, (0 if self._strict else 1, time, 1, number, event))
        else:
            self._notices.append(notice)

    def _tables(self) -> dict[str, list[Row]]:
        tables = {"_notices": [row_of(key, **{self.notice: n}) for _, _, key, n in self._notices]}
        held = [{c: v for c, v in row.items() if c != INPUT} for _, row in self._held]
        return tables | ({"_held": held} if self._strict else {})


class Alarms(Events):
    def __init__(self, *, strict: bool) -> None:
        super().__init__(strict=strict)
        self._seen: dict[Key, int] = defaultdict(int)

    def _event(self, kind: str, time: datetime, key: Key, value: Row) -> Iterator[Row]:
        self._seen[key] += 1
        yield row_of(key, kind=kind, time=time, n=value["n"], seen=self._seen[key])
        if value["n"]:
            self._notify(key, time + timedelta(seconds=value["n"]), value["n"] - 1)

    def state(self) -> dict[str, list[Row]]:
        return {
            "value": [row_of(key, seen=seen) for key, seen in self._seen.items()],
            **self._tables(),
        }


def _alarms(name: str, *, strict: bool) -> Workload:
    return Workload(
        name,
        NUMBERS,
        EventMachine.of(
            name,
            KEY,
            alarm,
            "seen long",
            "name string, part int, kind string, time timestamp, n long, seen long",
            NUMBERS,
            time="at",
            delay=f"{DELAY} s",
            notices="n long",
            strict=strict,
        ),
        lambda: Alarms(strict=strict),
        combine(at=[at(s) for s in (0, 1, 2, 2, 3, 5, 8, None)], n=(0, 1, 0, 2, 3, 0, 0, 1)),
    )


ALARMS = _alarms("alarms", strict=False)
IN_ORDER = _alarms("in_order", strict=True)


# -- two inputs ------------------------------------------------------------------------------------

_SIDES = pa.schema(
    [
        (INPUT, pa.int8()),
        *KEY_FIELDS,
        ("at", MOMENT),
        ("left_n", pa.int64()),
        ("right_m", pa.int64()),
    ]
)


def pair(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    """The right is answered with what was last on the left, which a notice sets to 0 later."""
    for kind, time, key, value, state in events:
        if kind == "left":
            state.n = value.n
            notify(key, time + timedelta(seconds=LENGTH), value.n)
        elif kind == "right":
            yield *key, kind, time, value.m, state.n
        else:
            yield *key, kind, time, value.was, state.n
            state.n = 0


class Pairs(Events):
    inputs = 2
    columns = (INPUT, "left_n", "right_m")
    notice = "was"

    def __init__(self, *, strict: bool) -> None:
        super().__init__(strict=strict)
        self._left: dict[Key, int] = {}

    def _kind(self, row: Row) -> str:
        return "right" if row[INPUT] else "left"

    def _event(self, kind: str, time: datetime, key: Key, value: Row) -> Iterator[Row]:
        if kind == "left":
            self._left[key] = value["left_n"]
            self._notify(key, time + timedelta(seconds=LENGTH), value["left_n"])
            return
        of = value["right_m"] if kind == "right" else value["was"]
        yield row_of(key, kind=kind, time=time, of=of, n=self._left.get(key))
        if kind == "notice":
            self._left[key] = 0

    def state(self) -> dict[str, list[Row]]:
        return {
            "value": [row_of(key, n=n) for key, n in self._left.items()],
            **self._tables(),
        }


def _pairs(name: str, *, strict: bool) -> Workload:
    return Workload(
        name,
        _SIDES,
        EventMachine.of(
            name,
            KEY,
            pair,
            "n long",
            "name string, part int, kind string, time timestamp, of long, n long",
            _SIDES,
            time="at",
            delay=f"{DELAY} s",
            notices="was long",
            strict=strict,
            sides=(
                Side("left", {"at": "at", "left_n": "n"}),
                Side("right", {"at": "at", "right_m": "m"}),
            ),
        ),
        lambda: Pairs(strict=strict),
        combine(
            **{INPUT: (0, 1, 0, 1, 0, 1, 0, 1)},
            at=[at(s) for s in (0, 0, 1, 2, 3, 4, 8, 9)],
            left_n=(1, None, 2, None, 3, None, 4, None),
            right_m=(None, 5, None, 6, None, 7, None, 8),
        ),
    )


PAIRS = _pairs("pairs", strict=False)
PAIRS_IN_ORDER = _pairs("pairs_in_order", strict=True)
