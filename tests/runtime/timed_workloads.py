"""Operators with event time under test, each with a model of it in plain Python."""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa

import godwit.operators as ops
from godwit.operators.definition import INPUT
from godwit.operators.event_machine import EventMachine, Side
from godwit.operators.windowed import Windowed
from godwit.operators.windows import tumbling
from tests.runtime.workloads import _KEY_FIELDS as KEY_FIELDS
from tests.runtime.workloads import (
    KEY,
    Key,
    Row,
    Workload,
    _in_total_order,
    _key,
    _records,
    _row,
)

DELAY = 1  # all in seconds
LENGTH = 2
TICK = timedelta(microseconds=1)
MOMENT = pa.timestamp("us", tz="UTC")


def at(second: int | None) -> datetime | None:
    return None if second is None else datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


class Timed:
    """Knows the watermarks of an epoch and which of its records are late."""

    inputs = 1

    def __init__(self) -> None:
        self._clocks: dict[int, datetime] = {}  # by input
        self._passed: datetime | None = None

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        return self.run(rows, self.watermark())

    def watermark(self) -> datetime | None:
        """That of the next epoch."""
        if len(self._clocks) < self.inputs:
            return None
        return min(self._clocks.values()) - timedelta(seconds=DELAY)

    def run(self, rows: Sequence[Row], until: datetime | None) -> list[Row]:
        """An epoch with this watermark."""
        given = [row for row in rows if row["at"] is not None]
        punctual = [row for row in given if self._passed is None or self._is_punctual(row)]
        outputs = self._epoch(punctual, until)
        self._passed = until
        for row in given:
            input = row.get(INPUT, 0)
            self._clocks[input] = max(self._clocks.get(input, row["at"]), row["at"])
        return outputs

    def _is_punctual(self, row: Row) -> bool:
        assert self._passed is not None
        return bool(row["at"] >= self._passed)

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        raise NotImplementedError


# -- events and notices ----------------------------------------------------------------------------

_ALARMS = pa.schema([*KEY_FIELDS, ("at", MOMENT), ("n", pa.int64())])


