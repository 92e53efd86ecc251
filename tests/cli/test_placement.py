"""Commands about executors, on a query that runs elsewhere: here a simulation on three of them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from godwit.cli import main
from godwit.cli.patience import Patience
from godwit.log import Intent
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.placement.slots import Held, by_worker
from godwit.worker.replicas import KeeperProgress, write_progress
from tests.support.command_line import Running
from tests.support.operator_simulation import OperatorSimulation
from tests.support.simulated import drive, idle, simulate, words

EXECUTORS = {ExecutorId("0"): "one", ExecutorId("1"): "two", ExecutorId("2"): "three"}


class Placed(Running):
    """The words' counts, by 3 workers on 3 executors."""

    def __init__(self, checkpoint: Path) -> None:
        self.sim = simulate(checkpoint, workers=3)
        self.sim.executors = dict(EXECUTORS.items())
        self.sim.feed(words("a", "b", "c"))
        super().__init__(checkpoint, self.sim.driver)

    def epoch(self) -> None:
        """Run an epoch without records; before it, executors fetch all that there is."""
        fetched(self.sim)
        self.sim.feed([])


class Losing(Placed):
    """Nobody fetches anything, and executor 2 is lost when the first epoch is over."""

    def epoch(self) -> None:
        self.sim.feed([])
        self.sim.executors.pop("2", None)


def fetched(sim: OperatorSimulation) -> None:
    """Let each executor say that it has the state of all workers."""
    placement = sim.driver.placements.placement
    assert placement is not None
    held = {worker: Held(Epoch(sim.committed)) for worker, _ in by_worker(placement.slots)}
    for executor in placement.executors:
        report = KeeperProgress(executor, 1, Epoch(sim.committed), held, 0, 0.0)
        write_progress(sim.driver.journal.files, sim.driver.journal.generation, report)


@pytest.fixture
def query(tmp_path: Path) -> Placed:
    return Placed(tmp_path)


def homes(query: Placed) -> tuple[str, ...]:
    placement = query.driver.placements.placement
    assert placement is not None
    return placement.homes


def test_handover(query: Placed, capsys: pytest.CaptureFixture[str]) -> None:
    assert homes(query) == ("0", "1", "2")
    assert query.command("handover", "2", "0", "--watch") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1].endswith("handover of worker 2 to executor 0: done")
    assert homes(query) == ("0", "1", "0")
    assert query.command("history") == 0
    listed = capsys.readouterr().out
    assert re.search(r"1 +2 +0 +yes +done +\d+", listed)
    assert query.command("history", "--json") == 0
    (handover,) = json.loads(capsys.readouterr().out)["handovers"]
    assert (handover["worker"], handover["target"], handover["stage"]) == (2, "0", "done")


