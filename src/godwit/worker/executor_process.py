"""The executor that this process works for: the JVM above it, and its id."""

import os
import select
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

from godwit.model.ids import ExecutorId

JAVA: Final = "java"
DRIVER: Final = "driver"  # as Spark calls the only executor of a session on one machine
POLL: Final = 0.2
STARTED: Final = 20  # where the status of a process has the time of its start


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine, told from a later one of the same number by when it started."""

    pid: int
    started: int  # ticks of the clock since the machine did

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process of this number, if there is one and it has not ended."""
        fields = _status(pid)
        return None if fields is None or fields[1] == "Z" else cls(pid, int(fields[STARTED]))

    @property
    def is_alive(self) -> bool:
        return Process.of(self.pid) == self

    def wait(self) -> None:
        """Return when the process has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # it has ended, or this system has no such thing
            while self.is_alive:
                time.sleep(POLL)
            return
        try:
            fields = _status(self.pid)
            if fields is not None and int(fields[STARTED]) == self.started:  # it is what was opened
                events = select.poll()
                events.register(descriptor, select.POLLIN)
                events.poll()
        finally:
            os.close(descriptor)


def jvm() -> Process | None:
    """The nearest process above this one that is a JVM: in a task, its executor."""
    pid = os.getppid()
    while (fields := _status(pid)) is not None:
        if fields[0] == JAVA:
            return Process.of(pid)
        pid = int(fields[2])
    return None


def executor_id() -> ExecutorId:
    """The id that Spark gave to the executor of this process.

    The JVM of a session on one machine was started without one: it is the driver. Where no JVM is
    seen, it is the name of its directory for local files.
    """
    if (process := jvm()) is not None:
        with suppress(OSError):
            return ExecutorId(_options(process).get("--executor-id", DRIVER))
    return ExecutorId(Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]).name or DRIVER)


def executor_host(executor: Process) -> str:
    """The address that Spark gave to an executor; empty if it gave it none."""
    with suppress(OSError):
        options = _options(executor)
        return options.get("--bind-address") or options.get("--hostname", "")
    return ""


def _options(process: Process) -> dict[str, str]:
    """The options of a process, with what follows each."""
    line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace")
    return dict(pairwise(line.split("\0")))


def _status(pid: int) -> list[str] | None:
    """Name, state, parent and so on of a process (proc(5), `stat`); None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")  # a name may hold parentheses
    return [name, *rest.split()]
