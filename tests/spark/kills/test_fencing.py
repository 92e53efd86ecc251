"""Two applications on one checkpoint: the later takes over, the earlier fails and does no harm."""

import hashlib
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from godwit.log.history import History
from tests.spark.kills import bank
from tests.spark.kills.conftest import Launch
from tests.spark.kills.running import Application
from tests.spark.kills.truth import check, first_seen

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def digests(*directories: Path) -> dict[Path, str]:
    """What is in each file, hidden ones and those of unfinished tasks included."""
    files = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def assert_fenced(application: Application, generation: int) -> None:
    """It ended with an error that says what happened and what to do."""
    assert application.wait() == 1
    message = (
        f"godwit.errors.FencedError: checkpoint {application.home}/checkpoint was taken over: "
        f"this driver holds generation {generation}, generation "
    )
    assert message in application.printed()
    assert "stop this one" in application.printed()


def test_drivers_that_were_stopped_and_wake_up_are_fenced(launch: Launch, home: Path) -> None:
    """Each is stopped in mid-epoch, where the next one takes over; all wake up after the last."""
    bank.write_input(home, range(6))
    stops = (
        f"function-before-{first_seen(1)}",  # in a task of the second operator
        "sink-before-2",  # by the time it wakes up, the files it wants to deliver are gone
    )
    with ExitStack() as stack:
        stopped = []
        for fault in stops:
            application = stack.enter_context(launch(home))
            workers = [0] if fault.startswith("function") else []
            application.arm(fault, signal.SIGSTOP, -application.pid, *workers)
            application.start()
            application.wait_until_stopped()
            stopped.append(application)
        last = stack.enter_context(launch(home))
        last.start()
        assert last.wait() == 0
        check(home, published=5, delivered=5)

        godwit = home / "checkpoint" / "godwit"
        decided = [godwit / name for name in ("generations", "intents", "manifests", "control")]
        before, everything = digests(*decided, home / "output"), digests(home / "checkpoint")
        for application in stopped:
            application.signal(signal.SIGCONT)
        for generation, application in enumerate(stopped, start=1):
            assert_fenced(application, generation)
        assert digests(*decided, home / "output") == before
        assert everything.items() <= digests(home / "checkpoint").items()

    bank.write_input(home, range(6, 7))
    with launch(home) as application:
        application.start()
        assert application.wait() == 0
    check(home, published=6, delivered=6)


def test_an_earlier_driver_cannot_disturb_the_one_that_took_over(
    launch: Launch, home: Path
) -> None:
    """The earlier one wakes up, or sees new data, while the later one is in the middle of it."""
    bank.write_input(home, range(3))
    with launch(home) as first, launch(home) as second, launch(home) as third:
        first.arm("commit-before-1", signal.SIGSTOP, -first.pid)
        first.start(endless=True)
        first.wait_until_stopped()
        second.arm("sink-before-1", signal.SIGSTOP, -second.pid)
        second.start(endless=True)
        second.wait_until_stopped()
        first.signal(signal.SIGCONT)
        assert_fenced(first, generation=1)
        second.signal(signal.SIGCONT)
        second.wait_until_idle()
        check(home, published=2, delivered=2)

        third.start(endless=True)
        third.wait_until_idle()
        third.signal(signal.SIGSTOP)
        bank.write_input(home, range(3, 5))
        assert_fenced(second, generation=2)
        third.arm("commit-after-4", signal.SIGKILL, -third.pid)
        third.signal(signal.SIGCONT)
        bank.write_input(home, range(5, 6))
        assert third.wait() == -signal.SIGKILL
    assert [generation.number for generation in History(home / "checkpoint").generations()] == [
        1,
        2,
        3,
    ]
    check(home, published=4, delivered=4)
