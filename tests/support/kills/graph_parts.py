"""Operators of random graphs, as a user of the public API adds them, each with a plain model.

Whatever comes out of an operator becomes, by code behind it, records of one schema again, so that
any of them can take it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Protocol

import godwit as gw
from godwit.spark.sinks.sink import Sink
from tests.support.column_workloads import WITHIN, Apart, Balances, Once, balances
from tests.support.counting_workloads import KEY, Key, PlainMap, Row, in_total_order, key_of, row_of
from tests.support.expiring_workloads import TTL, Fading
from tests.support.merged_windows import PanesModel, VisitsModel
from tests.support.timed_workloads import DELAY, LENGTH, Alarms, Timed, alarm, at
from tests.support.window_workloads import Windows

RECORDS = "name string, part int, at timestamp, n long"
LATE = f"{DELAY} s"
SPAN, SLIDE = 3, 2  # seconds, of sliding windows
LONGEST = 4  # a list that is longer is cleared

Inputs = Sequence[Sequence[Row]]


class Part(Protocol):
    """An operator of a graph, its model, and what its outputs are as records."""

    @property
    def delay(self) -> int | None:
        """In seconds; without one it has no event time."""
        ...

    @property
    def lag(self) -> int:
        """By how many seconds its outputs may be behind its watermark."""
        ...

    @property
    def sink_key(self) -> tuple[str, ...]:
        """Columns that tell its results apart, of which the newest count; or no columns do."""
        ...

    @property
    def records(self) -> tuple[str, ...]:
        """Its outputs as records, in SQL; without them, no operator can take it."""
        ...

    @property
    def may_keep_late(self) -> bool:
        """Can late records have a sink, and its model tell them?"""
        ...

    def add(self, name: str, *inputs: gw.Stream, late: Sink | None = None) -> gw.Stream:
        """The operator behind its inputs."""
        ...

    def model(self) -> Any:
        """What keeps its state in plain Python; `run` and `state` use it."""
        ...

    def run(self, model: Any, inputs: Inputs, until: datetime | None) -> list[Row]:
        """The outputs of an epoch with this watermark."""
        ...

    def as_record(self, row: Row) -> Row:
        """The same as `records`."""
        ...


@dataclass(frozen=True)
class OneInput:
    """An operator with one input, whose methods are those of `Part`."""

    define: Callable[..., gw.Stream]  # a stream and a name; with event time, also `late`
    model: Callable[[], Any]
    shown: Callable[[Row], Row] = lambda row: row  # a record as its model takes it
    records: tuple[str, ...] = ()
    as_record: Callable[[Row], Row] = lambda row: row
    sink_key: tuple[str, ...] = ()
    delay: int | None = None
    lag: int = 0

    @property
    def may_keep_late(self) -> bool:
        return self.delay is not None

    def add(self, name: str, *inputs: gw.Stream, late: Sink | None = None) -> gw.Stream:
        (input,) = inputs
        return self.define(input, name) if late is None else self.define(input, name, late)

    def run(self, model: Any, inputs: Inputs, until: datetime | None) -> list[Row]:
        rows = [self.shown(row) for row in inputs[0]]
        found: list[Row] = model.run(rows, until) if isinstance(model, Timed) else model.feed(rows)
        return found


def record_of(row: Row, at: Any, n: Any) -> Row:
    return row_of(key_of(row), at=at, n=n)


def late_of(model: Timed) -> list[Row]:
    """The late records of the last epoch, as a sink gets them."""
    return [record_of(row, row["at"], row["n"]) for row in model.late]


def as_records(at: str, n: str) -> tuple[str, ...]:
    return (*KEY, f"{at} AS at", f"{n} AS n")


# -- without event time ----------------------------------------------------------------------------


class Totals:
    """Some aggregates over all records of a key."""

    def __init__(self) -> None:
        self._rows: dict[Key, list[Row]] = defaultdict(list)

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        for row in rows:
            self._rows[key_of(row)].append(row)
        return [self._result(key) for key in {key_of(row): None for row in rows}]

    def _result(self, key: Key) -> Row:
        numbers = [row["n"] for row in self._rows[key]]
        times = [row["at"] for row in self._rows[key] if row["at"] is not None]
        return row_of(
            key,
            rows=len(numbers),
            timed=len(times),
            total=sum(numbers),
            low=min(numbers),
            high=max(numbers),
            newest=max(times, default=None),
        )

    def state(self) -> dict[str, list[Row]]:
        return {"value": [self._result(key) for key in self._rows]}


TOTALS = OneInput(
    lambda input, name: input.aggregate(
        name,
        key=KEY,
        rows=gw.count(),
        timed=gw.count("at"),
        total=gw.sum("n"),
        low=gw.min("n"),
        high=gw.max("n"),
        newest=gw.max("at"),
    ),
    Totals,
    records=as_records("newest", "total"),
    as_record=lambda row: record_of(row, row["newest"], row["total"]),
    sink_key=KEY,
)


class FirstOfEach(Once):
    """`Once`, of records without `x`."""

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        found = super().feed([row | {"x": 0} for row in rows])
        return [record_of(row, row["at"], row["n"]) for row in found]


ONCE = OneInput(
    lambda input, name: input.deduplicate(name, key=(*KEY, "n"), time="at"),
    FirstOfEach,
    records=as_records("at", "n"),
    sink_key=(*KEY, "n"),
)


def dated_balances(records: Any, starts: Any, state: Any) -> Any:
    kept, outputs = balances(records, starts, state)
    return kept, outputs | {"at": records["at"]}


class DatedBalances(Balances):
    def feed(self, rows: Sequence[Row]) -> list[Row]:
        ordered = in_total_order(rows, "at", "n")
        outputs = super().feed(ordered)
        return [row | {"at": given["at"]} for row, given in zip(outputs, ordered, strict=True)]


BALANCES = OneInput(
    lambda input, name: input.vectorised(
        name,
        key=KEY,
        function=dated_balances,
        state="rows long, total long",
        output="name string, part int, at timestamp, after long",
        time="at",
    ),
    DatedBalances,
    records=as_records("at", "after"),
    as_record=lambda row: record_of(row, row["at"], row["after"]),
)


def remember(key: Any, value: Any, state: Any) -> list[tuple[Any, ...]]:
    """Count in a value, keep numbers in a list that is cleared at times, and the best in a map."""
    state.profile.seen = (state.profile.seen or 0) + 1
    if len(state.log) == LONGEST:
        state.log.clear()
    state.log.append(value.n)
    state.best[value.n % 3] = max(state.best.get(value.n % 3, value.n), value.n)
    return [(*key, value.at, state.profile.seen, len(state.log), state.best[value.n % 3])]


class Memory:
    def __init__(self) -> None:
        self._of: dict[Key, Any] = defaultdict(
            lambda: SimpleNamespace(profile=SimpleNamespace(seen=None), log=[], best=PlainMap())
        )

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        outputs = []
        for row in in_total_order(rows, "at", "n"):
            value, state = SimpleNamespace(at=row["at"], n=row["n"]), self._of[key_of(row)]
            ((*_, time, seen, length, best),) = remember(key_of(row), value, state)
            outputs.append(row_of(key_of(row), at=time, seen=seen, length=length, best=best))
        return outputs

    def state(self) -> dict[str, list[Row]]:
        return {
            "profile": [row_of(key, seen=it.profile.seen) for key, it in self._of.items()],
            "log": [
                row_of(key, n=n, place=place)
                for key, it in self._of.items()
                for place, n in enumerate(it.log)
            ],
            "best": [
                row_of(key, rest=rest, n=n)
                for key, it in self._of.items()
                for rest, n in it.best.items()
            ],
        }


MEMORY = OneInput(
    lambda input, name: input.state_machine(
        name,
        key=KEY,
        function=remember,
        state={
            "profile": gw.Value("seen long"),
            "log": gw.List("n long"),
            "best": gw.Map("rest long", "n long"),
        },
        output="name string, part int, at timestamp, seen long, length long, best long",
        time="at",
    ),
    Memory,
    records=as_records("at", "best + seen"),
    as_record=lambda row: record_of(row, row["at"], row["best"] + row["seen"]),
)


# -- windows, and others with event time -----------------------------------------------------------


def _windowed(window: Any, **functions: Any) -> Callable[..., gw.Stream]:
    return lambda input, name, late=None: input.aggregate(
        name,
        key=KEY,
        window=window(),
        time="at",
        delay=LATE,
        late=late,
        rows=gw.count(),
        total=gw.sum("n"),
        **{result: make() for result, make in functions.items()},
    )


def _whole(time: datetime, seconds: int) -> datetime:
    """The last moment that is a multiple of so many seconds."""
    begin = at(0)
    assert begin is not None
    return time - (time - begin) % timedelta(seconds=seconds)


def _in_window(row: Row) -> Row:
    if row["at"] is None:
        return row
    return row | {"window_end": _whole(row["at"], LENGTH) + timedelta(seconds=LENGTH)}


def _in_pane(row: Row) -> Row:
    if row["at"] is None:
        return row
    last = _whole(row["at"], SLIDE) + timedelta(seconds=SPAN)
    return row | {"window_start": _whole(row["at"], 1), "window_end": last}


_closed: Mapping[str, Any] = {
    "records": as_records("window_time", "total"),
    "as_record": lambda row: record_of(row, row["window_time"], row["total"]),
    "sink_key": (*KEY, "window_end"),
    "delay": DELAY,
}

WINDOWS = OneInput(_windowed(lambda: gw.tumbling(f"{LENGTH} s")), Windows, _in_window, **_closed)
PANES = OneInput(
    _windowed(lambda: gw.sliding(f"{SPAN} s", f"{SLIDE} s")), PanesModel, _in_pane, **_closed
)
VISITS = OneInput(
    _windowed(
        lambda: gw.session(f"{LENGTH} s"),
        head=lambda: gw.first("n"),
        tail=lambda: gw.last("n"),
    ),
    VisitsModel,
    **_closed,
)

APART = OneInput(
    lambda input, name, late=None: input.deduplicate(
        name, key=KEY, time="at", within=f"{WITHIN} s", delay=LATE, late=late
    ),
    Apart,
    records=as_records("at", "n"),
    delay=DELAY,
)

FADING = OneInput(
    lambda input, name, late=None: input.aggregate(
        name,
        key=KEY,
        time="at",
        delay=LATE,
        late=late,
        ttl=f"{TTL} s",
        rows=gw.count(),
        total=gw.sum("n"),
    ),
    Fading,
    sink_key=KEY,
    delay=DELAY,
)


def _few(row: Row) -> Row:
    return row | {"n": row["n"] % 3}


def _alarms(*, strict: bool) -> OneInput:
    return OneInput(
        lambda input, name, late=None: input.transform(
            lambda rows: rows.selectExpr(*KEY, "at", "pmod(n, 3) AS n")
        ).unary(
            name,
            key=KEY,
            function=alarm,
            state="seen long",
            output="name string, part int, kind string, time timestamp, n long, seen long",
            time="at",
            delay=LATE,
            notices="n long",
            strict=strict,
            late=late,
        ),
        lambda: Alarms(strict=strict),
        _few,
        records=as_records("time", "seen"),
        as_record=lambda row: record_of(row, row["time"], row["seen"]),
        delay=DELAY,
    )


ALARMS, IN_ORDER = _alarms(strict=False), _alarms(strict=True)

ONE_INPUT: Mapping[str, Part] = {
    "totals": TOTALS,
    "once": ONCE,
    "balances": BALANCES,
    "memory": MEMORY,
    "windows": WINDOWS,
    "panes": PANES,
    "visits": VISITS,
    "apart": APART,
    "fading": FADING,
    "alarms": ALARMS,
    "in_order": IN_ORDER,
}
