"""Named points of an epoch at which a test can strike a process.

Production code calls `reach("manifest", "before", epoch)` and nothing happens. Tests either install
a handler in this process, or name a directory in `GODWIT_FAULTS` in which they arm faults of real
processes: a file `manifest-before-3` that holds `SIGKILL` and perhaps process ids. Of the point in
one operator, or at one sink, it is `delta-before-3-counts` or `delivery-after-3-0`. A sink
that has written the rows of an epoch, and has yet to commit them, is at `rows-after-3`.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal

Side = Literal["before", "after"]
POINTS = ("intent", "delta", "outputs", "receipts", "manifest", "sink", "commit")

handler: Callable[[str, Side, int], None] | None = None


def reach(point: str, side: Side, epoch: int, of: str | int | None = None) -> None:
    """Tell the test, if there is one, that `point` of `epoch` is about to be or was just passed.

    Where several pass it in an epoch, `of` says which operator (by name) or sink (by number).
    """
    if handler is not None:
        handler(point, side, epoch)
    elif directory := os.environ.get("GODWIT_FAULTS"):
        fault = f"{point}-{side}-{epoch}"
        for armed in [fault] if of is None else [fault, f"{fault}-{of}"]:
            _strike(Path(directory), armed)


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
