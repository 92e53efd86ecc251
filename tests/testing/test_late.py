"""Late records, and those without a time: which they are, and that they come to a sink once."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import godwit as gw
from godwit import faults
from godwit.errors import ConfigError
from godwit.inspect.audit import verify
from godwit.inspect.graph import GraphView
from godwit.log import History
from godwit.model.manifest import Manifest
from godwit.spark.dataflow import describe
from godwit.testing import Simulation

CLICKS = "user string, at timestamp, x long"
TIMED: dict[str, Any] = {"key": "user", "time": "at", "delay": "0 s"}
LATE = gw.files("late")
Row = dict[str, Any]


def at(second: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def click(second: float | None, x: int = 0, user: str = "ann") -> Row:
    return {"user": user, "at": None if second is None else at(second), "x": x}


def note(user: str, value: Any, state: Any) -> Iterator[tuple[Any, ...]]:
    yield user, value.x


def events(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    for event in events:
        yield event.key, event.value.x


def columns(records: Any, starts: Any, state: Any) -> tuple[Any, Any]:
    return None, records.select(["user", "x"])


def window(user: str, span: Any, records: Any) -> Iterator[tuple[Any, ...]]:
    yield user, len(records)


Step = Callable[..., gw.Stream]
STATE: dict[str, Any] = {"state": "n long", "output": "user string, x long"}
WINDOW: dict[str, Any] = {"function": window, "output": "user string, x long"}


def aggregate(stream: gw.Stream, **options: Any) -> gw.Stream:
    return stream.aggregate("op", n=gw.count(), **TIMED, **options)


def windows(window: Any) -> Step:
    return lambda s, **options: s.windows("op", window, **WINDOW, **TIMED, **options)


def aggregated(window: Any) -> Step:
    return lambda s, **options: aggregate(s, window=window, **options)


# Each is late for a record that is 20 seconds behind.
OPERATORS: dict[str, Step] = {
    "aggregate": aggregate,
    "ttl": lambda s, **options: aggregate(s, ttl="1 s", **options),
    "tumbling": aggregated(gw.tumbling("10 s")),
    "sliding": aggregated(gw.sliding("10 s", "2 s")),
    "session": aggregated(gw.session("10 s")),
    "windows, tumbling": windows(gw.tumbling("10 s")),
    "windows, sliding": windows(gw.sliding("10 s", "3 s")),
    "windows, session": windows(gw.session("10 s")),
    "deduplicate": lambda s, **options: s.deduplicate("op", **TIMED, **options),
    "state machine": lambda s, **o: s.state_machine("op", function=note, **STATE, **TIMED, **o),
    "vectorised": lambda s, **o: s.vectorised("op", function=columns, **STATE, **TIMED, **o),
    "unary": lambda s, **options: s.unary("op", function=events, **STATE, **TIMED, **options),
}


def newest(checkpoint: Path) -> Manifest:
    manifest = History(checkpoint).last()
    assert manifest is not None
    return manifest


def late_in(checkpoint: Path) -> int:
    return sum(one.late for one in newest(checkpoint).receipts["op"])


def after_100(job: gw.Job, checkpoint: Path) -> Simulation:
    """A simulation whose watermark is at 100 seconds."""
    simulation = Simulation(job, checkpoint)
    simulation.feed([click(100)])
    simulation.feed()
    return simulation


def die_in(simulation: Simulation, point: str, rows: Sequence[Row]) -> None:
    """Feed an epoch whose process dies behind a point of it."""

    def die(reached: str, side: faults.Side, epoch: int) -> None:
        if (reached, side) == (point, "after"):
            raise KeyboardInterrupt

    with patch.object(faults, "handler", die), pytest.raises(KeyboardInterrupt):
        simulation.feed(rows)


@pytest.mark.parametrize("step", OPERATORS.values(), ids=OPERATORS)
def test_late_records_and_those_without_a_time_come_as_they_were_given(
    step: Step, tmp_path: Path
) -> None:
    simulation = after_100(step(gw.stream(CLICKS), late=LATE).to(gw.files("out")), tmp_path)
    before = simulation.outputs()
    late = [click(80, 1), click(80, 1), click(79.5, 2, user="bob"), click(None, 3)]
    simulation.feed([*late, click(101, 4)])
    assert sorted(simulation.late(epoch=2), key=repr) == sorted(late, key=repr)
    assert simulation.late() == simulation.outputs(sink=1) == simulation.late("op")
    assert late_in(tmp_path) == len(late)
    simulation.feed([click(102)])
    assert simulation.late(epoch=3) == []
    assert simulation.outputs()[: len(before)] == before
    assert verify(tmp_path).findings == []


@pytest.mark.parametrize("step", OPERATORS.values(), ids=OPERATORS)
def test_without_a_sink_they_are_counted_and_leave_no_file(step: Step, tmp_path: Path) -> None:
    simulation = after_100(step(gw.stream(CLICKS)).to(gw.files("out")), tmp_path)
    simulation.feed([click(80), click(None), click(101)])
    assert late_in(tmp_path) == 2
    assert not list(tmp_path.rglob("*-late-*"))
    assert not newest(tmp_path).late
    with pytest.raises(ConfigError, match=r"'op' has no sink for late records; give it late="):
        simulation.late()


@pytest.mark.parametrize("step", [aggregated, windows])
def test_a_record_is_late_with_the_last_of_its_windows(step: Any, tmp_path: Path) -> None:
    """At 100 seconds the windows of 10 seconds that end at 100 have closed, and no later ones."""
    op = step(gw.sliding("10 s", "5 s"))
    simulation = after_100(op(gw.stream(CLICKS), late=LATE).to(gw.files("out")), tmp_path)
    simulation.feed([click(96), click(94.999), click(95), click(99.999)])
    assert simulation.late() == [click(94.999)]
    assert late_in(tmp_path) == 1


@pytest.mark.parametrize("step", [aggregated, windows])
def test_a_record_that_is_in_no_session_is_not_late_for_that(step: Any) -> None:
    op = step(gw.session(until="until"))
    visits = gw.stream("user string, at timestamp, until timestamp")
    simulation = Simulation(op(visits, late=LATE).to(gw.files("out")))
    visit = {"user": "ann", "at": at(1), "until": at(2)}
    rows = [visit, visit | {"until": at(1)}, visit | {"until": None}, visit | {"at": None}]
    simulation.feed(rows)
    simulation.finish()
    assert simulation.late() == rows[3:]
    assert len(simulation.outputs()) == 1


def test_only_workers_with_late_records_write_a_file(tmp_path: Path) -> None:
    job = aggregate(gw.stream(CLICKS), late=LATE).to(gw.files("out"))
    simulation = after_100(job, tmp_path)
    simulation.feed([click(1, user=name) for name in "aaaa"])
    (written,) = newest(tmp_path).late["op"]
    assert written.rows == 4
    assert written.name.startswith("outputs/op/e2-w")
    assert len(list(tmp_path.rglob("*-late-*"))) == 1


def test_what_windows_replace_comes_back(tmp_path: Path) -> None:
    """The results of windows, late for the next ones, have the columns that they came with."""
    minutes = gw.stream("user string, window_start timestamp, window_end timestamp, at timestamp")
    for step in (aggregated(gw.tumbling("10 s")), windows(gw.sliding("10 s", "5 s"))):
        simulation = Simulation(step(minutes, late=LATE).to(gw.files("out")))
        spans = {"window_start": at(3), "window_end": at(4)}
        rows = [{"user": "ann", **spans, "at": at(second)} for second in (100, 50)]
        simulation.feed(rows[:1])
        simulation.feed()
        simulation.feed(rows[1:])
        assert simulation.late() == rows[1:]


def test_of_two_inputs_a_column_says_the_side() -> None:
    left = gw.stream("user string, at timestamp, x long", name="left")
    right = gw.stream("user string, paid timestamp, x long, at string", name="right")
    joined = left.join(
        *("op", right),
        on="user",
        how="semi",
        within=("0 s", "5 s"),
        time=("at", "paid"),
        delay="0 s",
        late=LATE,
    )
    simulation = Simulation(joined.to(gw.files("out")))
    simulation.feed(left=[click(100)], right=[{"user": "ann", "paid": at(100)}])
    simulation.feed()
    simulation.feed(
        left=[click(90, 7), click(100)], right=[{"user": "bob", "paid": None, "x": 8, "at": "q"}]
    )
    none = {"left_x": None, "right_x": None, "right_at": None}
    assert sorted(simulation.late(), key=repr) == [
        {"side": "left", "user": "ann", "at": at(90), **none, "left_x": 7},
        {"side": "right", "user": "bob", "at": None, **none, "right_x": 8, "right_at": "q"},
    ]


def test_binary_keeps_the_late_records_of_both_inputs() -> None:
    left = gw.stream("user string, at timestamp, x long", name="left")
    right = gw.stream("user string, at timestamp, y long", name="right")
    both = left.binary("op", right, function=lambda events, _: [*events][:0], **TIMED, **STATE)
    with pytest.raises(ConfigError, match="'op' has no sink"):
        Simulation(both.to(gw.files("out"))).late()
    both = left.binary(
        "op", right, function=lambda events, _: [*events][:0], late=LATE, **TIMED, **STATE
    )
    simulation = Simulation(both.to(gw.files("out")))
    times = {"left": [click(100)], "right": [{"user": "ann", "at": at(100)}]}
    simulation.feed(**times)
    simulation.feed()
    simulation.feed(left=[click(3, 1)], right=[{"user": "ann", "at": at(2), "y": 2}])
    assert sorted(simulation.late(), key=repr) == [
        {"side": "left", "user": "ann", "at": at(3), "x": 1, "y": None},
        {"side": "right", "user": "ann", "at": at(2), "x": None, "y": 2},
    ]


def test_what_cannot_be_is_refused_when_it_is_described(tmp_path: Path) -> None:
    clicks = gw.stream(CLICKS)
    with pytest.raises(ConfigError, match=r"'op': without event time.*it time=\.\.\. and delay"):
        clicks.aggregate("op", key="user", n=gw.count(), late=LATE)
    with pytest.raises(ConfigError, match=r"'op': without event time.*it within"):
        clicks.join("op", clicks, on="user", late=LATE)
    with pytest.raises(ConfigError, match=r"'op': late= takes a sink, but Count\(.*is no sink"):
        clicks.aggregate("op", key="user", late=gw.count())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'op': column '_hash' begins with an underscore"):
        aggregate(gw.stream(f"{CLICKS}, _hash long"), late=LATE)
    sided = gw.stream("side string, at timestamp")
    within: dict[str, Any] = {"within": ("0 s", "1 s"), "time": "at", "delay": "0 s"}
    with pytest.raises(ConfigError, match=r"'op': .*'side'"):
        sided.join("op", sided, on="side", late=LATE, **within)
    one = aggregate(clicks, late=gw.files("same"))
    with pytest.raises(ConfigError, match=r"two streams end in files in .*same"):
        one.to(gw.files("same"))
    other = clicks.aggregate("other", n=gw.count(), **TIMED, late=gw.files("same"))
    with pytest.raises(ConfigError, match=r"two streams end in files in .*same"):
        gw.query(one.to(gw.console()), other.to(gw.console()))


def test_a_sink_of_late_records_may_come_and_go(tmp_path: Path) -> None:
    def job(**options: Any) -> gw.Job:
        return aggregate(gw.stream(CLICKS), **options).to(gw.files("out"))

    simulation = after_100(job(), tmp_path)
    simulation.restart(job(late=LATE))
    simulation.feed([click(1, 1)])
    simulation.restart(job())
    simulation.feed([click(1, 2)])
    simulation.restart(job(late=gw.console()))
    simulation.feed([click(1, 3)])
    assert simulation.late() == [click(1, 1), click(1, 3)]
    assert [row["n"] for row in simulation.outputs()] == [1]


def test_an_epoch_that_has_not_been_published_runs_with_the_sink_of_a_later_start(
    tmp_path: Path,
) -> None:
    def job(**options: Any) -> gw.Job:
        return aggregate(gw.stream(CLICKS), **options).to(gw.files("out"))

    simulation = after_100(job(), tmp_path)
    die_in(simulation, "delta", [click(1)])
    simulation.restart(job(late=LATE))
    simulation.resume()
    assert simulation.late() == [click(1)]


def test_a_death_between_publishing_and_delivery_loses_and_doubles_nothing(tmp_path: Path) -> None:
    simulation = after_100(aggregate(gw.stream(CLICKS), late=LATE).to(gw.files("out")), tmp_path)
    die_in(simulation, "manifest", [click(1, 5), click(None, 6)])
    assert simulation.late() == []
    simulation.restart()
    simulation.resume()
    assert sorted(simulation.late(), key=repr) == sorted([click(1, 5), click(None, 6)], key=repr)


def test_the_graph_tells_where_late_records_go(tmp_path: Path) -> None:
    after_100(aggregate(gw.stream(CLICKS), late=LATE).to(gw.files("out")), tmp_path)
    manifest = newest(tmp_path)
    assert manifest.graph is not None
    intent = History(tmp_path).intent(manifest.epoch)
    assert intent is not None
    view = GraphView(manifest.graph, manifest.operators, intent.routings, intent.watermarks)
    assert f"  late  {describe(LATE)}" in str(view).splitlines()
