"""Noting what happens in a run, and saying so: epochs as they are delivered, and what is waited for
when none is."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from godwit.log.spark_log import source_offsets
from godwit.storage.local import LocalStore
from lab.tools import units
from lab.workloads.rate import SECOND
from lab.workloads.report import DeliveredEpoch, RunReport

SILENCE: Final = 2.0  # seconds after which it is said what a run waits for

Say = Callable[[str], None]


class Recorder:
    """Fills the report of a run of so many events; Spark's log of the query says which of them an
    epoch has."""

    def __init__(self, report: RunReport, events: int, spark_log: Path, say: Say) -> None:
        self.report = report
        self.began = 0.0  # seconds since 1970, once an epoch has been delivered
        self.has_begun = threading.Event()
        self._events = events
        self._spark_log = LocalStore(spark_log)
        self._say = say
        self._waits_for: Callable[[], str] = lambda: "the first epoch"
        self._said = threading.Event()
        self._speaking = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Have all events been delivered?"""
        return bool(self.report.epochs) and self.report.epochs[-1].last >= self._events

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.time() - self.began

    def say(self, line: str) -> None:
        self._said.set()
        self._tell(line)

    def wait_for(self, what: Callable[[], str]) -> None:
        """From now on, this is what the run waits for."""
        self._waits_for = what

    @contextmanager
    def never_silent(self) -> Iterator[None]:
        """As long as the context lasts, it is said at least every two seconds what goes on."""
        over = threading.Event()

        def tell() -> None:
            waited = time.monotonic()
            while not over.is_set():
                if self._said.wait(SILENCE):
                    self._said.clear()
                    waited = time.monotonic()
                elif not over.is_set():
                    since = time.monotonic() - waited
                    self._tell(f"waiting for {self._waits_for()}, {since:.0f} s so far")

        thread = threading.Thread(target=tell, name="never-silent")
        thread.start()
        try:
            yield
        finally:
            over.set()
            self._said.set()
            thread.join()

    def _tell(self, line: str) -> None:
        with self._speaking:
            self._say(f"{self.now:.1f} s: {line}" if self.has_begun.is_set() else line)

    def deliver(
        self,
        number: int,
        moved: Mapping[str, int] = MappingProxyType({}),
        share: float = 0.0,
        fetched: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """An epoch has been delivered just now."""
        now = time.time()
        offsets: dict[str, int] = json.loads(source_offsets(self._spark_log, number)[0])
        self.began = offsets["began"] / SECOND
        first = self.report.epochs[-1].last if self.report.epochs else 0
        events = (first, offsets["event"])
        moved = dict(moved)
        epoch = DeliveredEpoch(number, *events, now - self.began, moved, share, dict(fetched))
        self.report.epochs.append(epoch)
        self.has_begun.set()
        told = [f"epoch {number}"]
        if epoch.last > epoch.first:
            worst = self.report.latencies(self.report.answered()[-1]).max() / SECOND
            told += [
                f"{epoch.last:,} of {self._events:,} events",
                f"latency {units.seconds(worst)}",
            ]
        told += [f"{bins:,} bins of {name} moved" for name, bins in moved.items()]
        self.say(", ".join(told))
