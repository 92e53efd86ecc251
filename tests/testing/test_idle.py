"""Sources that are idle hold nobody's watermark, as a user meets it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import godwit as gw
from godwit.errors import ConfigError
from godwit.inspect.graph import GraphView
from godwit.log import History
from godwit.log.layout import TICKS
from godwit.testing import Simulation

ROWS = "user string, at timestamp"
TIMED: dict[str, Any] = {"time": "at", "delay": "0 s"}


def row(second: int) -> dict[str, Any]:
    return {"user": "ann", "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)}


def job(idle_after: str | None = "1 minute", **options: Any) -> gw.Job:
    """Clicks that have no payment within a second."""
    clicks = gw.stream(ROWS, name="clicks")
    payments = gw.stream(ROWS, name="payments", idle_after=idle_after)
    within = ("0 s", "1 s")
    unpaid = clicks.join(
        "unpaid", payments, on="user", how="anti", within=within, **TIMED, **options
    )
    return unpaid.to(gw.files("unpaid"))


class Clock:
    """What a test says that it is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_an_idle_source_held_back_comes_and_its_records_are_late(clock: Clock) -> None:
    simulation = Simulation(job(late=gw.files("late")), clock=clock)
    simulation.feed(clicks=[row(0)], payments=[row(0)])
    simulation.feed(clicks=[row(10)])
    clock.now += 60
    simulation.feed(clicks=[row(20)])  # this epoch shows that no payment came
    assert simulation.outputs() == []
    simulation.feed()
    assert simulation.outputs() == [row(10)]
    simulation.feed(payments=[row(11)])
    assert [(late["side"], late["at"]) for late in simulation.late()] == [("right", row(11)["at"])]
    simulation.feed(clicks=[row(30)])
    simulation.feed()
    assert simulation.outputs() == [row(10)]  # payments are back
    simulation.feed(payments=[row(29)])
    simulation.feed()
    assert simulation.outputs() == [row(10), row(20)]


@pytest.mark.parametrize("ending", ["the end", "its records", "silence"])
def test_a_window_of_an_idle_source_closes_before_those_behind_it_move_on(
    clock: Clock, ending: str
) -> None:
    """It waits for the clock of its own source; a join behind it goes on with another one."""
    clicks = gw.stream(ROWS, name="clicks", idle_after="1 minute")
    minute = gw.tumbling("1 minute")
    minutes = clicks.aggregate("minutes", key="user", window=minute, n=gw.count(), **TIMED)
    days = gw.stream(ROWS, name="days", idle_after="1 minute" if ending == "silence" else None)
    within, time = ("-1 hour", "0 s"), ("window_time", "at")
    joined = minutes.join(
        "j", days, on="user", how="left", within=within, time=time, delay="0 s", late=gw.files("l")
    )
    simulation = Simulation(joined.to(gw.files("joined")), clock=clock)
    simulation.feed(clicks=[row(1), row(2)], days=[row(0)])
    if ending == "silence":
        simulation.feed(days=[row(7200)])
    clock.now += 60
    simulation.feed(days=[] if ending == "silence" else [row(7200)])
    simulation.feed()
    assert [(one["n"], one["at"]) for one in simulation.outputs()] == [(2, row(0)["at"])]
    if ending == "its records":
        simulation.feed(clicks=[row(3), row(7300)])
    simulation.finish()
    assert [one["n"] for one in simulation.outputs()] == [2] + [1] * (ending == "its records")
    assert simulation.late() == []


def test_without_idle_after_a_silent_source_holds_the_watermark_for_ever(clock: Clock) -> None:
    simulation = Simulation(job(None), clock=clock)
    simulation.feed(clicks=[row(0)], payments=[row(0)])
    for second in (10, 20, 30):
        clock.now += 1e6
        simulation.feed(clicks=[row(second)])
    assert simulation.outputs() == []


def test_a_replay_obeys_what_was_decided(clock: Clock, tmp_path: Path) -> None:
    """The epoch was decided while payments were idle, and runs again where nobody knows that."""
    simulation = Simulation(job(), tmp_path, clock=clock)
    simulation.feed(clicks=[row(0)], payments=[row(0)])
    clock.now += 60
    simulation.feed(clicks=[row(5), row(10)])
    died = simulation._driver.begin  # the epoch is decided, and nothing more of it happens
    died(2, "simulation", "2")  # type: ignore[arg-type]
    simulation.restart()
    simulation.feed()
    assert simulation.outputs() == [row(5)]
    intent = History(tmp_path).intent(2)
    assert intent is not None
    assert intent.watermarks == {"unpaid": row(10)["at"].timestamp() * 1e6}


def test_an_epoch_is_asked_for_when_a_source_has_been_silent_for_long_enough(
    clock: Clock, tmp_path: Path
) -> None:
    simulation = Simulation(job(), tmp_path, clock=clock)
    demand = simulation._driver.demand
    assert not demand.awaits_silence
    simulation.feed(clicks=[row(0)], payments=[row(0)])
    simulation.feed(clicks=[row(5), row(10)])
    simulation.feed()
    assert demand.awaits_silence
    assert not demand.wants_epoch
    clock.now += 60
    assert demand.wants_epoch
    simulation.feed()  # shows that nothing came
    assert demand.wants_epoch
    simulation.feed()
    assert simulation.outputs() == [row(5)]
    clock.now += 1e6
    assert not demand.wants_epoch  # clicks may not be idle


def test_a_restart_asks_for_an_epoch_while_rows_wait_for_silence(
    clock: Clock, tmp_path: Path
) -> None:
    """It counts anew, from the first epoch that it runs: nobody else would ask for that one."""
    simulation = Simulation(job(), tmp_path, clock=clock)
    simulation.feed(clicks=[row(10)], payments=[row(0)])
    simulation.feed()
    simulation._driver.demand.sweep_ticks()
    ticks = History(tmp_path).files.names(TICKS)
    simulation.restart(job(None))
    assert History(tmp_path).files.names(TICKS) == ticks
    simulation.restart(job())
    assert len(History(tmp_path).files.names(TICKS)) == len(ticks) + 1


def test_the_graph_tells_which_source_may_be_idle(tmp_path: Path) -> None:
    simulation = Simulation(job(), tmp_path)
    simulation.feed()
    manifest = History(tmp_path).last()
    assert manifest is not None
    assert manifest.graph is not None
    view = GraphView(manifest.graph, manifest.operators, {"unpaid": gw.Routing.even(64, 2)}, {})
    assert "  right source payments (idle after 1 minute)" in str(view).splitlines()
    assert "  left  source clicks" in str(view).splitlines()


def test_what_is_no_duration_is_refused() -> None:
    for wrong, message in (("soon", "'soon' is no duration"), ("0 s", "longer than nothing")):
        with pytest.raises(ConfigError, match=message):
            gw.stream(ROWS, idle_after=wrong)
