"""Each key once, where the histories do not go."""

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import godwit as gw
from godwit.errors import ConfigError, IncompatibleError
from godwit.model.schema import parse
from godwit.operators import AggregateOperator
from godwit.operators.deduplicate import Deduplicate
from godwit.testing import Simulation
from tests.support.event_records import INPUT, record, second
from tests.support.operator_simulation import OperatorSimulation

Row = dict[str, Any]


def once(within: str | None = None, delay: str | None = "0 s") -> Deduplicate:
    return Deduplicate.of("d", "k", INPUT, time="at", within=within, delay=delay)


def simulation(path: Path, operator: Deduplicate) -> OperatorSimulation:
    return OperatorSimulation(path, operator, INPUT, workers=2, bins=16)


def given(sim: OperatorSimulation) -> list[tuple[str, float]]:
    zero = second(0)
    return [(row["k"], (row["at"] - zero).total_seconds()) for row in sim.outputs()]


def keys(sim: OperatorSimulation, table: str = "given") -> list[str]:
    return sorted(row["k"] for row in sim.state(table))


@pytest.mark.parametrize("turn", range(4))
def test_the_first_of_an_epoch_is_so_by_time_and_then_by_content(tmp_path: Path, turn: int) -> None:
    rows = [record("x", 2, 1), record("x", 1, 9), record("x", 1, 8), record("x", 3, 0)]
    sim = simulation(tmp_path, once(delay=None))
    sim.feed([*rows[turn:], *rows[:turn]])
    assert sim.outputs() == [record("x", 1, 8)]


def test_a_record_comes_out_with_all_its_columns() -> None:
    columns = (
        "id string, tags array<string>, place struct<x:double,y:array<int>>, more map<int,date>"
    )
    row = {"id": "a", "tags": ["t", None], "place": {"x": 0.5, "y": [1]}, "more": [(1, None)]}
    job = gw.stream(columns).deduplicate("d", key="id").to(gw.files("out"))
    sim = Simulation(job)
    sim.feed([row, row])
    sim.feed([row, {"id": None}])
    empty = dict.fromkeys(row)
    assert sim.outputs() == [row, empty]


def test_what_is_given_of_a_key_is_at_least_so_far_apart(tmp_path: Path) -> None:
    sim = simulation(tmp_path, once("10 s", "100 s"))
    sim.feed([record("x", at) for at in (0, 9, 10, 19.9, 25, 30, 34, 35)])
    assert given(sim) == [("x", 0), ("x", 10), ("x", 25), ("x", 35)]


def test_a_record_before_the_one_given_is_a_duplicate(tmp_path: Path) -> None:
    sim = simulation(tmp_path, once("10 s", "100 s"))
    sim.feed([record("x", 50)])
    sim.feed([record("x", 20), record("x", 59), record("x", 60)])
    assert given(sim) == [("x", 50), ("x", 60)]


def test_a_key_leaves_when_the_watermark_has_passed_its_horizon(tmp_path: Path) -> None:
    sim = simulation(tmp_path, once("10 s"))
    sim.feed([record("x", 0), record("y", 5)])
    sim.feed([record("z", 10)])
    assert keys(sim) == ["x", "y", "z"]
    sim.feed([])  # the watermark is now at 10
    assert keys(sim) == keys(sim, "_expiry") == ["y", "z"]
    sim.finish()
    assert keys(sim) == keys(sim, "_expiry") == []


@pytest.mark.parametrize("number", range(20))
def test_how_records_in_order_are_cut_into_epochs_does_not_matter(
    tmp_path: Path, number: int
) -> None:
    """So it cannot be seen when a key leaves the state."""
    chance = random.Random(number)
    rows = [record(chance.choice("xyz"), at * 0.5, at) for at in range(40)]
    expected: list[Row] = []
    last: dict[str, Any] = {}
    for row in rows:
        if row["k"] not in last or (row["at"] - last[row["k"]]).total_seconds() >= 2:
            last[row["k"]] = row["at"]
            expected.append(row)
    cuts = [0, *sorted(chance.sample(range(1, 40), number)), 40]
    sim = simulation(tmp_path, once("2 s"))
    for start, stop in pairwise(cuts):
        sim.feed(rows[start:stop])
    assert sorted(sim.outputs(), key=lambda row: row["n"]) == expected


@pytest.mark.parametrize(
    ("before", "after", "second_time", "again"),
    [("10 s", "3 s", 4, True), ("3 s", "10 s", 4, False)],
    ids=["shorter", "longer"],
)
def test_the_horizon_may_change(
    tmp_path: Path, before: str, after: str, second_time: float, again: bool
) -> None:
    sim = simulation(tmp_path, once(before, "2 s"))
    sim.feed([record("x", 0)])
    sim.restart(operator=once(after, "2 s"))
    sim.feed([record("x", second_time)])
    assert len(sim.outputs()) == 1 + again
    sim.feed([record("y", 100)])
    sim.feed([])
    assert keys(sim) == keys(sim, "_expiry") == ["y"]


