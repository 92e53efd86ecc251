"""Kills in the middle of migrations, while notices of two inputs wait."""

import signal
import time
from pathlib import Path

import pytest

from godwit.log.history import History
from godwit.model.requests import Migrate
from tests.spark.kills import timed
from tests.spark.kills.conftest import Launch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

KILLS = (("receipts", "before"), ("sink", "before"))
STRATEGIES = ("fluid", "matched")  # each asked for before the start that makes a kill good


def test_kills_while_notices_wait_and_bins_move(launch: Launch, tmp_path: Path) -> None:
    files = 2 * len(KILLS) + 2
    source = timed.feed(tmp_path)
    for number in range(files):
        source.add(timed.batch(number))
    for number, (point, side) in enumerate(KILLS):
        epoch = 2 * number + 2
        with launch(tmp_path) as application:
            struck = application.arm(f"{point}-{side}-{epoch}", signal.SIGKILL, -application.pid)
            application.start(timed=True, workers=2 if number == 0 else None)
            assert application.wait() == -signal.SIGKILL
            assert struck.exists()
        ask_to_move(tmp_path, STRATEGIES[number], workers=3 - number % 2)
    with launch(tmp_path) as application:
        application.start(timed=True)
        assert application.wait() == 0
    history = History(tmp_path / "checkpoint")
    intents = [intent for epoch in history.intents() if (intent := history.intent(epoch))]
    routings = {tuple(intent.routings["pairs"].owners.tolist()) for intent in intents}
    assert len(routings) > len(KILLS)
    timed.check(tmp_path, files)


def ask_to_move(home: Path, strategy: str, workers: int) -> None:
    """Ask for a migration; the query answers when it runs again."""
    history = History(home / "checkpoint")
    intent = history.intent(max(history.intents()))
    assert intent is not None
    ((operator, routing),) = intent.routings.items()
    target = routing.spread(workers)
    request = Migrate(0, operator, routing, target, strategy, time.time(), supersede=True)
    history.control.add(request)
