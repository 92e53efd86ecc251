"""Named points of an epoch at which a test can end a process.

Production code calls `reach("manifest", "before", epoch)` and nothing happens. Tests either install
a handler in this process, or set `GODWIT_FAULT` to make a real process end itself with SIGKILL.
"""

import os
import signal
from collections.abc import Callable
from typing import Literal

Side = Literal["before", "after"]
POINTS = ("intent", "delta", "outputs", "receipts", "manifest", "sink", "commit")

handler: Callable[[str, Side, int], None] | None = None


def reach(point: str, side: Side, epoch: int) -> None:
    """Tell the test, if there is one, that `point` of `epoch` is about to be or was just passed."""
    if handler is not None:
        handler(point, side, epoch)
    elif wanted := os.environ.get("GODWIT_FAULT"):
        _end_once(wanted, f"{point}:{side}:{epoch}")


def _end_once(wanted: str, here: str) -> None:
    """End what `GODWIT_FAULT` names, once: 'POINT:SIDE:EPOCH MARKER [PID ...]'.

    The marker file is created exclusively, so a retried task does not die again. Without process
    ids this process ends; with them (a driver and its JVM) those do.
    """
    point, marker, *pids = wanted.split()
    if point != here:
        return
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    for pid in pids or [str(os.getpid())]:
        os.kill(int(pid), signal.SIGKILL)