def test_a_key_may_leave_before_a_timer_that_a_longer_horizon_has_set(tmp_path: Path) -> None:
    sim = simulation(tmp_path, once("10 s", "2 s"))
    sim.feed([record("x", 0)])
    sim.restart(operator=once("3 s", "2 s"))
    for rows in ([("y", 7)], [("x", 5), ("y", 11)], [("x", 6)]):
        sim.feed([record(*row) for row in rows])
    assert (keys(sim), keys(sim, "_expiry")) == (["y"], ["x", "y"])
    sim.feed([record("z", 100)])
    sim.feed([])
    assert keys(sim) == keys(sim, "_expiry") == ["z"]


def test_a_key_whose_horizon_has_passed_already_leaves_nothing(tmp_path: Path) -> None:
    sim = simulation(tmp_path, once("10 s"))
    sim.feed([record("z", 100)])
    sim.feed([record("y", 5)])  # not late: the epoch before had no watermark
    assert given(sim) == [("z", 100), ("y", 5)]
    assert keys(sim) == keys(sim, "_expiry") == ["z"]


def test_a_horizon_for_keys_that_stayed_for_good_is_refused(tmp_path: Path) -> None:
    sim = simulation(tmp_path, once())
    sim.feed([record("x", 0)])
    sim.restart(operator=once(delay=None))
    sim.feed([record("x", 1)])
    assert given(sim) == [("x", 0)]
    with pytest.raises(IncompatibleError, match="state '_expiry' was added"):
        sim.restart(operator=once("10 s"))
    with pytest.raises(IncompatibleError, match="its kind was 'deduplicate', now 'aggregate'"):
        sim.restart(operator=AggregateOperator.of("d", "k", {"n": gw.count()}, INPUT))


def test_it_takes_keys_that_are_known_from_elsewhere_and_hands_what_it_gives_on() -> None:
    stream = gw.stream("id string, n long").deduplicate("d", key=["id", "n"])
    sim = Simulation(stream.aggregate("sums", key="id", total=gw.sum("n")).to(gw.files("out")))
    sim.feed([{"id": "a", "n": 1}, {"id": "a", "n": 1}, {"id": "a", "n": 2}])
    sim.feed([{"id": "a", "n": 2}, {"id": "a", "n": 4}])
    assert [row["total"] for row in sim.outputs()] == [3, 7]


REFUSED: Sequence[tuple[dict[str, Any], str]] = [
    ({"key": "kk"}, "key column 'kk' is not in the input: k, at, n"),
    ({"key": "k", "time": "when"}, "time column 'when' is not in the input"),
    ({"key": "k", "within": "1 s"}, "`within` needs event time: give it time=... and delay=..."),
    ({"key": "k", "within": "1 s", "time": "at"}, "`within` needs event time"),
    ({"key": "k", "within": "1 s", "delay": "1 s"}, "it has a delay, but no time"),
    (
        {"key": "k", "within": "1 s", "time": "n", "delay": "1 s"},
        "its event time 'n' is of type int64, not a timestamp",
    ),
    (
        {"key": "k", "within": "0 s", "time": "at", "delay": "1 s"},
        "`within` must be longer than nothing, not '0 s'",
    ),
    ({"key": "k", "within": "soon", "time": "at", "delay": "1 s"}, "'soon' is no duration"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_cannot_work_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        gw.stream("k string, at timestamp, n long").deduplicate("d", **options)
    assert str(refused.value).startswith("operator 'd': ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("columns", "key", "message"),
    [
        ("given string, at timestamp", "given", "column 'given' of state 'given' is also a key"),
        ("_k string, at timestamp", "at", "column '_k' begins with an underscore"),
        ("k double, at timestamp", "k", "'k'"),
    ],
)
def test_columns_that_it_cannot_keep_are_refused_by_name(
    columns: str, key: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Deduplicate.of("d", key, parse(columns), time="at", within="1 s", delay="1 s")


def test_a_key_with_the_time_in_it_leaves_with_its_time(tmp_path: Path) -> None:
    operator = Deduplicate.of("d", ["k", "at"], INPUT, time="at", within="1 us", delay="5 s")
    sim = simulation(tmp_path, operator)
    sim.feed([record("x", 0), record("x", 0), record("x", 3)])
    sim.feed([record("x", 0), record("x", 3), record("x", 9)])
    assert given(sim) == [("x", 0), ("x", 3), ("x", 9)]
    sim.feed([])
    assert [row["at"] for row in sim.state("given")] == [second(9)]


def test_times_may_be_without_a_zone(tmp_path: Path) -> None:
    naive = pa.schema([("k", pa.string()), ("at", pa.timestamp("us"))])
    operator = Deduplicate.of("d", "k", naive, time="at", within="10 s", delay="0 s")
    sim = OperatorSimulation(tmp_path, operator, naive, workers=2, bins=16)
    for at in (0, 9, 10):
        sim.feed([{"k": "x", "at": second(at).replace(tzinfo=None)}])
    assert [row["at"] for row in sim.outputs()] == [
        second(at).replace(tzinfo=None) for at in (0, 10)
    ]
