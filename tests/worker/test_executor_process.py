"""Processes told apart, and awaited."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from godwit.worker import executor_process as executor
from godwit.worker.executor_process import Process, executor_id, jvm


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_the_end_of_a_process_is_awaited(has_pidfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process.of(child.pid)
    assert process is not None
    assert process.is_alive
    replace(process, started=process.started - 1).wait()  # another one, which is no more
    child.communicate(b"\n")
    process.wait()
    assert not process.is_alive
    assert Process.of(child.pid) is None


def test_a_process_that_nobody_has_asked_after_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process.of(child.pid)
    assert process is not None
    assert child.stdin is not None
    child.stdin.close()
    process.wait()
    assert not process.is_alive  # though it is a zombie still
    child.wait()


@pytest.mark.parametrize(
    ("options", "id"),
    [([], "driver"), (["--executor-id", "7", "--cores", "2"], "7")],
)
def test_the_id_is_what_the_jvm_was_started_with(
    options: list[str], id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process takes the part of the JVM: what counts is how it was started."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp/blockmgr-12345678")
    with subprocess.Popen(
        [sys.executable, "-c", "input('started')", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.read(1)  # the kernel knows its command line a moment after it was started
        monkeypatch.setattr(executor, "jvm", lambda: Process.of(child.pid))
        assert executor_id() == id
        child.communicate(b"\n")


def test_without_a_jvm_the_id_is_that_of_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "JAVA", "no such process")
    assert jvm() is None
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/data/spark/executor-7,/more")
    assert executor_id() == "executor-7"
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert executor_id() == "driver"
