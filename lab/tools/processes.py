"""What this process and its descendants have in memory, over time, and what they compute."""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SECONDS: Final = 0.5  # between two samples


@contextmanager
def sampled() -> Iterator[list[tuple[float, float]]]:
    """Samples as long as the context lasts: seconds since 1970, and MiB. There is at least one."""
    samples: list[tuple[float, float]] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(SECONDS) or not samples:
            samples.append((time.time(), proportional_mib()))

    thread = threading.Thread(target=sample, name="memory")
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def proportional_mib(processes: Iterable[int] | None = None) -> float:
    """Of a page that several processes have mapped, each counts its share (PSS)."""
    total = 0
    for pid in family() if processes is None else processes:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def processor_seconds() -> float:
    """What this process and its descendants have used so far, with those that have ended."""
    ticks = 0
    for pid in family():
        with suppress(OSError):
            ticks += sum(map(int, _stat(pid)[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def family() -> dict[int, int]:
    """This process and its descendants, each with its parent."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    family = {os.getpid(): os.getppid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family.keys():
        family |= {pid: parents[pid] for pid in more}
    return family


def _stat(pid: int) -> list[str]:
    """What `/proc` says of a process behind its name: its state, its parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