def test_a_handover_that_waits_for_its_target_is_told(
    query: Placed, capsys: pytest.CaptureFixture[str]
) -> None:
    query.driver.requests.handover(WorkerId(1), ExecutorId("2"))
    query.sim.feed([])  # nothing is known of executor 2
    assert main(["status", str(query.checkpoint)]) == 0
    text = capsys.readouterr().out
    assert "\nexecutors: 0 (1 worker, 0 replicas), 1 (1 worker, 0 replicas), 2 (1 worker" in text
    assert "\nhandover of worker 1 to executor 2: building\n" in text
    assert main(["status", str(query.checkpoint), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [handover["stage"] for handover in data["handovers"]] == ["building"]
    assert [executor["workers"] for executor in data["executors"]] == [1, 1, 1]


def test_status_tells_where_workers_are_and_how_far_their_replicas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = drive(tmp_path, workers=3, bins=16, replicas=1)
    for epoch in range(3):
        intent = driver.begin(Epoch(epoch), "query", str(epoch), executors=EXECUTORS)
        assert isinstance(intent, Intent)
        receipts = [
            replace(
                receipt, executor=ExecutorId(str(receipt.worker)), fetched=1024 * receipt.worker
            )
            for receipt in idle(driver, intent)["counts"]
        ]
        driver.commit(intent, {"counts": receipts})
    placement = driver.placements.placement
    assert placement is not None
    copies = [copy for (copy,) in placement.replicas]
    held = [Held(Epoch(2)), Held(Epoch(1), 2048), Held(None, 3072)]
    for executor in EXECUTORS:
        mine = {worker: one for worker, one in by_worker(held) if copies[worker] == executor}
        report = KeeperProgress(executor, 1, Epoch(2), mine, 0, 0.0)
        write_progress(driver.journal.files, driver.journal.generation, report)
    assert main(["status", str(tmp_path)]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()[-5:]
    assert head.split()[-4:] == ["slot", "executor", "fetched", "replicas"]
    assert [re.split(r"  +", row.strip())[0] for row in rows] == ["0", "1", "2"]
    assert [re.split(r"  +", row.strip())[-4:] for row in rows] == [
        ["0", "0", "0 B", f"{copies[0]} (up to date)"],
        ["1", "1", "1.0 KiB", f"{copies[1]} (1 behind, 2.0 KiB to fetch)"],
        ["2", "2", "2.0 KiB", f"{copies[2]} (not ready, 3.0 KiB to fetch)"],
    ]


def test_a_worker_that_is_placed_elsewhere_than_it_ran_is_told(
    query: Placed, capsys: pytest.CaptureFixture[str]
) -> None:
    query.driver.requests.handover(WorkerId(2), ExecutorId("0"))
    fetched(query.sim)
    query.driver.begin(Epoch(query.sim.committed + 1), "query", "more", executors=EXECUTORS)
    assert main(["status", str(query.checkpoint)]) == 0
    told, row = (lines := capsys.readouterr().out.splitlines())[2:], lines[-1]
    assert "handover of worker 2 to executor 0: switched" in told
    assert "  3  0 (ran on 2)  " in row


def test_a_handover_that_fails_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Losing(tmp_path).command("handover", "1", "2", "--watch", "--json") == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(first)["answer"] == "accepted"
    handover = json.loads(last)["handover"]
    assert (handover["stage"], handover["reason"]) == ("failed", "executor 2 was lost")


def test_drain(query: Placed, capsys: pytest.CaptureFixture[str]) -> None:
    assert query.command("drain", "1", "--watch") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("executor 1 is drained")
    assert "1" not in homes(query)
    assert query.command("status") == 0
    assert "1 (0 workers, 0 replicas, drained)" in capsys.readouterr().out
    assert query.command("history") == 0
    assert re.search(r"1 +1 +[02] +no +done", capsys.readouterr().out)


REFUSED = {
    "worker": (["handover", "7", "1"], "there is no worker 7; there are 3"),
    "executor": (["handover", "0", "driver"], "there is no executor 'driver'; there are 0, 1, 2"),
    "home": (["handover", "0", "0"], "worker 0 is on executor 0 already"),
    "drain": (["drain", "9"], "there is no executor '9'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_told_and_the_query_goes_on(
    query: Placed, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, reason = REFUSED[case]
    assert query.command(*arguments, "--watch") == 1
    assert f"request 1 was refused: {reason}" in capsys.readouterr().err
    query.sim.feed(words("a"))
    assert homes(query) == ("0", "1", "2")


def test_workers_that_are_not_pinned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sim = simulate(tmp_path)
    sim.feed(words("a"))
    assert Running(tmp_path, sim.driver).command("handover", "0", "1") == 1
    assert "workers are not pinned to executors" in capsys.readouterr().err


def test_a_request_for_executors_of_an_application_that_has_ended(
    query: Placed, capsys: pytest.CaptureFixture[str]
) -> None:
    brief = Patience(answer=0.2)
    assert main(["handover", str(query.checkpoint), "0", "1"], brief) == 3
    assert main(["drain", str(query.checkpoint), "1"], brief) == 3
    query.sim.restart()
    query.sim.executors = dict(EXECUTORS.items())
    query.sim.feed(words("a"))
    intent = query.sim.driver.journal.intent(1)
    assert intent is not None
    assert list(intent.refused) == [1, 2]
    assert all("of driver 1, whose application has ended" in r for r in intent.refused.values())
    assert homes(query) == ("0", "1", "2")
    assert not query.sim.driver.placements.state.handovers
