"""Windows under test, each with a model of it in plain Python."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

import godwit.operators as ops
from godwit.operators import List, StateMachine, Value
from godwit.operators.base import Horizon
from godwit.operators.event_machine import EventMachine
from godwit.operators.windowed import Windowed
from godwit.operators.windows import (
    END,
    START,
    ApplyCounted,
    ApplySession,
    ApplySliding,
    Sliding,
    sliding,
    tumbling,
)
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
from tests.support.timed_workloads import (
    DELAY,
    LENGTH,
    MOMENT,
    NUMBERS,
    TICK,
    Alarms,
    Timed,
    alarm,
    at,
)

# -- tumbling windows, aggregated -----------------------------------------------------------------

_SPANS = [("window_start", MOMENT), ("window_end", MOMENT)]
BIDS = pa.schema([*KEY_FIELDS, ("at", MOMENT), *_SPANS, ("n", pa.int64())])


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
            self._open[key_of(row), row["window_end"]].append(row["n"])
        closed = [window for window in self._open if until and window[1] <= until]
        return [self._row(window, self._open.pop(window), closed=True) for window in closed]

    def _row(self, window: tuple[Key, datetime], numbers: list[int], *, closed: bool) -> Row:
        key, end = window
        span: Row = {"window_start": end - timedelta(seconds=LENGTH), "window_end": end}
        if closed:
            span["window_time"] = end - TICK
        return row_of(key, **span, rows=len(numbers), total=sum(numbers))

    def state(self) -> dict[str, list[Row]]:
        rows = [self._row(window, numbers, closed=False) for window, numbers in self._open.items()]
        waiting = [{k: v for k, v in row.items() if k not in ("rows", "total")} for row in rows]
        return {"value": rows, "_closing": waiting}


def _windows_of(seconds: Sequence[int], starts: Sequence[int]) -> dict[str, list[Any]]:
    return {
        "at": [at(second) for second in seconds],
        "window_start": [at(start) for start in starts],
        "window_end": [at(start + LENGTH) for start in starts],
    }


def _windows(name: str, window: Sliding, records: tuple[Row, ...]) -> Workload:
    functions = {"rows": ops.count(), "total": ops.sum("n")}
    operator = Windowed.define(name, KEY, functions, BIDS, window, time="at", delay=f"{DELAY} s")
    return Workload(name, BIDS, operator, Windows, records)


_IN_ONE = combine(
    **_windows_of((0, 1, 2, 3, 4, 5, 9), (0, 0, 2, 2, 4, 4, 8)), n=(1, 2, 4, 8, 16, 32, 64)
)
_IN_TWO = combine(  # a record for each of its windows
    **_windows_of((1, 1, 2, 2, 4, 4, 9, 9), (0, 1, 1, 2, 3, 4, 8, 9)),
    n=(1, 1, 2, 2, 4, 4, 8, 8),
)
WINDOWS = _windows("windows", tumbling(f"{LENGTH} s"), _IN_ONE)
SLIDING = _windows("sliding", sliding(f"{LENGTH} s", "1 s"), _IN_TWO)


# -- sessions --------------------------------------------------------------------------------------


def describe(key: Any, span: Any, records: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The first and the last number of a window, and how many there are."""
    yield *key, *(span or ()), records[0].n, records[-1].n, len(records)


class Sessions(Timed):
    def __init__(self) -> None:
        super().__init__()
        self._records: dict[Key, list[Row]] = defaultdict(list)

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        for row in in_total_order(rows, "at", "n"):
            self._records[key_of(row)].append(row)
        outputs = []
        for key, records in self._records.items():
            kept: list[Row] = []
            for session in self._sessions(records):
                end = session[-1]["at"] + timedelta(seconds=LENGTH)
                if until and end <= until:
                    outputs.append(self._row(key, session, end))
                else:
                    kept += session
            if len(kept) < len(records):
                self._records[key] = kept
        return outputs

    def _sessions(self, records: list[Row]) -> list[list[Row]]:
        sessions: list[list[Row]] = []
        for row in sorted(records, key=lambda row: row["at"]):
            if sessions and row["at"] - sessions[-1][-1]["at"] < timedelta(seconds=LENGTH):
                sessions[-1].append(row)
            else:
                sessions.append([row])
        return sessions

    def _row(self, key: Key, session: list[Row], end: datetime) -> Row:
        first, last = session[0], session[-1]
        span: Row = {"begin": first["at"], "end": end}
        return row_of(key, **span, head=first["n"], tail=last["n"], rows=len(session))

    def state(self) -> dict[str, list[Row]]:
        listed = [(i, row) for rows in self._records.values() for i, row in enumerate(rows)]
        return {"records": [row | {"place": i} for i, row in listed]}


