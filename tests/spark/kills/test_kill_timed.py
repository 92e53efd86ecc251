"""Kills in the middle of migrations, while notices of two inputs wait."""

import signal
import time
from pathlib import Path

import pytest

from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.model.requests import MigrateRequest
from tests.support.kills import timed
from tests.support.kills.running import Launch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FILES = 8


def test_kills_while_notices_wait_and_bins_move(launch: Launch, tmp_path: Path) -> None:
    source = timed.feed(tmp_path)
    for number in range(FILES):
        source.add(timed.batch(number))
    with launch(tmp_path) as application:
        application.arm("receipts-before-1", signal.SIGKILL, -application.pid)
        application.start(timed=True, workers=2)
        assert application.wait() == -signal.SIGKILL
    ask_to_move(tmp_path, "fluid", workers=4)
    with launch(tmp_path) as application:
        application.arm("sink-before-3", signal.SIGKILL, -application.pid)
        application.start(timed=True)
        assert application.wait() == -signal.SIGKILL
    assert_open(tmp_path, 3)
    with launch(tmp_path) as application:
        application.arm("commit-before-4", signal.SIGSTOP, -application.pid)
        application.start(timed=True)
        application.wait_until_stopped()
        # Of a query that runs: one that starts has fetched nothing, so all bins would move at once.
        ask_to_move(tmp_path, "paced:0ms", workers=2)
        application.arm("receipts-before-5", signal.SIGKILL, -application.pid)
        application.signal(signal.SIGCONT)
        assert application.wait() == -signal.SIGKILL
    assert_open(tmp_path, 5)
    with launch(tmp_path) as application:
        application.start(timed=True)
        assert application.wait() == 0
    history = History(tmp_path / "checkpoint")
    intents = [intent for epoch in history.intents() if (intent := history.intent(epoch))]
    routings = {tuple(intent.routings["pairs"].owners.tolist()) for intent in intents}
    assert len(routings) > 3
    timed.check(tmp_path, FILES)


def assert_open(home: Path, epoch: int) -> None:
    """The newest epoch that has begun is this one, and in the midst of a migration."""
    intent = newest_intent(home)
    assert intent.epoch == epoch
    assert intent.migrations["pairs"].open


def newest_intent(home: Path) -> Intent:
    history = History(home / "checkpoint")
    intent = history.intent(max(history.intents()))
    assert intent is not None
    return intent


def ask_to_move(home: Path, strategy: str, workers: int) -> None:
    """Ask for a migration; the query answers when it runs again."""
    ((operator, routing),) = newest_intent(home).routings.items()
    target = routing.spread(workers)
    request = MigrateRequest(0, operator, routing, target, strategy, time.time(), supersede=True)
    History(home / "checkpoint").requests.add(request)
