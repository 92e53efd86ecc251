"""`godwit stop`, on a query that runs elsewhere: here a driver whose epochs the test runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from godwit.cli import main
from godwit.cli import requests as asking
from godwit.cli import stop as stopping
from godwit.cli.patience import Patience
from godwit.inspect.overview import Overview
from godwit.model.requests import StopRequest
from tests.support.command_line import Running
from tests.support.death import death_at
from tests.support.simulated import drive, publish, simulate, words


class Stoppable(Running):
    """It ends after the epoch that it was asked to let be the last."""

    def epoch(self) -> None:
        if self.driver.timelines.last_epoch is None:
            super().epoch()
            if self.driver.timelines.last_epoch is not None:
                self.driver.journal.end()


@pytest.fixture
def stoppable(tmp_path: Path) -> Stoppable:
    publish(driver := drive(tmp_path, workers=1, bins=4), 0)
    return Stoppable(tmp_path, driver)


def test_the_epoch_that_takes_the_request_in_is_the_last(
    stoppable: Stoppable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stoppable.command("stop", "--wait") == 0
    told = capsys.readouterr().err.splitlines()
    assert told[-2:] == ["request 1 was accepted", "driver 1 has ended"]
    assert stoppable.driver.timelines.last_epoch == stoppable.driver.published.epoch == 1
    assert main(["status", str(stoppable.checkpoint)]) == 0
    assert ": not running\n" in capsys.readouterr().out  # although its process goes on
    assert main(["stop", str(stoppable.checkpoint)]) == 0
    assert capsys.readouterr().err == (
        "the query is not running (driver 1 has ended): nothing to stop\n"
    )


def test_its_answers_for_scripts(stoppable: Stoppable, capsys: pytest.CaptureFixture[str]) -> None:
    assert stoppable.command("stop", "--timeout", "60", "--json") == 0
    answer, end = map(json.loads, capsys.readouterr().out.splitlines())
    assert (answer["answer"], end) == ("accepted", {"driver": 1, "ended": True})


def test_one_that_does_not_end_in_time_is_told(
    query: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query.command("stop", "--timeout", "0.5") == 3  # accepted or not: the rest of it is
    assert query.driver.timelines.last_epoch is not None
    query.driver.journal.end()
    assert query.command("stop", "--timeout", "0.5") == 0


def test_nobody_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(drive(tmp_path, workers=1, bins=4), 0)
    assert main(["stop", str(tmp_path)], Patience(answer=0.1)) == 3
    assert "request 1 is stored and waits" in capsys.readouterr().err
    driver = drive(tmp_path)  # the next start, for which it was not meant
    publish(driver, 1)
    assert driver.timelines.last_epoch is None
    assert not driver.demand.wants_epoch
    (refused,) = Overview.of(tmp_path).refused
    assert refused.kind == "stop"
    assert refused.reason == (
        "it was made for driver 1, which has ended; to stop driver 2, ask again"
    )


def test_a_wait_goes_on_although_the_answer_takes_longer_than_others(
    stoppable: Stoppable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An epoch may take minutes: the next one runs when the wait for the answer is over."""

    def ask(*arguments: Any, **options: Any) -> asking.Answer:
        answer = asking.ask(*arguments, **options)
        stoppable.epoch()
        return answer

    monkeypatch.setattr(stopping, "ask", ask)
    brief = Patience(answer=0.0)
    assert main(["stop", str(stoppable.checkpoint), "--wait"], brief) == 0
    assert stoppable.driver.timelines.last_epoch == 1
    told = capsys.readouterr().err.splitlines()
    assert told[-2:] == [
        "request 1 is stored and waits: no query has answered within 0 s",
        "driver 1 has ended",
    ]


@pytest.mark.parametrize("point", ["intent", "receipts", "manifest", "sink", "commit"])
def test_a_death_between_acceptance_and_stop_leaves_a_query_that_runs(
    tmp_path: Path, point: str
) -> None:
    sim = simulate(tmp_path)
    sim.feed(words("a", "b"))
    sim.driver.journal.requests.add(StopRequest(0, 1))
    with death_at(point, "after"):
        sim.feed(words("a"))
    assert sim.driver.timelines.last_epoch == (None if point == "intent" else 1)
    sim.restart()
    sim.resume()
    for _ in range(3):
        sim.feed(words("a"))
    assert sim.driver.timelines.last_epoch is None
    assert not sim.driver.demand.wants_epoch
    assert sorted((row["word"], row["rows"]) for row in sim.state()) == [("a", 5), ("b", 1)]


def test_a_request_that_only_a_replay_saw_is_taken_in_by_the_epoch_after_it(
    tmp_path: Path,
) -> None:
    sim = simulate(tmp_path)
    sim.feed(words("a"))
    with death_at("receipts", "before"):
        sim.feed(words("a"))
    sim.restart()
    sim.driver.journal.requests.add(StopRequest(0, 2))
    sim.resume()  # the replay, whose intent was written before
    assert sim.driver.timelines.last_epoch is None
    assert sim.driver.demand.wants_epoch
    sim.feed([])
    assert sim.driver.timelines.last_epoch == sim.committed == 2
