"""An application that is killed at any point of an epoch goes on as if nothing had happened.

One query is killed again and again: each test starts it, which makes good the kill of the test
before, lets it come to its own point in a later epoch, and compares all that is there with a model.
"""

import json
import signal
from pathlib import Path

import pytest

from godwit.faults import POINTS
from godwit.log.history import History
from godwit.log.spark_log import newest_commit
from tests.spark.kills import bank
from tests.spark.kills.conftest import Launch
from tests.spark.kills.truth import check, expected, first_seen

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SIDES = ("before", "after")
MATRIX = [(point, side) for point in POINTS for side in SIDES]
PUBLISHED = MATRIX[MATRIX.index(("manifest", "after")) :]  # points at which the epoch is published
DELIVERED = MATRIX[MATRIX.index(("sink", "after")) :]
COMMITTED = MATRIX[MATRIX.index(("commit", "after")) :]
IN_WORKERS = [(point, side) for point in ("delta", "outputs") for side in SIDES]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the query lives that is killed by one test after the other."""
    home = tmp_path_factory.mktemp("killed query")
    bank.write_input(home, range(len(MATRIX) + 3))
    return home


def next_epoch(home: Path) -> int:
    """The first epoch that has not begun."""
    return max(History(home / "checkpoint").intents(), default=-1) + 1


@pytest.mark.parametrize(("point", "side"), MATRIX)
def test_kill(launch: Launch, home: Path, point: str, side: str) -> None:
    epoch = next_epoch(home)
    with launch(home) as application:
        struck = application.arm(f"{point}-{side}-{epoch}", signal.SIGKILL, -application.pid)
        application.start(workers=2 + epoch % 2)
        assert application.wait() == -signal.SIGKILL
        assert struck.exists()
    here = (point, side)
    check(
        home,
        published=epoch if here in PUBLISHED else epoch - 1,
        delivered=epoch if here in DELIVERED else epoch - 1,
    )
    committed = epoch if here in COMMITTED else epoch - 1
    assert newest_commit(home / "checkpoint" / "spark") == (committed if committed >= 0 else None)


def test_kill_in_the_second_operator(launch: Launch, home: Path) -> None:
    epoch = next_epoch(home)
    with launch(home) as application:
        struck = application.arm(
            f"function-before-{first_seen(epoch)}", signal.SIGKILL, -application.pid
        )
        application.start(workers=2)
        assert application.wait() == -signal.SIGKILL
        assert struck.exists()
    check(home, published=epoch - 1, delivered=epoch - 1)


def test_the_killed_query_comes_to_its_end(launch: Launch, home: Path) -> None:
    files = len(list((home / "input").iterdir()))
    with launch(home) as application:
        application.start(workers=3)
        assert application.wait() == 0
    check(home, published=files - 1, delivered=files - 1)
    told = json.loads((home / "state.json").read_text())
    assert {table: [tuple(row) for row in rows] for table, rows in told.items()} == expected(
        files - 1, -1
    ).state


def test_killed_workers_are_replaced(launch: Launch, tmp_path: Path) -> None:
    """Spark runs the task of a dead Python worker again, in another one."""
    epochs = len(IN_WORKERS) + 2
    bank.write_input(tmp_path, range(epochs))
    faults = [f"{point}-{side}-{epoch}" for epoch, (point, side) in enumerate(IN_WORKERS)]
    with launch(tmp_path) as application:
        struck = [
            application.arm(fault, signal.SIGKILL)
            for fault in (*faults, f"function-before-{first_seen(len(IN_WORKERS))}")
        ]
        application.start(workers=2)
        assert application.wait() == 0
        assert all(fault.exists() for fault in struck)
    check(tmp_path, published=epochs - 1, delivered=epochs - 1)