SESSIONS = Workload(
    "sessions",
    NUMBERS,
    EventMachine.of(
        "sessions",
        KEY,
        ApplySession(describe, ("at", "n"), timedelta(seconds=LENGTH), 0),
        {"records": List("at timestamp, n long"), "next": Value("notice timestamp")},
        "name string, part int, begin timestamp, end timestamp, head long, tail long, rows long",
        NUMBERS,
        time="at",
        delay=f"{DELAY} s",
        notices="",
    ),
    Sessions,
    combine(at=[at(s) for s in (0, 1, 2, 3, 4, 6, 9)], n=(1, 2, 3, 4, 5, 6, 7)),
)


# -- sliding windows, whose records a function gets -----------------------------------------------


class Applied(Windows):
    """The records of a key and window in the order in which they came, when the window closes."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[tuple[Key, datetime], list[Row]] = defaultdict(list)

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        for row in in_total_order(rows, "at", "n"):
            self._records[key_of(row), row["window_end"]].append(row)
        closed = [window for window in self._records if until and window[1] <= until]
        return [self._described(window, self._records.pop(window)) for window in closed]

    def _described(self, window: tuple[Key, datetime], records: list[Row]) -> Row:
        span: Row = {"begin": records[0]["window_start"], "end": window[1]}
        head, tail = records[0]["n"], records[-1]["n"]
        return row_of(window[0], **span, head=head, tail=tail, rows=len(records))

    def state(self) -> dict[str, list[Row]]:
        whole, columns = (*KEY, START, END), (*KEY, START, END, "at", "n")
        return {
            "records": [
                {column: row[column] for column in columns} | {"place": place}
                for rows in self._records.values()
                for place, row in enumerate(rows)
            ],
            "open": [
                {column: rows[0][column] for column in whole} | {"yes": True}
                for rows in self._records.values()
            ],
        }


APPLIED = Workload(
    "applied",
    BIDS,
    EventMachine.of(
        "applied",
        [*KEY, START, END],
        ApplySliding(describe, ("at", "n"), KEY),
        {"records": List("at timestamp, n long"), "open": Value("yes boolean")},
        "name string, part int, begin timestamp, end timestamp, head long, tail long, rows long",
        BIDS,
        time="at",
        delay=f"{DELAY} s",
        notices="",
        horizon=Horizon(END),
        window="sliding",
    ),
    Applied,
    _IN_TWO,
)


# -- counted windows -------------------------------------------------------------------------------

_COUNTED = pa.schema([*KEY_FIELDS, ("n", pa.int64())])


class Counts:
    def __init__(self) -> None:
        self._records: dict[Key, list[int]] = defaultdict(list)

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        outputs = []
        for row in in_total_order(rows, "n"):
            records = self._records[key_of(row)]
            records.append(row["n"])
            if len(records) == LENGTH:
                outputs.append(row_of(key_of(row), head=records[0], tail=records[-1], rows=LENGTH))
                records.clear()
        return outputs

    def state(self) -> dict[str, list[Row]]:
        filled = {key: records for key, records in self._records.items() if records}
        return {
            "records": [
                row_of(key, n=n, place=place)
                for key, records in filled.items()
                for place, n in enumerate(records)
            ],
            "open": [row_of(key, records=len(records)) for key, records in filled.items()],
        }


COUNTS = Workload(
    "counts",
    _COUNTED,
    StateMachine.of(
        "counts",
        KEY,
        ApplyCounted(describe, ("n",), LENGTH),
        {"records": List("n long"), "open": Value("records long")},
        "name string, part int, head long, tail long, rows long",
        _COUNTED,
    ),
    Counts,
    combine(n=(1, 2, 3, 4, None)),
)


# -- one operator behind another ------------------------------------------------------------------

_CLOSED = Windowed.define(
    "closed", KEY, {"n": ops.count()}, BIDS, tumbling(f"{LENGTH} s"), time="at", delay=f"{DELAY} s"
)


class Chained:
    """Windows, whose counts ask for notices when they have closed."""

    def __init__(self) -> None:
        self._windows = Windows()
        self._alarms = Alarms(strict=False)

    def finish(self) -> None:
        self._windows.finish()

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        until = self._windows.watermark()
        closed = [
            row_of(key_of(window), at=window["window_time"], n=window["rows"])
            for window in self._windows.run(rows, until)
        ]
        return self._alarms.run(closed, until and until - timedelta(seconds=DELAY))

    def state(self) -> dict[str, list[Row]]:
        return self._alarms.state()


CHAINED = Workload(
    "chained",
    BIDS,
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
