"""The keeper as a process: one an executor, started by a task, ending with what it is for."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from godwit.model.ids import ExecutorId
from godwit.worker.executor_process import Process
from godwit.worker.keeper import KeeperSpec
from godwit.worker.replicas import KeeperProgress, read_reports
from tests.support.placed import Placed, cached, copies, held
from tests.support.simulated import words

KEYS = [f"word {i}" for i in range(100)]

# Stands for an executor: a process called java, and below it one that runs tasks.
EXECUTOR = """
import subprocess, sys
open("/proc/self/comm", "w").write("java")
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""
TASKS = """
import sys
from godwit.worker.executor_process import executor_id
from godwit.worker.keeper import KeeperSpec
from godwit.spark.keeper_start import ensure
print(executor_id(), flush=True)
for line in sys.stdin:
    print(ensure(KeeperSpec.from_text(line)), flush=True)
"""


class Executor:
    def __init__(self, number: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", EXECUTOR, TASKS, "--executor-id", number],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
        )
        self.id = self._answer()

    def ensure(self, spec: KeeperSpec) -> bool:
        assert self._process.stdin is not None
        self._process.stdin.write(spec.to_text() + "\n")
        self._process.stdin.flush()
        return self._answer() == "True"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        """Kill the JVM; the process that runs tasks then ends, too, for want of input."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def executor() -> Iterator[Executor]:
    executor = Executor("1")
    yield executor
    executor.kill()


@pytest.fixture
def sim(tmp_path: Path) -> Placed:
    sim = Placed(tmp_path, ["0", "1"], [["1"], ["0"]])
    sim.feed(words(*KEYS))
    return sim


def await_epoch(sim: Placed, epoch: int, other_than: int = 0) -> KeeperProgress:
    """What executor 1 says, once a process of it has all files of an epoch."""
    while True:
        report = read_reports(sim.driver.files, sim.generation).get(ExecutorId("1"))
        if report and report.pid != other_than and report.workers == {0: held(epoch, 0)}:
            return report
        time.sleep(0.01)


def process_of(report: KeeperProgress) -> Process:
    found = Process.of(report.pid)
    assert found is not None
    return found


def test_one_runs_and_follows_the_query(sim: Placed, executor: Executor) -> None:
    assert executor.id == "1"
    spec = sim.spec(executor.id)
    assert executor.ensure(spec)
    assert not executor.ensure(spec)
    pid = await_epoch(sim, 0).pid
    assert not executor.ensure(spec)
    for epoch in range(1, 4):
        sim.feed(words(*KEYS))
        assert await_epoch(sim, epoch).pid == pid
    assert cached(spec) >= copies(spec, sim.files(0))
    assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
    assert os.getsid(pid) == pid


def test_the_command_line_tells_nothing_of_the_store(sim: Placed, executor: Executor) -> None:
    executor.ensure(sim.spec(executor.id))
    pid = await_epoch(sim, 0).pid
    command = Path(f"/proc/{pid}/cmdline").read_text().strip("\0").split("\0")
    assert command[1:3] == ["-m", "godwit.worker.keeper"]
    assert all(one.isdecimal() for one in command[3:])


def test_one_that_was_killed_is_started_again_and_goes_on(sim: Placed, executor: Executor) -> None:
    spec = sim.spec(executor.id)
    executor.ensure(spec)
    first = await_epoch(sim, 0)
    process = process_of(first)
    os.kill(first.pid, signal.SIGKILL)
    process.wait()
    sim.feed(words(*KEYS))
    assert executor.ensure(spec)
    second = await_epoch(sim, 1, other_than=first.pid)
    new = sum(ref.bytes for name, ref in sim.files(0).items() if "/e1-" in name)
    assert second.bytes == new


def test_it_ends_with_its_executor_and_leaves_no_cache(sim: Placed, executor: Executor) -> None:
    spec = sim.spec(executor.id)
    executor.ensure(spec)
    process = process_of(await_epoch(sim, 0))
    assert cached(spec)
    executor.kill()
    process.wait()
    assert read_reports(sim.driver.files, sim.generation) == {}
    assert not spec.cache.path.exists()
    assert spec.cache.path.parent.exists()


def test_it_ends_when_another_driver_takes_over(sim: Placed, executor: Executor) -> None:
    executor.ensure(sim.spec(executor.id))
    process, before = process_of(await_epoch(sim, 0)), sim.generation
    sim.restart()
    process.wait()
    assert read_reports(sim.driver.files, before) == {}
    assert executor.ensure(sim.spec(executor.id))
    await_epoch(sim, 0)


def test_it_ends_when_the_query_does_and_leaves_no_cache(sim: Placed, executor: Executor) -> None:
    spec = sim.spec(executor.id)
    executor.ensure(spec)
    process = process_of(await_epoch(sim, 0))
    shutil.rmtree(spec.cache.path)
    process.wait()
    assert read_reports(sim.driver.files, sim.generation) == {}
    assert not spec.cache.path.exists()
