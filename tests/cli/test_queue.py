"""`godwit apply --queue` waits for its turn."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from threading import Semaphore
from typing import Any

import pytest

from godwit.cli import apply, main, watch
from godwit.cli import requests as asking
from godwit.cli.patience import Patience
from godwit.inspect.overview import Overview
from godwit.migration.strategies import batched
from godwit.model.routing import Routing
from tests.support.command_line import Running
from tests.support.simulated import publish

GODWIT = [sys.executable, "-c", "import sys; from godwit.cli import main; sys.exit(main())"]


class InStep(Running):
    """While a command stands in line, there is one epoch for each of its looks, and one for each
    request."""

    def __init__(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(running.checkpoint, running.driver)
        self._looks = Semaphore(0)
        self.in_line = True
        turn_of = apply.turn_of

        def looking(operator: str) -> Callable[[Overview], watch.Sight | str]:
            look = turn_of(operator)

            def counted(overview: Overview) -> watch.Sight | str:
                sight = look(overview)
                self.in_line = isinstance(sight, watch.Sight) and sight.code is None
                self._looks.release()
                return sight

            return counted

        monkeypatch.setattr(apply, "turn_of", looking)

    def epoch(self) -> None:
        while self.in_line and not Overview.of(self.checkpoint).waiting:
            if self._looks.acquire(timeout=0.05):
                break
        super().epoch()


@pytest.fixture
def in_step(query: Running, monkeypatch: pytest.MonkeyPatch) -> InStep:
    return InStep(query, monkeypatch)


def test_it_waits_for_the_open_migration_and_says_so(
    in_step: InStep, capsys: pytest.CaptureFixture[str]
) -> None:
    in_step.driver.requests.migrate("counts", Routing.even(16, 4), strategy=batched(4))
    publish(in_step.driver, 1)
    queued = ["apply", "--workers", "3", "--queue", "--watch", "--strategy", "all-at-once"]
    assert in_step.command(*queued) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "in line behind migration 1: 2 -> 4 workers, batched:4, moving, 4 of 12 bins" in lines[0]
    assert any(line.endswith("no migration of 'counts' is open") for line in lines)
    assert lines[-1].endswith("migration 2 is done")
    assert in_step.driver.routing("counts") == Routing.even(16, 4).spread(3)


def test_it_asks_at_once_if_nothing_is_open(
    query: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query.command("apply", "--workers", "3", "--queue", "--json") == 0
    first, answer = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["behind"] is None
    assert (answer["id"], answer["answer"]) == (1, "accepted")


def test_an_overtaken_one_waits_again(
    in_step: InStep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another migration gets in between its look and its request."""
    others = [Routing.even(16, 5)]

    def ask(*arguments: Any, **options: Any) -> asking.Answer:
        if others:
            in_step.in_line = True  # before: no epoch may pass without a look
            in_step.driver.requests.migrate("counts", others.pop(), strategy=batched(2))
        return asking.ask(*arguments, **options)

    monkeypatch.setattr(apply, "ask", ask)
    queued = ["apply", "--workers", "3", "--queue", "--watch", "--strategy", "all-at-once"]
    assert in_step.command(*queued) == 0
    told = capsys.readouterr().out
    assert "in line behind migration 1: 2 -> 5 workers, batched:2" in told
    assert in_step.driver.routing("counts").workers == 3
    (refused,) = Overview.of(in_step.checkpoint).refused
    assert refused.id == 2


def test_a_query_that_ends_meanwhile_is_told_and_nothing_was_asked(
    moving: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    moving.driver.journal.end()
    queued = ["apply", str(moving.checkpoint), "--workers", "3", "--queue"]
    assert main(queued, Patience(restart=0.0)) == 3
    first, second = capsys.readouterr().err.splitlines()
    assert first == "the query is not running (driver 1 has ended)"
    assert second.startswith("nothing was asked of the query")
    assert moving.driver.journal.requests.ids() == [1]


def test_it_cannot_both_wait_and_supersede(
    query: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["apply", str(query.checkpoint), "--workers", "3", "--queue", "--supersede"])
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["watch"], ["apply", "--workers", "3", "--queue"]])
def test_ctrl_c_leaves_no_request_and_no_traceback(moving: Running, command: list[str]) -> None:
    name, *rest = command
    waiting = subprocess.Popen(
        [*GODWIT, name, str(moving.checkpoint), *rest],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stdout is not None
    assert "migration 1: 2 -> 4 workers" in waiting.stdout.readline()  # so it waits
    os.kill(waiting.pid, signal.SIGINT)
    _, errors = waiting.communicate()
    assert (waiting.returncode, errors) == (130, "")
    assert moving.driver.journal.requests.ids() == [1]
