"""`unary`: events in the order of time, with notices, over epochs, migrations and restarts."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from godwit.errors import ConfigError, OperatorError
from godwit.migration.strategies import all_at_once
from godwit.model.routing import Routing
from godwit.operators.event_machine import EventMachine
from tests.support.event_records import INPUT, ZERO, record, second
from tests.support.operator_simulation import OperatorSimulation

OUTPUT = "kind string, at timestamp, k string, n long"


def echo(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    """Each record asks for a notice n seconds after it, unless n is 0."""
    for kind, time, key, value, state in events:
        state.seen = (state.seen or 0) + 1
        if kind == "record" and value.n:
            notify(key, time + timedelta(seconds=value.n), value.n)
        yield kind, time, key, value.n


def machine(function: Any = echo, **options: Any) -> EventMachine:
    given = {"time": "at", "delay": "0 s", "notices": "n long"} | options
    return EventMachine.of("m", "k", function, "seen long", OUTPUT, INPUT, **given)


def run(directory: Path, function: Any = echo, **options: Any) -> OperatorSimulation:
    return OperatorSimulation(directory, machine(function, **options), INPUT, workers=2, bins=16)


def seen(sim: OperatorSimulation, epoch: int) -> list[tuple[Any, ...]]:
    """The outputs of an epoch by time: kind, key and number."""
    rows = sorted(sim.sink[epoch], key=lambda row: (row["at"], row["kind"], row["k"]))
    return [(row["kind"], row["k"], (row["at"] - ZERO).total_seconds()) for row in rows]


def test_a_notice_comes_when_the_watermark_reaches_it(tmp_path: Path) -> None:
    sim = run(tmp_path)
    sim.feed([record("a", 1, n=5)])  # the watermark of the next epoch is 1
    sim.feed([record("b", 6)])
    assert seen(sim, 1) == [("record", "b", 6)]
    sim.feed([])  # an epoch of a tick: the watermark is 6
    assert seen(sim, 2) == [("notice", "a", 6)]
    sim.feed([record("b", 9)])
    sim.feed([])
    assert seen(sim, 4) == []


def test_a_delay_holds_the_watermark_back(tmp_path: Path) -> None:
    sim = run(tmp_path, delay="3 s")
    sim.feed([record("a", 1, n=5)])
    sim.feed([record("b", 8)])
    sim.feed([])
    assert seen(sim, 2) == []
    sim.feed([record("b", 9)])
    sim.feed([])
    assert seen(sim, 4) == [("notice", "a", 6)]


def test_a_record_is_late_when_the_watermark_of_the_epoch_before_has_passed_it(
    tmp_path: Path,
) -> None:
    sim = run(tmp_path)
    sim.feed([record("a", 10)])
    sim.feed([record("a", 3), record("b", 10)])  # the watermark before was not known yet
    assert seen(sim, 1) == [("record", "a", 3), ("record", "b", 10)]
    sim.feed([record("a", 9), record("b", 10), record("c", 11)])
    assert seen(sim, 2) == [("record", "b", 10), ("record", "c", 11)]
    manifest = sim.driver.published.manifest
    assert manifest is not None
    assert sum(one.late for one in manifest.receipts["m"]) == 1


def test_a_record_without_a_time_is_late(tmp_path: Path) -> None:
    sim = run(tmp_path)
    sim.feed([{"k": "a", "at": None, "n": 1}, record("a", 1)])
    assert seen(sim, 0) == [("record", "a", 1)]


def test_records_come_in_the_order_of_time_then_key_then_content(tmp_path: Path) -> None:
    order: list[Any] = []

    def note(events: Any, notify: Any) -> None:
        order.append([(event.time, event.value.n) for event in events])

    sim = run(tmp_path, note)
    sim.feed([record("a", at, n=n) for at, n in ((3, 1), (1, 9), (2, 5), (1, 2))])
    (given,) = [one for one in order if one]
    assert given == [(second(1), 2), (second(1), 9), (second(2), 5), (second(3), 1)]


def test_a_notice_for_a_time_that_has_passed_comes_in_the_same_epoch(tmp_path: Path) -> None:
    def chain(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
        for kind, time, key, value, _ in events:
            yield kind, time, key, value.n
            if value.n:
                notify(key, time + timedelta(seconds=1), value.n - 1)

    sim = run(tmp_path, chain)
    sim.feed([record("z", 100)])
    sim.feed([record("a", 1, n=3), record("a", 2)])
    expected = [("record", 1), ("record", 2), ("notice", 2), ("notice", 3), ("notice", 4)]
    found = [(row["kind"], (row["at"] - ZERO).total_seconds()) for row in sim.sink[1]]
    assert found == expected


def test_strict_holds_records_until_the_watermark_has_passed_them(tmp_path: Path) -> None:
    sim = run(tmp_path, strict=True)
    sim.feed([record("a", 5, n=1), record("a", 2)])
    assert sim.sink[0] == []
    sim.feed([record("a", 3), record("a", 5)])  # the watermark is 5
    assert [(row["kind"], row["at"]) for row in sim.sink[1]] == [
        ("record", second(2)),
        ("record", second(3)),
    ]
    sim.feed([record("b", 20)])
    sim.feed([])
    mine = [(row["kind"], row["at"]) for row in sim.sink[3]]
    assert mine == [("record", second(5)), ("record", second(5)), ("notice", second(6))]
    assert len(sim.state("_held")) == 1
    sim.finish()
    assert [(row["kind"], row["k"]) for row in sim.sink[4]] == [("record", "b")]
    assert sim.state("_held") == []


def test_in_strict_order_the_notices_for_a_time_come_before_its_records(tmp_path: Path) -> None:
    sim = run(tmp_path, strict=True)
    sim.feed([record("a", 1, n=4), record("a", 5), record("a", 4), record("b", 9)])
    sim.finish()
    mine = [(row["kind"], row["at"]) for row in sim.sink[1] if row["k"] == "a"]
    assert mine == [
        ("record", second(1)),
        ("record", second(4)),
        ("notice", second(5)),
        ("record", second(5)),
    ]


def test_notices_follow_their_bin_and_survive_restarts(tmp_path: Path) -> None:
    sim = run(tmp_path)
    keys = [f"k{i}" for i in range(50)]
    sim.feed([record(key, 1, n=10 + i % 3) for i, key in enumerate(keys)])
    sim.migrate(Routing.even(16, 5), strategy=all_at_once())
    sim.feed([record("k0", 2)])
    assert {row["_worker"] for row in sim.state("_notices")} == set(range(5))
    sim.restart(workers=3)
    sim.feed([record("k1", 12)])
    sim.feed([])
    assert sorted(row["k"] for row in sim.sink[3]) == sorted(
        key for i, key in enumerate(keys) if i % 3 < 2
    )
    assert len(sim.state("_notices")) == len(keys) - len(sim.sink[3])
    sim.finish()
    assert len(sim.sink[3]) + len(sim.sink[4]) == len(keys)


def test_finish_lets_all_notices_come_and_what_follows_is_late(tmp_path: Path) -> None:
    sim = run(tmp_path)
    sim.feed([record("a", 1, n=10_000), record("b", 1, n=50_000_000)])
    sim.finish()
    assert [kind for kind, _, _ in seen(sim, 1)] == ["notice", "notice"]
    sim.restart()
    sim.feed([record("a", 10**8)])
    assert seen(sim, 2) == []


def test_a_function_must_take_all_events(tmp_path: Path) -> None:
    def first(events: Any, notify: Any) -> None:
        next(events)

    sim = run(tmp_path, first)
    with pytest.raises(OperatorError, match="must take all events"):
        sim.feed([record("a", 1), record("a", 2)])


def test_an_error_names_the_key_of_the_event(tmp_path: Path) -> None:
    def fail(events: Any, notify: Any) -> None:
        for event in events:
            if event.value.n:
                raise LookupError("no such thing")

    sim = run(tmp_path, fail)
    with pytest.raises(OperatorError, match=r"(?s)'b'.*no such thing"):
        sim.feed([record("b", 2, n=1), record("a", 1)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("q", second(9), 1), "not the key of an event"),
        (("a", "soon", 1), "is no time like those of column 'at'"),
        (("a", datetime(2020, 1, 1), 1), "is no time like those of column 'at'"),
        (("a", second(9)), "a notice takes a key, a time and n"),
        (("a", second(9), "x"), "notice: column 'n'"),
    ],
)
def test_a_wrong_notice_fails_the_epoch(
    tmp_path: Path, arguments: tuple[Any, ...], message: str
) -> None:
    def wrong(events: Any, notify: Any) -> None:
        for _ in events:
            notify(*arguments)

    sim = run(tmp_path, wrong)
    with pytest.raises(OperatorError, match=message):
        sim.feed([record("a", 1)])


def test_notices_must_be_declared(tmp_path: Path) -> None:
    sim = run(tmp_path, notices=None)
    with pytest.raises(OperatorError, match="give the operator notices="):
        sim.feed([record("a", 1, n=1)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "n"}, "its event time 'n' is of type int64, not a timestamp"),
        ({"time": "nothing"}, "time column 'nothing' is not in the input"),
        ({"delay": "soon"}, "'soon' is no duration"),
        ({"notices": "k string"}, "column 'k' of state '_notices' is also a key column"),
    ],
)
def test_a_wrong_definition_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        machine(**options)


def test_columns_that_are_never_null(tmp_path: Path) -> None:
    solid = pa.schema([field.with_nullable(False) for field in INPUT])
    options: dict[str, Any] = {"time": "at", "delay": "0 s", "notices": "n long", "strict": True}
    operator = EventMachine.of("m", "k", echo, "seen long", OUTPUT, solid, **options)
    sim = OperatorSimulation(tmp_path, operator, solid, workers=3, bins=16)
    sim.feed([record("a", 1, n=2)])
    sim.feed([record("b", 9)])
    sim.feed([])
    sim.finish()
    kinds = [kind for epoch in range(4) for kind, key, _ in seen(sim, epoch) if key == "a"]
    assert kinds == ["record", "notice"]


def test_a_notice_that_is_due_needs_a_function_that_still_listens(tmp_path: Path) -> None:
    def hoard(events: Any, notify: Any) -> None:
        for event in list(events):
            notify(event.key, event.time, 0)

    sim = run(tmp_path, hoard)
    sim.feed([record("z", 9)])
    with pytest.raises(OperatorError, match="notify while you iterate over them"):
        sim.feed([record("a", 1)])


def test_many_records_of_a_key_may_ask_for_notices_at_the_end(tmp_path: Path) -> None:
    """Each asks for one, which is due at once: there are many, but no chain of them."""
    sim = run(tmp_path, again, strict=True)
    sim.feed([record("a", 1, n) for n in range(10_001)])
    sim.finish()
    assert len(sim.sink[1]) == 2 * 10_001


def again(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    for kind, time, key, _, _ in events:
        yield kind, time, key, 0
        if kind != "notice":
            notify(key, time + timedelta(seconds=1), 0)


def test_notices_for_the_same_moment_without_an_end_are_refused(tmp_path: Path) -> None:
    def stuck(events: Any, notify: Any) -> None:
        for kind, time, key, value, _ in events:
            notify(key, time if kind == "record" else second(8 - value.n), 1 - value.n)

    sim = run(tmp_path, stuck)
    sim.feed([record("z", 9)])
    with pytest.raises(OperatorError, match="none for a later time than its own"):
        sim.feed([record("z", 8)])


def test_notices_that_multiply_are_refused_when_the_stream_has_ended(tmp_path: Path) -> None:
    def twice(events: Any, notify: Any) -> None:
        for event in events:
            for _ in range(2):
                notify(event.key, event.time + timedelta(seconds=1), 0)

    sim = run(tmp_path, twice)
    sim.feed([record("a", 1)])
    with pytest.raises(OperatorError, match=r"ask for none when notify\.ended"):
        sim.finish()


def test_a_notice_may_come_often_when_time_has_jumped(tmp_path: Path) -> None:
    def tick(events: Any, notify: Any) -> None:
        for _, time, key, _, state in events:
            state.seen = (state.seen or 0) + 1
            if time < second(12_000):
                notify(key, time + timedelta(seconds=1), 0)

    sim = run(tmp_path, tick)
    sim.feed([record("a", 0), record("z", 20_000)])
    sim.feed([record("z", 20_000)])
    assert next(row["seen"] for row in sim.state() if row["k"] == "a") == 12_001


def test_notices_without_an_end_end_with_the_stream(tmp_path: Path) -> None:
    def beat(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
        for kind, time, key, _, state in events:
            state.seen = (state.seen or 0) + 1
            if careful and notify.ended:
                yield kind, time, key, state.seen
            else:
                notify(key, time + timedelta(seconds=1), 0)

    careful = False
    sim = run(tmp_path, beat)
    sim.feed([record("a", 1)])
    with pytest.raises(OperatorError, match=r"ask for none when notify\.ended"):
        sim.finish()
    careful = True
    sim.restart()
    sim.resume()
    assert [row["n"] for row in sim.sink[1]] == [2]
