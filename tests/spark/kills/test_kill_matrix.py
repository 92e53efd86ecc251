"""An application that is killed at any point of an epoch goes on as if nothing had happened.

One query is killed again and again: each test starts it, which makes good the kill of the test
before, lets it come to its own point in a later epoch, and compares all that is there with a model.
In each of these epochs bins of both operators move, from 2 workers to 3 or back, by one strategy
after the other.
"""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from godwit.faults import POINTS
from godwit.inspect.overview import Overview
from godwit.log.history import History
from godwit.log.spark_log import newest_commit
from godwit.model.requests import MigrateRequest
from godwit.storage.local import LocalStore
from tests.support.kills import bank
from tests.support.kills.running import Launch
from tests.support.kills.truth import check, expected, first_seen

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SIDES = ("before", "after")
MATRIX = [(point, side) for point in POINTS for side in SIDES]
PUBLISHED = MATRIX[MATRIX.index(("manifest", "after")) :]  # points at which the epoch is published
DELIVERED = MATRIX[MATRIX.index(("sink", "after")) :]
COMMITTED = MATRIX[MATRIX.index(("commit", "after")) :]
STRATEGIES = ("batched:256", "all-at-once", "paced", "fluid", "matched")
IN_WORKERS = [(point, side) for point in ("delta", "outputs") for side in SIDES]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, launch: Launch) -> Iterator[Path]:
    """Where the query lives that is killed by one test after the other, and then comes to its
    end."""
    home = tmp_path_factory.mktemp("killed query")
    bank.write_input(home, range(len(MATRIX) + 3))
    yield home
    files = len(list((home / "input").iterdir()))
    with launch(home) as application:
        application.start(workers=3)
        assert application.wait() == 0
    check(home, published=files - 1, delivered=files - 1)
    told = json.loads((home / "state.json").read_text())
    assert {table: [tuple(row) for row in rows] for table, rows in told.items()} == expected(
        files - 1, -1
    ).state


def next_epoch(home: Path) -> int:
    """The first epoch that has not begun."""
    return max(History(home / "checkpoint").intents(), default=-1) + 1


def ask_to_move(home: Path, epoch: int) -> None:
    """Ask for migrations that take effect in `epoch`; the query answers when it runs again."""
    checkpoint, workers = home / "checkpoint", 3 - epoch % 2
    for operator in Overview.of(checkpoint).operators.values():
        History(checkpoint).requests.add(
            MigrateRequest(
                id=0,
                operator=operator.name,
                origin=operator.routing,
                target=operator.routing.spread(workers),
                strategy=STRATEGIES[epoch % len(STRATEGIES)],
                time=time.time(),
                supersede=True,
            )
        )


def assert_moving(home: Path, epoch: int) -> None:
    before, after = (History(home / "checkpoint").intent(e) for e in (epoch - 1, epoch))
    assert before is not None
    assert after is not None
    for operator, routing in after.routings.items():
        assert routing != before.routings[operator]


@pytest.mark.parametrize(("point", "side"), MATRIX)
def test_kill(launch: Launch, home: Path, point: str, side: str) -> None:
    epoch = next_epoch(home)
    if epoch > 1:
        ask_to_move(home, epoch)
    with launch(home) as application:
        struck = application.arm(f"{point}-{side}-{epoch}", signal.SIGKILL, -application.pid)
        application.start()
        assert application.wait() == -signal.SIGKILL
        assert struck.exists()
    here = (point, side)
    if epoch > 1 and here != ("intent", "before"):
        assert_moving(home, epoch)
    check(
        home,
        published=epoch if here in PUBLISHED else epoch - 1,
        delivered=epoch if here in DELIVERED else epoch - 1,
    )
    committed = epoch if here in COMMITTED else epoch - 1
    log = LocalStore(home / "checkpoint" / "spark")
    assert newest_commit(log) == (committed if committed >= 0 else None)


def test_kill_in_the_second_operator(launch: Launch, home: Path) -> None:
    epoch = next_epoch(home)
    with launch(home) as application:
        struck = application.arm(
            f"function-before-{first_seen(epoch)}", signal.SIGKILL, -application.pid
        )
        application.start()
        assert application.wait() == -signal.SIGKILL
        assert struck.exists()
    check(home, published=epoch - 1, delivered=epoch - 1)


def test_killed_workers_are_replaced(launch: Launch, tmp_path: Path) -> None:
    """Spark runs the task of a dead Python worker again, in another one; twice in an epoch."""
    epochs = len(IN_WORKERS) // 2 + 2
    bank.write_input(tmp_path, range(epochs))
    faults = [f"{point}-{side}-{number // 2}" for number, (point, side) in enumerate(IN_WORKERS)]
    with launch(tmp_path) as application:
        struck = [
            application.arm(fault, signal.SIGKILL)
            for fault in (*faults, f"function-before-{first_seen(epochs - 2)}")
        ]
        application.start()
        assert application.wait() == 0
        assert all(fault.exists() for fault in struck)
    check(tmp_path, published=epochs - 1, delivered=epochs - 1)
