"""`Stream.join`: what it is asked for, and what it refuses before anything starts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import godwit as gw
from godwit.errors import ConfigError, IncompatibleError
from godwit.operators.join import JoinOperator
from godwit.spark.initial_state import tables_of
from godwit.testing import Simulation

SHOWN = "ad long, at timestamp, price long"
CLICKS = "ad long, at timestamp, user string"
WITHIN: dict[str, Any] = {"within": ("0 s", "10 s"), "time": "at", "delay": "0 s"}


def at(second: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def job(left: str = SHOWN, right: str = CLICKS, **options: Any) -> gw.Job:
    given = {"on": "ad", **options}
    return gw.stream(left).join("seen", gw.stream(right), **given).to(gw.console())


def show(ad: int | None, second: float) -> dict[str, Any]:
    return {"ad": ad, "at": at(second), "price": 1}


def click(ad: int | None, second: float) -> dict[str, Any]:
    return {"ad": ad, "at": at(second), "user": "ann"}


def test_both_bounds_are_included() -> None:
    simulation = Simulation(job(**WITHIN))
    times = (-0.000001, 0, 10, 10.000001)
    simulation.feed(left=[show(1, 0)], right=[click(1, time) for time in times])
    assert [row["right_at"] for row in simulation.outputs()] == [at(0), at(10)]


def test_a_match_comes_out_in_the_epoch_of_its_second_record() -> None:
    simulation = Simulation(job(**WITHIN))
    simulation.feed(left=[show(1, 0)])
    simulation.feed(right=[click(1, 3)])
    simulation.feed(left=[show(1, 2)])
    assert [len(simulation.outputs(epoch)) for epoch in range(3)] == [0, 1, 1]


def test_a_row_comes_out_unmatched_as_soon_as_it_can_match_no_more() -> None:
    simulation = Simulation(job(how="left", **WITHIN))
    simulation.feed(left=[show(1, 0), show(None, 0)], right=[click(2, 10)])
    assert [row["ad"] for row in simulation.outputs(0)] == [None]  # a null is equal to nothing
    simulation.feed(left=[show(2, 10)], right=[click(2, 10.000001)])  # the watermark is 0
    simulation.feed(left=[show(2, 11)])  # 10: a click of that time could still come
    assert simulation.outputs(2) == []
    simulation.feed()  # a microsecond later
    assert [row["right_at"] for row in simulation.outputs(3) if row["ad"] == 1] == [None]
    assert [row["ad"] for row in simulation.state("left")] == [2, 2]


@pytest.mark.parametrize("start", [0, 6000 * 365 * 86_400])
def test_a_row_comes_out_unmatched_once_whatever_its_millennium(start: int) -> None:
    """In tables in the order of time, all moments from the year 6536 on share a place."""
    simulation = Simulation(job(how="left", **WITHIN))
    simulation.feed(left=[show(1, start), show(2, start + 60)], right=[click(2, start + 60)])
    for later in (65, 66, 67, 68):
        simulation.feed(left=[show(2, start + later)], right=[click(1, start + later)])
    shown = [row["left_at"] for row in simulation.outputs() if row["ad"] == 1]
    assert shown == [at(start)]
    assert len(simulation.state("_left_leaving")) == len(simulation.state("left")) == 5
    simulation.finish()
    assert len(simulation.outputs()) == 6


def test_the_input_that_is_behind_holds_the_state() -> None:
    simulation = Simulation(job(how="anti", **WITHIN))
    simulation.feed(left=[show(1, 0)])
    simulation.feed(left=[show(2, 1000)])
    simulation.feed()
    assert len(simulation.state("left")) == 2
    simulation.feed(right=[click(3, 500)])
    simulation.feed()
    assert [row["ad"] for row in simulation.state("left")] == [2]


def test_late_records_match_nothing() -> None:
    simulation = Simulation(job(**WITHIN))
    simulation.feed(left=[show(1, 100), show(2, 95)], right=[click(3, 100)])
    simulation.feed()  # the watermark is 100
    simulation.feed(left=[show(2, 99)], right=[click(2, 99), click(1, 100)])
    assert [row["ad"] for row in simulation.outputs()] == [1]


def test_equal_records_are_rows_of_their_own() -> None:
    simulation = Simulation(job(**WITHIN))
    simulation.feed(left=[show(1, 0), show(1, 0)])
    simulation.feed(left=[show(1, 0)], right=[click(1, 1), click(1, 1)])
    simulation.feed(right=[click(1, 1)])
    assert [len(simulation.outputs(epoch)) for epoch in range(3)] == [0, 6, 3]


def test_columns_are_the_key_then_those_of_each_side() -> None:
    simulation = Simulation(
        job("id long, at timestamp, x int", "k long, then timestamp, x int", on={"id": "k"})
    )
    simulation.feed(left=[{"id": 1, "x": 2}], right=[{"k": 1, "x": 3}])
    assert simulation.outputs() == [
        {"id": 1, "at": None, "left_x": 2, "then": None, "right_x": 3},
    ]


def test_a_key_may_be_called_like_the_column_of_a_side() -> None:
    simulation = Simulation(job("left_id long, x int", "left_id long, x int", on="left_id"))
    simulation.feed(left=[{"left_id": 1, "x": 2}], right=[{"left_id": 1, "x": 3}])
    assert simulation.outputs() == [{"left_id": 1, "left_x": 2, "right_x": 3}]


def test_the_state_of_a_join_cannot_be_given_at_the_start() -> None:
    join = job(**WITHIN)._flow.operators["seen"].step
    assert isinstance(join, JoinOperator)
    with pytest.raises(ConfigError, match="operator 'seen', a join, cannot be given at the start"):
        tables_of({"seen": {}}, [join])


def test_what_operators_put_out_is_joined() -> None:
    """Also with the stream that they are over."""
    shown = gw.stream(SHOWN)
    counts = shown.aggregate("counts", key="ad", n=gw.count())
    simulation = Simulation(shown.join("seen", counts, on="ad").to(gw.console()))
    simulation.feed([show(1, 0), show(2, 0), show(1, 1)])
    simulation.feed([show(2, 5)])
    found = [(row["ad"], row["n"]) for row in simulation.outputs()]
    assert sorted(found) == [(1, 2), (1, 2), (2, 1), (2, 1), (2, 2), (2, 2)]


def test_rows_that_have_waited_are_not_late_behind_it() -> None:
    """A row without a match comes out long after its time; windows behind the join have waited."""
    options = WITHIN | {"time": ("at", "clicked")}
    clicks = gw.stream("ad long, clicked timestamp, user string")
    joined = gw.stream(SHOWN).join("seen", clicks, on="ad", how="left", **options)
    counts = joined.aggregate(
        "counts", key="ad", window=gw.tumbling("5 s"), time="at", delay="0 s", n=gw.count()
    )
    simulation = Simulation(counts.to(gw.console()))
    for second in range(40):
        other = {"ad": 2, "clicked": at(second), "user": "ann"}
        simulation.feed(left=[show(1, second)], right=[other])
    simulation.finish()
    assert sum(row["n"] for row in simulation.outputs()) == 40


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_semi_and_anti_give_the_columns_of_the_left(how: Any) -> None:
    simulation = Simulation(job(how=how, **WITHIN))
    simulation.feed(left=[show(1, 0), show(2, 0)], right=[click(1, 0), click(1, 1)])
    simulation.finish()
    assert simulation.outputs() == [show(1 if how == "semi" else 2, 0)]


def test_without_bounds_a_semi_join_keeps_a_key_of_the_right_once() -> None:
    simulation = Simulation(job(how="semi"))
    for _ in range(3):
        simulation.feed(right=[click(1, 0), click(1, 1), click(2, 0)])
    assert len(simulation.state("right")) == 2
    simulation.feed(left=[show(1, 0)])
    assert simulation.state("left") == []
    assert len(simulation.outputs()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"how": "outer"},
            "there is no join 'outer'; there are inner, left, right, full, semi, ant",
        ),
        ({"how": "simi"}, "there is no join 'simi'; did you mean 'semi'?"),
        ({"how": "left"}, "without bounds no row of a join 'left' is ever known to be unmatched"),
        ({"time": "at"}, "time and delay go with within=..."),
        ({"within": ("0 s", "1 s"), "time": "at"}, "and delay=..., how far it may be behind"),
        ({"within": ("0 s", "1 s"), "delay": "0 s"}, "needs the column of the event time"),
        (WITHIN | {"within": ("5 s", "-5 s")}, "nothing is within '5 s' and '-5 s'; swap the boun"),
        (WITHIN | {"within": "5 s"}, "within=... takes two bounds"),
        (WITHIN | {"delay": "-5 s"}, "'-5 s' is negative, as only the bounds of a join may be"),
        (WITHIN | {"time": "price"}, "on the right, time column 'price' is not in the input"),
        (WITHIN | {"time": ("price", "user")}, "cast one of them"),
        (WITHIN | {"time": ("at", "at", "at")}, "time is a column, or one of the left and one of"),
        (WITHIN | {"time": "ad"}, "its time 'ad' cannot be in the key"),
        (
            WITHIN | {"time": ("price", "ad"), "on": "at"},
            "its event time 'price' is of type int64, not a timestamp",
        ),
        ({"on": "who"}, "on the left, key column 'who' is not in the input: ad, at, price"),
        ({"on": {"ad": "who"}}, "on the right, key column 'who' is not in the input: ad, at, user"),
        ({"on": []}, "a key needs at least one column"),
        ({"on": ["ad", "ad"]}, "key column 'ad' of the left is given twice"),
        ({"on": [("ad", "ad", "ad")]}, "a key is a column of both, or a pair of them"),
        (
            {"on": {"price": "user"}},
            "key column 'price' of the left is bigint and 'user' of the right is string; cast one "
            'of them, as in withColumn("user", col("user").cast("bigint"))',
        ),
        (
            {"on": {"ad": "user"}, "left": "ad string"},
            "column 'ad' of the right has the name of a key column of the left; rename it",
        ),
        ({"right": "ad long, left_at long, at timestamp"}, "columns 'left_at' and 'left_at'"),
        (
            WITHIN | {"right": "ad long, at timestamp, _time timestamp"},
            "column '_time' of the right has a name that Godwit uses itself; rename it",
        ),
        ({"on": "x", "left": "x double", "right": "x double"}, "key column 'x' is of type double"),
    ],
)
def test_a_join_that_cannot_be_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        job(**options)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("operator 'seen': ")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"how": "full"}, "how was inner, now full"),
        ({"within": ("0 s", "11 s")}, "within was 0 to 10000000 microseconds, now 0 to 11000000"),
    ],
)
def test_a_changed_join_does_not_go_on_with_the_state(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    simulation = Simulation(job(**WITHIN), tmp_path)
    simulation.feed(left=[show(1, 0)])
    with pytest.raises(IncompatibleError) as refusal:
        simulation.restart(job(**WITHIN | changed))
    assert message in str(refusal.value)


def test_another_delay_goes_on_with_the_state(tmp_path: Path) -> None:
    simulation = Simulation(job(**WITHIN), tmp_path)
    simulation.feed(left=[show(1, 0)])
    simulation.restart(job(**WITHIN | {"delay": "1 min"}))
    simulation.feed(right=[click(1, 1)])
    assert len(simulation.outputs()) == 1
