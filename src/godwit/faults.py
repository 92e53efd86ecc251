"""Named points of an epoch at which a test can strike a process.

Production code calls `reach("manifest", "before", epoch)` and nothing happens. Tests either install
a handler in this process, or name a directory in `GODWIT_FAULTS` in which they arm faults of real
processes: a file `manifest-before-3` that holds `SIGKILL` and perhaps process ids.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal

Side = Literal["before", "after"]
POINTS = ("intent", "delta", "outputs", "receipts", "manifest", "sink", "commit")

handler: Callable[[str, Side, int], None] | None = None


def reach(point: str, side: Side, epoch: int) -> None:
    """Tell the test, if there is one, that `point` of `epoch` is about to be or was just passed."""
    if handler is not None:
        handler(point, side, epoch)
    elif directory := os.environ.get("GODWIT_FAULTS"):
        _strike(Path(directory), f"{point}-{side}-{epoch}")


def _strike(directory: Path, fault: str) -> None:
    """Send the signal of an armed fault to its processes (this one, if it names none), once.

    Renaming the file takes the fault, so a retried task or a restarted driver is not struck again.
    """
    taken = directory / f"{fault}.taken"
    try:
        (directory / fault).rename(taken)
    except FileNotFoundError:
        return
    name, *pids = taken.read_text().split()
    for pid in pids or [str(os.getpid())]:
        os.kill(int(pid), signal.Signals[name])
