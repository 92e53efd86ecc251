"""Starting a Spark application in processes of its own, striking them, and leaving none behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE = 600  # seconds; other work may share the machine


class Application:
    """A query over the files in `home`, run by a driver and a JVM of its own: that of `bank`, or
    what another `program` of these runs.

    They are a process group, and Spark's Python workers another one; all are of one session, so
    none is left behind, stopped ones included. What they print is shown when a test fails.
    """

    def __init__(self, home: Path, java: str, program: str = "application") -> None:
        self.home = home
        self.faults = home / "faults"
        self.faults.mkdir(exist_ok=True)
        self._java = java
        environment = {
            "GODWIT_FAULTS": str(self.faults),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._printed = tempfile.TemporaryFile("w+", dir=home)  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.support.kills.{program}"],
            stdin=subprocess.PIPE,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._idle = home / f"idle-{self.pid}"

    def arm(self, fault: str, signal: signal.Signals, *pids: int) -> Path:
        """Prepare a fault; returns the file that will be there when it has struck.

        Without process ids it strikes the process that reaches the point; `-pid` of an application
        means its driver and JVM, and 0 the group of the process that reaches the point.
        """
        (self.faults / fault).write_text(" ".join([signal.name, *map(str, pids)]))
        return self.faults / f"{fault}.taken"

    def start(self, **arguments: Any) -> None:
        """Let it go: nothing happens before."""
        assert self._process.stdin is not None
        given = {"home": str(self.home), "java": self._java, **arguments}
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.close()

    def wait(self) -> int:
        """Wait until the driver ends; a negative code is the signal that ended it."""
        return self._process.wait(PATIENCE)

    def wait_until_stopped(self) -> None:
        """Wait until a fault has stopped the driver."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), self.printed()

    def wait_for(self, struck: Path) -> None:
        """Wait until a fault that ends nothing has struck."""
        while not struck.exists():
            assert self._process.poll() is None, self.printed()
            time.sleep(0.001)

    def wait_until_idle(self) -> None:
        """Wait until an endless one has processed all files that are there."""
        while not self._idle.exists():
            assert self._process.poll() is None, self.printed()
            time.sleep(0.1)

    def wait_for_all(self) -> None:
        """Wait until all its processes have ended."""
        while self._processes():
            time.sleep(0.1)

    def signal(self, signal: signal.Signals) -> None:
        """Send a signal to all its processes."""
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal)

    def printed(self) -> str:
        """What its processes have printed."""
        self._printed.seek(0)
        return self._printed.read()

    def _processes(self) -> list[int]:
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        return [pid for pid in pids if _session_of(pid) == self.pid]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()
        if error is not None:
            print(self.printed())
        self._printed.close()


Launch = Callable[[Path], Application]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
