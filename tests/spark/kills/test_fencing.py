"""Two applications on one checkpoint: the later takes over, the earlier fails and does no harm."""

import hashlib
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from godwit.log.history import History
from tests.support.kills import bank
from tests.support.kills.running import Application, Launch
from tests.support.kills.truth import check, first_seen

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


def test_earlier_drivers_are_fenced_and_do_no_harm(launch: Launch, home: Path) -> None:
    """Two are stopped in mid-epoch and wake up while the third is in the midst of a later one; that
    one is taken over when it is idle, and sees new data afterwards."""
    bank.write_input(home, range(6))
    with ExitStack() as stack:
        first, second, third, fourth = (stack.enter_context(launch(home)) for _ in range(4))
        first.arm(f"function-before-{first_seen(1)}", signal.SIGSTOP, -first.pid, 0)  # in a task
        first.start()
        first.wait_until_stopped()
        second.arm("sink-before-1", signal.SIGSTOP, -second.pid)
        second.start()
        second.wait_until_stopped()
        third.arm("sink-before-5", signal.SIGSTOP, -third.pid)
        third.start(endless=True)
        third.wait_until_stopped()

        godwit = home / "checkpoint" / "godwit"
        decided = [godwit / name for name in ("generations", "intents", "manifests", "control")]
        before, everything = digests(*decided, home / "output"), digests(home / "checkpoint")
        for generation, application in enumerate((first, second), start=1):
            application.signal(
                signal.SIGCONT
            )  # the files that the second wants to deliver are gone
            assert_fenced(application, generation)
        assert digests(*decided, home / "output") == before
        assert everything.items() <= digests(home / "checkpoint").items()
        third.signal(signal.SIGCONT)
        third.wait_until_idle()
        check(home, published=5, delivered=5)

        fourth.start(endless=True)
        fourth.wait_until_idle()
        fourth.signal(signal.SIGSTOP)
        bank.write_input(home, range(6, 8))
        assert_fenced(third, generation=3)
        fourth.arm("commit-after-7", signal.SIGKILL, -fourth.pid)
        fourth.signal(signal.SIGCONT)
        bank.write_input(home, range(8, 9))  # the epoch that shows the commit of the one before
        assert fourth.wait() == -signal.SIGKILL
    check(home, published=7, delivered=7)
    numbers = [generation.number for generation in History(home / "checkpoint").generations()]
    assert numbers == [1, 2, 3, 4]
