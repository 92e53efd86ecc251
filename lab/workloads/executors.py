"""The processes of a local cluster's executors, so that they can be killed or stopped."""

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
