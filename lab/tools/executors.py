"""The processes of a local cluster's executors, and how to end them."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from pyspark import SparkContext


def processes(context: SparkContext) -> dict[str, int]:
    """The process ids of the executors' JVMs, by Spark's id of the executor."""
    application = str(context.applicationId)
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # a process may end meanwhile
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                if "CoarseGrainedExecutorBackend" in command and application in command:
                    words = command.split("\0")
                    found[words[words.index("--executor-id") + 1]] = int(entry.name)
    return found


def kill(context: SparkContext, executor: str) -> None:
    """End an executor, unless it has ended."""
    process = processes(context).get(executor)
    if process is not None:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
