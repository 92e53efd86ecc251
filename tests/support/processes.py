"""Processes that are there at once: forks of one that has imported what they need."""

import multiprocessing
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Final

_IMPORTED: Final = ("pytest", "hypothesis", "godwit", "tests.support.log_samples")


def forks() -> ForkServerContext:
    """Where tests get processes from; the first test of a process starts the one that is forked."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_IMPORTED])
    return context


def wait_until_stopped(pid: int) -> None:
    """Wait until a signal has stopped a process, also one that is no child of this one."""
    stat = Path(f"/proc/{pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
