"""`godwit stop` on a real application: it ends well, and a kill on the way to it does no harm."""

import signal
from pathlib import Path

import pytest

from godwit.cli import main
from godwit.inspect.audit import verify
from godwit.log.history import History
from godwit.log.spark_log import newest_commit
from godwit.storage.local import LocalStore
from tests.support.kills import bank
from tests.support.kills.running import Launch
from tests.support.kills.truth import expected, found

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FILES = 3


def test_a_stop_ends_the_program_also_after_a_kill_on_the_way(
    launch: Launch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bank.write_input(tmp_path, range(FILES))
    checkpoint = tmp_path / "checkpoint"
    with launch(tmp_path) as killed, launch(tmp_path) as stopped:
        killed.arm(f"sink-after-{FILES}", signal.SIGKILL, -killed.pid)
        killed.start(endless=True)
        killed.wait_until_idle()
        assert main(["stop", str(checkpoint)]) == 0  # with an epoch of its own, the query is idle
        assert killed.wait() == -signal.SIGKILL
        assert newest_commit(LocalStore(checkpoint / "spark")) == FILES - 1

        stopped.start(endless=True)  # and is not stopped by what was asked of the other
        stopped.wait_until_idle()
        assert main(["stop", str(checkpoint), "--wait"]) == 0
        assert "driver 2 has ended" in capsys.readouterr().err
        assert stopped.wait() == 0, stopped.printed()
    history = History(checkpoint)
    last = history.last()
    assert last is not None
    assert newest_commit(LocalStore(checkpoint / "spark")) == last.epoch == max(history.intents())
    truth, facts = expected(FILES - 1, FILES - 1), found(tmp_path)
    assert facts.state == truth.state
    assert {epoch: rows for epoch, rows in facts.outputs.items() if rows} == truth.outputs
    assert verify(checkpoint).findings == []