def alarm(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    """A record with n asks for a notice n seconds later, and that for another one, n times."""
    for kind, time, key, value, state in events:
        state.seen = (state.seen or 0) + 1
        yield *key, kind, time, value.n, state.seen
        if value.n:
            notify(key, time + timedelta(seconds=value.n), value.n - 1)


class Alarms(Timed):
    def __init__(self, *, strict: bool) -> None:
        super().__init__()
        self._strict = strict
        self._seen: dict[Key, int] = defaultdict(int)
        self._notices: list[tuple[datetime, int, Key, int]] = []
        self._held: list[tuple[datetime, int, Key, int]] = []
        self._numbers = count()

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        for row in _in_total_order(rows, "at", "n"):
            self._held.append((row["at"], next(self._numbers), _key(row), row["n"]))
        free = [one for one in self._held if not self._strict or (until and one[0] < until)]
        self._held = [one for one in self._held if one not in free]
        late = TICK if self._strict else timedelta()
        heap: list[Any] = [
            (0, time + late, 0, number, key, "record", time, n) for time, number, key, n in free
        ]
        for one in self._notices:
            if until and one[0] <= until:
                self._push(heap, one)
        self._notices = [one for one in self._notices if not until or one[0] > until]
        heapq.heapify(heap)
        outputs = []
        while heap:
            *_, key, kind, time, n = heapq.heappop(heap)
            self._seen[key] += 1
            outputs.append(_row(key, kind=kind, time=time, n=n, seen=self._seen[key]))
            if n:
                notice = (time + timedelta(seconds=n), next(self._numbers), key, n - 1)
                if until and notice[0] <= until:
                    self._push(heap, notice)
                else:
                    self._notices.append(notice)
        return outputs

    def _push(self, heap: list[Any], notice: tuple[datetime, int, Key, int]) -> None:
        time, number, key, n = notice
        phase = 0 if self._strict else 1
        heapq.heappush(heap, (phase, time, 1, number, key, "notice", time, n))

    def state(self) -> dict[str, list[Row]]:
        tables = {
            "value": [_row(key, seen=seen) for key, seen in self._seen.items()],
            "_notices": [_row(key, n=n) for _, _, key, n in self._notices],
        }
        if self._strict:
            tables["_held"] = [_row(key, at=time, n=n) for time, _, key, n in self._held]
        return tables


def _alarms(name: str, *, strict: bool) -> Workload:
    return Workload(
        name,
        _ALARMS,
        EventMachine.of(
            name,
            KEY,
            alarm,
            "seen long",
            "name string, part int, kind string, time timestamp, n long, seen long",
            _ALARMS,
            time="at",
            delay=f"{DELAY} s",
            notices="n long",
            strict=strict,
        ),
        lambda: Alarms(strict=strict),
        _records(at=[at(s) for s in (0, 1, 2, 2, 3, 5, 8, None)], n=(0, 1, 0, 2, 3, 0, 0, 1)),
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


class Pairs(Timed):
    inputs = 2

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[Key, int] = {}
        self._notices: list[tuple[datetime, int, Key, int]] = []
        self._numbers = count()

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        outputs = []
        for row in _in_total_order(rows, "at", INPUT, "left_n", "right_m"):
            key, time = _key(row), row["at"]
            if row[INPUT]:
                n = self._left.get(key)
                outputs.append(_row(key, kind="right", time=time, of=row["right_m"], n=n))
                continue
            self._left[key] = row["left_n"]
            later = time + timedelta(seconds=LENGTH)
            self._notices.append((later, next(self._numbers), key, row["left_n"]))
        due = sorted(one for one in self._notices if until and one[0] <= until)
        self._notices = [one for one in self._notices if one not in due]
        for time, _, key, was in due:
            outputs.append(_row(key, kind="notice", time=time, of=was, n=self._left[key]))
            self._left[key] = 0
        return outputs

    def state(self) -> dict[str, list[Row]]:
        return {
            "value": [_row(key, n=n) for key, n in self._left.items()],
            "_notices": [_row(key, was=was) for _, _, key, was in self._notices],
        }


PAIRS = Workload(
    "pairs",
    _SIDES,
    EventMachine.of(
        "pairs",
        KEY,
        pair,
        "n long",
        "name string, part int, kind string, time timestamp, of long, n long",
        _SIDES,
        time="at",
        delay=f"{DELAY} s",
        notices="was long",
        sides=(
            Side("left", {"at": "at", "left_n": "n"}),
            Side("right", {"at": "at", "right_m": "m"}),
        ),
    ),
    Pairs,
    _records(
        **{INPUT: (0, 1, 0, 1, 0, 1, 0, 1)},
        at=[at(s) for s in (0, 0, 1, 2, 3, 4, 8, 9)],
        left_n=(1, None, 2, None, 3, None, 4, None),
        right_m=(None, 5, None, 6, None, 7, None, 8),
    ),
)


# -- windows ---------------------------------------------------------------------------------------

_SPANS = [("window_start", MOMENT), ("window_end", MOMENT)]
_BIDS = pa.schema([*KEY_FIELDS, ("at", MOMENT), *_SPANS, ("n", pa.int64())])


class Windows(Timed):
    """count and sum by key and window, when the window closes."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[tuple[Key, datetime], list[int]] = defaultdict(list)

    def _is_punctual(self, row: Row) -> bool:
        assert self._passed is not None
        return bool(row["window_end"] > self._passed)

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        for row in rows:
            self._open[_key(row), row["window_end"]].append(row["n"])
        closed = [window for window in self._open if until and window[1] <= until]
        return [self._row(window, self._open.pop(window), closed=True) for window in closed]

    def _row(self, window: tuple[Key, datetime], numbers: list[int], *, closed: bool) -> Row:
        key, end = window
        span: Row = {"window_start": end - timedelta(seconds=LENGTH), "window_end": end}
        if closed:
            span["window_time"] = end - TICK
        return _row(key, **span, rows=len(numbers), total=sum(numbers))

    def state(self) -> dict[str, list[Row]]:
        rows = [self._row(window, numbers, closed=False) for window, numbers in self._open.items()]
        waiting = [{k: v for k, v in row.items() if k not in ("rows", "total")} for row in rows]
        return {"value": rows, "_closing": waiting}


def _windows_of(seconds: Sequence[int]) -> dict[str, list[Any]]:
    starts = [second // LENGTH * LENGTH for second in seconds]
    return {
        "at": [at(second) for second in seconds],
        "window_start": [at(start) for start in starts],
        "window_end": [at(start + LENGTH) for start in starts],
    }


WINDOWS = Workload(
    "windows",
    _BIDS,
    Windowed.define(
        "windows",
        KEY,
        {"rows": ops.count(), "total": ops.sum("n")},
        _BIDS,
        tumbling(f"{LENGTH} s"),
        time="at",
        delay=f"{DELAY} s",
    ),
    Windows,
    _records(**_windows_of((0, 1, 2, 3, 4, 5, 9)), n=(1, 2, 4, 8, 16, 32, 64)),
)


# -- one operator behind another ------------------------------------------------------------------

_CLOSED = Windowed.define(
    "closed", KEY, {"n": ops.count()}, _BIDS, tumbling(f"{LENGTH} s"), time="at", delay=f"{DELAY} s"
)


class Chained:
    """Windows, whose counts ask for notices when they have closed."""

    def __init__(self) -> None:
        self._windows = Windows()
        self._alarms = Alarms(strict=False)

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        until = self._windows.watermark()
        closed = [
            _row(_key(window), at=window["window_time"], n=window["rows"])
            for window in self._windows.run(rows, until)
        ]
        return self._alarms.run(closed, until and until - timedelta(seconds=DELAY))

    def state(self) -> dict[str, list[Row]]:
        return self._alarms.state()


CHAINED = Workload(
    "chained",
    _BIDS,
    EventMachine.of(
        "chained",
        KEY,
        alarm,
        "seen long",
        "name string, part int, kind string, time timestamp, n long, seen long",
        _CLOSED.output,
        time="window_time",
        delay=f"{DELAY} s",
        notices="n long",
    ),
    Chained,
    WINDOWS.records,
    before=(_CLOSED,),
)

TIMED = (ALARMS, IN_ORDER, PAIRS, WINDOWS, CHAINED)
