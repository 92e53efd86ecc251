"""Windows whose aggregates are merged, of panes and of sessions, each with a model of it that keeps
the records."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import godwit.operators as ops
from godwit.operators.panes import Panes
from godwit.operators.sessions import Sessions
from godwit.operators.windows import session as session_window
from godwit.operators.windows import sliding
from tests.support.counting_workloads import (
    KEY,
    Key,
    Row,
    Workload,
    combine,
    in_total_order,
    key_of,
    row_of,
)
from tests.support.timed_workloads import DELAY, LENGTH, NUMBERS, TICK, Timed, at
from tests.support.window_workloads import BIDS, Windows

# -- sliding windows, aggregated by panes ----------------------------------------------------------

_SPAN, _SLIDE = 3, 2  # seconds; a pane is one


class PanesModel(Windows):
    """Every window that has a record, from the records themselves."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Row] = []

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        self._rows += rows
        windows: dict[tuple[Key, datetime], list[int]] = defaultdict(list)
        for row in self._rows:
            for end in _ends(row["window_start"]):
                if (self._passed is None or end > self._passed) and until and end <= until:
                    windows[key_of(row), end].append(row["n"])
        self._rows = [row for row in self._rows if not until or row["window_end"] > until]
        return [self._window(*window, numbers) for window, numbers in windows.items()]

    def _window(self, key: Key, end: datetime, numbers: list[int]) -> Row:
        span = {"window_start": end - timedelta(seconds=_SPAN), "window_end": end}
        span |= {"window_time": end - TICK}
        return row_of(key, **span, rows=len(numbers), total=sum(numbers))

    def state(self) -> dict[str, list[Row]]:
        panes: dict[Any, list[int]] = defaultdict(list)
        for row in self._rows:
            panes[key_of(row), row["window_start"], row["window_end"]].append(row["n"])
        rows = [
            row_of(key, window_start=start, window_end=end, rows=len(n), total=sum(n))
            for (key, start, end), n in panes.items()
        ]
        return {"value": rows}


def _ends(moment: datetime) -> Iterator[datetime]:
    """The ends of the windows that a record is in."""
    second = round((moment - at(0)).total_seconds())  # type: ignore[operator]
    first = second - second % _SLIDE
    for start in range(first, second - _SPAN, -_SLIDE):
        end = at(start + _SPAN)
        assert end is not None
        yield end


def _panes_of(seconds: Sequence[int]) -> dict[str, list[Any]]:
    moments = [at(second) for second in seconds]
    last = [at(second - second % _SLIDE + _SPAN) for second in seconds]
    return {"at": moments, "window_start": moments, "window_end": last}


PANES = Workload(
    "panes",
    BIDS,
    Panes.define(
        "panes",
        KEY,
        {"rows": ops.count(), "total": ops.sum("n")},
        BIDS,
        sliding(f"{_SPAN} s", f"{_SLIDE} s"),
        time="at",
        delay=f"{DELAY} s",
    ),
    PanesModel,
    combine(**_panes_of((0, 1, 2, 3, 4, 5, 9, 10)), n=(1, 2, 4, 8, 16, 32, 64, 128)),
)


# -- sessions, aggregated --------------------------------------------------------------------------


class VisitsModel(Timed):
    """Open sessions as lists of records; a record is late if its own session would have closed."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[Key, list[list[Row]]] = defaultdict(list)

    def _is_punctual(self, row: Row) -> bool:
        assert self._passed is not None
        return bool(row["at"] + timedelta(seconds=LENGTH) > self._passed)

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        for row in in_total_order(rows, "at", "n"):
            self._add(row)
        outputs = []
        for key, sessions in self._open.items():
            for session in [s for s in sessions if until and self._end(s) <= until]:
                sessions.remove(session)
                outputs.append(self._row(key, session, closed=True))
        return outputs

    def _add(self, row: Row) -> None:
        sessions, end = self._open[key_of(row)], row["at"] + timedelta(seconds=LENGTH)
        near = [s for s in sessions if self._start(s) < end and row["at"] < self._end(s)]
        for session in near:
            sessions.remove(session)
        near.sort(key=self._start)
        sessions.append([*(one for session in near for one in session), row])

    def _start(self, session: list[Row]) -> Any:
        return min(row["at"] for row in session)

    def _end(self, session: list[Row]) -> Any:
        return max(row["at"] for row in session) + timedelta(seconds=LENGTH)

    def _row(self, key: Key, session: list[Row], *, closed: bool) -> Row:
        end = self._end(session)
        ends = [min(session, key=lambda row: row["at"]), session[0]]
        for row in session:
            if row["at"] >= ends[1]["at"]:
                ends[1] = row
        span: Row = {"window_start": self._start(session), "window_end": end}
        (head, tail), numbers = ends, [row["n"] for row in session]
        if closed:
            span |= {"window_time": end - TICK}
            return row_of(
                key, **span, rows=len(numbers), total=sum(numbers), head=head["n"], tail=tail["n"]
            )
        return row_of(
            key,
            **span,
            rows=len(numbers),
            total=sum(numbers),
            head=head["n"],
            head_time=head["at"],
            tail=tail["n"],
            tail_time=tail["at"],
        )

    def state(self) -> dict[str, list[Row]]:
        return {
            "value": [
                self._row(key, session, closed=False)
                for key, sessions in self._open.items()
                for session in sessions
            ]
        }


VISITS = Workload(
    "visits",
    NUMBERS,
    Sessions.define(
        "visits",
        KEY,
        {"rows": ops.count(), "total": ops.sum("n"), "head": ops.first("n"), "tail": ops.last("n")},
        NUMBERS,
        session_window(f"{LENGTH} s"),
        time="at",
        delay=f"{DELAY} s",
    ),
    VisitsModel,
    combine(at=[at(s) for s in (0, 1, 2, 3, 4, 4, 6, 9, None)], n=(1, 2, 3, 4, 5, 50, 6, 7, 8)),
)
