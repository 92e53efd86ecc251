"""Sliding windows by panes, and sessions, beside a model that keeps all records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from godwit.errors import ConfigError, IncompatibleError, OperatorError
from godwit.operators.panes import Panes
from godwit.operators.ranges import Nodes, Ranges, codes, merge_ranges, positions
from godwit.operators.windowed import Windowed
from godwit.testing import Simulation
from tests.support.counting_workloads import KEY
from tests.support.event_records import record, second
from tests.support.operator_simulation import OperatorSimulation
from tests.support.own_aggregates import TopThree, variance
from tests.support.window_workloads import SLIDING

SCHEMA = "k string, at timestamp, until timestamp, n long, price decimal(38,0), small int"
DELAY = 3
TICK = timedelta(microseconds=1)
FUNCTIONS = {
    "rows": gw.count(),
    "total": gw.sum("n"),
    "mean": gw.avg("n"),
    "low": gw.min("n"),
    "high": gw.max("n"),
    "head": gw.first("n"),
    "tail": gw.last("n"),
}
Row = dict[str, Any]
Epochs = Sequence[Sequence[Row]]


def job(window: Any, **functions: gw.Aggregate) -> gw.Job:
    options: Row = {"key": "k", "window": window, "time": "at", "delay": f"{DELAY} s"}
    stream = gw.stream(SCHEMA).aggregate("w", **options | (functions or FUNCTIONS))
    return stream.to(gw.console())


def played(window: Any, epochs: Epochs, workers: int = 1) -> list[Row]:
    simulation = Simulation(job(window), workers=workers, bins=16)
    for number, rows in enumerate(epochs):
        if number == 1:
            simulation.migrate(workers + 1)
        simulation.feed(rows)
    simulation.finish()
    assert simulation.state("value") == []
    return simulation.outputs()


class Watermarks:
    """That of the epoch before and that of this one; at the end all moments have passed."""

    def __init__(self) -> None:
        self.passed: Any = None
        self.until: Any = None
        self._clock: Any = None

    def next(self, rows: Sequence[Row], *, end: bool = False) -> None:
        self.passed = self.until
        self.until = self._clock and self._clock - timedelta(seconds=DELAY)
        if end:
            self.until = second(10**6)
        known = [self._clock] if self._clock else []
        self._clock = max([*(row["at"] for row in rows), *known], default=None)


def result(key: str, start: Any, end: Any, records: Sequence[Row]) -> Row:
    """Of records as they came: of equal times, those of later epochs are later."""
    by_time = sorted(records, key=lambda row: row["at"])
    numbers = [row["n"] for row in by_time]
    return {
        "k": key,
        "window_start": start,
        "window_end": end,
        "window_time": end - TICK,
        "rows": len(numbers),
        "total": sum(numbers),
        "mean": sum(numbers) / len(numbers),
        "low": min(numbers),
        "high": max(numbers),
        "head": numbers[0],
        "tail": numbers[-1],
    }


def in_epoch_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["at"], row["until"], row["n"]))


def slid(length: int, slide: int, epochs: Epochs) -> list[Row]:
    """Each window with the records that are not late for it."""
    windows: dict[Any, list[Row]] = {}
    found, marks = [], Watermarks()
    for rows in (*epochs, None):
        marks.next(rows or [], end=rows is None)
        for row in in_epoch_order(rows or []):
            at = round((row["at"] - second(0)).total_seconds() * 1000)
            for start in range(at - at % slide, at - length, -slide):
                end = second((start + length) / 1000)
                if marks.passed is None or end > marks.passed:
                    windows.setdefault((end, row["k"]), []).append(row)
        closed = [window for window in windows if marks.until and window[0] <= marks.until]
        found += [
            result(key, end - timedelta(milliseconds=length), end, windows.pop((end, key)))
            for end, key in sorted(closed)
        ]
    return found


def in_sessions(gap: float | None, epochs: Epochs) -> list[Row]:
    """Open sessions as lists of records; a record that is not late joins those that it overlaps."""
    sessions: list[list[Row]] = []
    found, marks = [], Watermarks()

    def end_of(row: Row) -> Any:
        return row["until"] if gap is None else row["at"] + timedelta(seconds=gap)

    def span(session: Iterable[Row]) -> tuple[Any, Any]:
        records = list(session)
        return min(row["at"] for row in records), max(end_of(row) for row in records)

    for rows in (*epochs, None):
        marks.next(rows or [], end=rows is None)
        for row in in_epoch_order(rows or []):
            if (marks.passed and end_of(row) <= marks.passed) or end_of(row) <= row["at"]:
                continue
            near = [
                one
                for one in sessions
                if one[0]["k"] == row["k"]
                and span(one)[0] < end_of(row)
                and row["at"] < span(one)[1]
            ]
            sessions = [one for one in sessions if one not in near]
            sessions.append([*chain.from_iterable(sorted(near, key=span)), row])
        closed = [one for one in sessions if marks.until and span(one)[1] <= marks.until]
        sessions = [one for one in sessions if one not in closed]
        closed.sort(key=lambda one: (span(one)[1], one[0]["k"]))
        found += [result(one[0]["k"], *span(one), one) for one in closed]
    return found


@st.composite
def epochs(draw: st.DrawFn) -> Epochs:
    moments = st.integers(0, 160).map(lambda tick: tick / 4)
    rows = st.builds(
        lambda k, at, lasts, n: record(k, at, n) | {"until": second(at + lasts)},
        st.sampled_from("ab"),
        moments,
        st.integers(0, 24).map(lambda tick: tick / 4),
        st.integers(-9, 9),
    )
    return draw(st.lists(st.lists(rows, max_size=8), max_size=6))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["window_end"], row["window_start"], row["k"]))


FEWER = settings(max_examples=settings().max_examples // 3)
SPANS = [(5, 1), (3, 2), (1, 0.25), (40, 0.25), (6, 4), (8, 8)]


@pytest.mark.parametrize(("length", "slide"), SPANS)
@FEWER
@given(epochs=epochs())
def test_windows_by_panes_are_those_of_the_records(
    length: float, slide: float, epochs: Epochs
) -> None:
    window = gw.sliding(f"{length} s", f"{slide} s")
    found = played(window, epochs)
    assert in_order(found) == in_order(slid(int(length * 1000), int(slide * 1000), epochs))


@pytest.mark.parametrize("gap", [0.5, 2, 10, None], ids=str)
@FEWER
@given(epochs=epochs())
def test_sessions_are_those_of_the_records(gap: float | None, epochs: Epochs) -> None:
    window = gw.session(until="until") if gap is None else gw.session(f"{gap} s")
    found = played(window, epochs)
    assert in_order(found) == in_order(in_sessions(gap, epochs))


@pytest.mark.parametrize("window", [gw.sliding("5 s", "1 s"), gw.session("2 s")], ids=str)
@FEWER
@given(epochs=epochs(), chance=st.randoms(use_true_random=False))
def test_the_order_of_arrival_and_the_number_of_workers_do_not_show(
    window: Any, epochs: Epochs, chance: Any
) -> None:
    mixed = [chance.sample(rows, len(rows)) for rows in epochs]
    assert in_order(played(window, epochs)) == in_order(played(window, mixed, workers=3))


@pytest.mark.parametrize("window", [gw.sliding("50 s", "10 s"), gw.session("9 s")], ids=str)
def test_what_closes_in_an_epoch_comes_in_the_order_of_its_end(window: Any) -> None:
    simulation = Simulation(job(window), workers=1)
    simulation.feed([record(key, at) for key in "abcdef" for at in (0, 1, 30, 31, 60)])
    simulation.finish()
    ends = [row["window_end"] for row in simulation.outputs()]
    assert ends == sorted(ends)
    assert len(set(ends)) > 2


def test_a_record_is_one_row_of_state_however_many_windows_it_is_in() -> None:
    simulation = Simulation(job(gw.sliding("1 hour", "1 second"), n=gw.count()))
    simulation.feed([record("a", 0.5), record("a", 0.7)])
    (pane,) = simulation.state("value")
    assert (pane["window_start"], pane["window_end"]) == (second(0), second(3600))
    assert pane["n"] == 2
    assert len(simulation.state("_closing")) == 1
    simulation.finish()
    assert [row["n"] for row in simulation.outputs()] == [2] * 3600


@pytest.mark.parametrize("window", [gw.sliding("20 s", "1 s"), gw.session("20 s")], ids=str)
def test_timers_do_not_pile_up(window: Any) -> None:
    """A key that never rests has few that wait, of those that began in as many epochs."""
    simulation = Simulation(job(window, n=gw.count()), workers=1)
    for epoch in range(30):
        simulation.feed([record("a", epoch), record("a", epoch + 1)])
    assert len(simulation.state("_closing")) <= DELAY + 3


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [gw.sliding("4 s", "2 s"), gw.session("2 s")], ids=str)
def test_an_aggregate_that_cannot_be_merged_is_refused(window: Any) -> None:
    with pytest.raises(ConfigError, match=r"'w': top = topthree\(n\): .* it has no merge; define"):
        job(window, n=gw.count(), top=TopThree("n"))
    job(gw.tumbling("2 s"), top=TopThree("n"))


@pytest.mark.parametrize("window", [gw.sliding("4 s", "2 s"), gw.session("2 s")], ids=str)
def test_an_aggregate_of_ones_own_with_a_merge_works(window: Any) -> None:
    simulation = Simulation(job(window, spread=variance("small")))
    simulation.feed([record("a", 0) | {"small": 3}, record("a", 1.5) | {"small": 5}])
    simulation.feed([record("a", 1) | {"small": 4}])
    simulation.finish()
    assert max(row["spread"] for row in simulation.outputs()) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": gw.session("1 s"), "delay": None}, "a window needs the column of the event"),
        ({"window": gw.session("1 s"), "ttl": "1 s"}, "a window ends by itself"),
        ({"window": gw.session("1 s"), "time": "n"}, "its event time 'n' is of type int64"),
        ({"window": gw.session(until="n")}, "column 'n' is int64; it must be timestamp"),
        ({"window": gw.session(until="k")}, "its column 'k' cannot be in the key"),
        ({"window": gw.session(until="gone")}, "until column 'gone' is not in the input"),
        ({"window": gw.counted(3)}, r"Counted\(records=3\) does not aggregate; give tumbling"),
        ({"window": "5 s"}, "'5 s' does not aggregate; give tumbling"),
        (
            {"window": gw.session("1 s"), "window_end": gw.count()},
            "'window_end' of state 'value' is also",
        ),
    ],
)
def test_refuses(options: Mapping[str, Any], message: str) -> None:
    ordinary: Row = {"key": "k", "time": "at", "delay": "1 s", "n": gw.count()}
    with pytest.raises(ConfigError, match=message):
        gw.stream(SCHEMA).aggregate("w", **{**ordinary, **options})


def test_a_session_does_not_read_columns_named_like_its_own_bounds() -> None:
    windows = gw.stream(SCHEMA).aggregate(
        "t", key="k", window=gw.tumbling("1 s"), time="at", delay="1 s", n=gw.count()
    )
    options: Any = {"key": "k", "window": gw.session("1 s"), "delay": "1 s"}
    with pytest.raises(ConfigError, match="'window_end' of its input has the name of a column of"):
        windows.aggregate("s", time="window_time", last=gw.max("window_end"), **options)
    windows.aggregate("s", time="window_time", last=gw.max("window_time"), **options)


@pytest.mark.parametrize("window", [gw.sliding("4 s", "2 s"), gw.session("2 s")], ids=str)
def test_a_sum_that_outgrows_its_type_in_a_merge_names_its_key(window: Any) -> None:
    simulation = Simulation(job(window, total=gw.sum("price")))
    large = {"price": Decimal(9 * 10**37)}
    simulation.feed([record("x", 0) | large, record("x", 2) | large])

    def bridge() -> None:
        simulation.feed([record("x", 1)])
        simulation.finish()

    with pytest.raises(OperatorError, match=r"(?s)k='x'.*total = sum\(price\) outgrew its type"):
        bridge()


@pytest.mark.parametrize("window", [gw.sliding("8 s", "2 s"), gw.session("5 s")], ids=str)
def test_a_function_that_is_added_merges_with_rows_of_before(window: Any) -> None:
    before = {"n": gw.count()}
    simulation = Simulation(job(window, **before))
    simulation.feed([record("a", 0, 1), record("a", 6, 3)])
    simulation.restart(job(window, **before, most=gw.max("n"), tail=gw.last("n")))
    simulation.feed([record("a", 4, 2)])
    simulation.finish()
    (whole,) = [row for row in simulation.outputs() if row["n"] == 3]
    assert (whole["most"], whole["tail"]) == (2, 2)


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (gw.session("2 s"), gw.session("3 s"), "its window was 'sessions with gaps of 2000000 us'"),
        (gw.tumbling("4 s"), gw.sliding("4 s", "2 s"), "its kind was 'windows', now 'panes'"),
        (gw.sliding("4 s", "2 s"), gw.tumbling("4 s"), "its kind was 'panes', now 'windows'"),
        (gw.sliding("4 s", "2 s"), gw.sliding("6 s", "2 s"), "its window was '4000000 us every"),
    ],
)
def test_a_checkpoint_of_other_windows_is_refused(before: Any, now: Any, message: str) -> None:
    simulation = Simulation(job(before))
    simulation.feed([record("a", 0)])
    with pytest.raises(IncompatibleError, match=message):
        simulation.restart(job(now))


def test_a_checkpoint_with_a_row_for_each_sliding_window_is_refused_with_the_next_step(
    tmp_path: Path,
) -> None:
    windows = SLIDING.operator
    assert isinstance(windows, Windowed)
    simulation = OperatorSimulation(tmp_path, windows, SLIDING.schema)
    simulation.feed([])
    functions = windows.of.functions
    panes = Panes.define(
        windows.name, KEY, functions, SLIDING.schema, windows.window, time="at", delay="1 s"
    )
    with pytest.raises(IncompatibleError, match=r"keeps panes\. Finish the query with that"):
        simulation.restart(operator=panes)


# -- merging ranges --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """Values that remember what they were merged from, in which order."""

    def __call__(self, which: Any, state: pa.Table, other: pa.Table) -> pa.Table:
        pairs = zip(state["v"].to_pylist(), other["v"].to_pylist(), strict=True)
        return pa.table({"v": pa.array([a + b for a, b in pairs], pa.string())})


@given(
    leaves=st.sets(st.tuples(st.integers(0, 2), st.integers(-9, 25)), min_size=1),
    spans=st.lists(st.tuples(st.integers(0, 2), st.integers(-12, 28), st.integers(1, 30))),
)
def test_ranges_are_merged_in_the_order_of_their_places(leaves: Any, spans: Any) -> None:
    rows = sorted(leaves)
    groups, places = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    texts = {row: chr(ord("A") + i) for i, row in enumerate(rows)}
    expected, ranges = [], []
    for group, low, length in spans:
        text = "".join(texts[row] for row in rows if row[0] == group and 0 <= row[1] - low < length)
        if text:
            expected.append(text)
            ranges.append((group, low, low + length))
    of, low, high = np.array(ranges, np.int64).reshape(-1, 3).T
    nodes = Nodes(groups, places, pa.table({"v": [texts[row] for row in rows]}))
    first, stop = (positions(groups, places, of, wanted) for wanted in (low, high))
    found = merge_ranges(nodes, Ranges(low, high, first, stop), Text())
    assert found["v"].to_pylist() == expected


@pytest.mark.parametrize("width", [1, 1 << 40, 1 << 61, (1 << 63) - 1])
def test_numbers_are_in_the_order_of_group_and_value_however_far_values_are_apart(
    width: int,
) -> None:
    groups = np.array([2, 0, 1, 0, 2])
    left, right = np.array([-width, width, 0, -1, 5]), np.array([0, -width, width, 1, -width])
    found = np.concatenate(codes(groups, left, right))
    pairs = list(zip([*groups, *groups], [*left, *right], strict=True))
    order = sorted(range(len(pairs)), key=lambda i: pairs[i])
    assert sorted(range(len(pairs)), key=lambda i: found[i]) == order
