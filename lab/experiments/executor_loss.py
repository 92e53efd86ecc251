"""Queries that lose an executor under load, and how long they take to get over it.

Three executors count records by key, a worker each. The one that came last is killed in the middle
of an epoch: so those that its worker can flee to have been running for long, whatever was killed
before.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.errors import GodwitError
from godwit.log.history import History
from godwit.model.manifest import WorkerStatistics
from godwit.model.routing import SEGMENTS
from godwit.spark.executors import Executors, live
from godwit.state.cache import SUFFIX, TOUCH_SECONDS
from lab.tools.executors import kill, processes
from lab.tools.spark_query import await_condition, read_all, start
from lab.workloads.profiles import (
    FETCH_RATE,
    FILLING,
    OPERATOR,
    ROWS,
    Profiles,
    incompressible,
)

WORKERS: Final = 3
MIDDLE: Final = 0.3  # seconds after an epoch ended: in the middle of the next one
LONGEST: Final = 300.0  # seconds that a query may take to settle
UNUSED: Final = 4 * TOUCH_SECONDS  # a file of which nobody has made use for so long is not needed
PHASES: Final = ("detection", "scheduling", "fetching", "loading", "publishing")


@dataclass(frozen=True, slots=True)
class Recovery:
    """From the loss of an executor to the first output after it, in seconds, one phase after the
    other; None where the parts are not known.

    *Detection* ends when Spark's driver no longer lists the executor, *scheduling* when the workers
    of the epoch that makes up for it begin; *fetching* and *loading* are what the slowest of them
    takes, in which `fetched` bytes come from the checkpoint; *publishing* ends with the output.
    The checkpoint had `stored` bytes then. `slowest` is what that worker did, in seconds.
    """

    detection: float
    whole: float
    scheduling: float | None = None
    fetching: float | None = None
    loading: float | None = None
    publishing: float | None = None
    fetched: int = 0
    stored: int = 0
    slowest: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        killed: float,
        known: float,
        ended: float,
        report: gw.EpochReport,
        slowest: Mapping[str, float],
    ) -> "Recovery":
        """From times of one clock, and the seconds of the slowest worker."""
        busy = _sum(slowest)
        operator = report.operators[OPERATOR]
        publishing = report.parts["publish"] + report.parts["deliver"]
        return cls(
            detection=known - killed,
            whole=ended - killed,
            scheduling=ended - publishing - busy - known,
            fetching=operator.fetch_seconds,
            loading=busy - operator.fetch_seconds,
            publishing=publishing,
            fetched=operator.fetched,
            slowest=slowest,
        )

    @property
    def phases(self) -> dict[str, float]:
        """Those that are known, and what is left."""
        found = {name: value for name in PHASES if (value := getattr(self, name)) is not None}
        rest = self.whole - sum(found.values())
        return found if len(found) == len(PHASES) else found | {"the rest": rest}


@dataclass
class GodwitUnderLoss:
    """A query of Godwit's that loses executors; `reports` are by epoch, with their times."""

    spark: SparkSession
    checkpoint: Path
    query: gw.Query
    reports: dict[int, tuple[float, gw.EpochReport]]
    replicas: int

    @classmethod
    def start(
        cls, spark: SparkSession, checkpoint: Path, keys: int, replicas: int
    ) -> "GodwitUnderLoss":
        """Start it, with state of so many keys if the checkpoint is new."""
        reports: dict[int, tuple[float, gw.EpochReport]] = {}
        profiles = Profiles(spark, keys, incompressible, WORKERS)

        def note(report: gw.EpochReport) -> None:
            reports[report.epoch] = time.monotonic(), report

        query = (
            profiles.stream()
            .to(gw.foreach_batch(lambda rows, epoch: None))
            .start(
                checkpoint,
                workers=WORKERS,
                # Bins are segments, so that no file of a segment has two workers.
                options=gw.Options(bins=SEGMENTS, replicas=replicas, fetch_rate=FETCH_RATE),
                initial=profiles.initial(checkpoint),
                listener=note,
            )
        )
        return cls(spark, checkpoint, query, reports, replicas)

    def lose(self, sign: signal.Signals = signal.SIGKILL) -> Recovery:
        """Kill an executor, or stop it for ever, and wait for the first output without it.

        Without replicas, nobody has files of a worker that it does not run: where workers were
        before, they would find theirs.
        """
        self._settle()
        if not self.replicas:
            end = time.monotonic() + UNUSED
            while time.monotonic() < end:
                self._epoch()
            Executors(self.spark).visit(_forget)
            self._settle()
        victim = self._executors()[-1]
        began = max(self.reports)
        killed, known = lose(self.spark, victim, sign, after=self._epoch)
        epoch = began + 1
        while any(one.executor == victim for one in self._receipts(epoch)):
            epoch += 1
        seconds = [receipt.seconds for receipt in self._receipts(epoch)]
        ended, report = self.reports[epoch]
        kill(self.spark.sparkContext, victim)  # one that was stopped
        found = Recovery.of(killed, known, ended, report, max(seconds, key=_sum))
        return replace(found, stored=_bytes(self.checkpoint))

    def _epoch(self) -> int:
        """Wait for the next epoch; the first one of a query that was started again may be any."""
        before = max(self.reports, default=-1)
        await_condition(lambda: max(self.reports, default=-1) > before, self.query.spark_query)
        return max(self.reports)

    def _receipts(self, epoch: int) -> Sequence[WorkerStatistics]:
        """What the workers of an epoch say of it."""
        await_condition(lambda: epoch in self.reports, self.query.spark_query)
        manifest = History(self.checkpoint).manifest(epoch)
        assert manifest is not None
        return manifest.receipts[OPERATOR]

    def _executors(self) -> list[str]:
        """In the order in which they came."""
        placement = self.query.placement
        return sorted(placement.executors if placement else (), key=int)

    def _settle(self) -> None:
        """Wait until each worker has an executor for itself that has its state, and replicas that
        are up to date."""
        end = time.monotonic() + LONGEST
        while not self._is_settled(self._epoch()):
            if time.monotonic() > end:
                raise GodwitError(f"{self.query} has not settled: {self.query.placement}")

    def _is_settled(self, epoch: int) -> bool:
        placement, held = self.query.placement, self.query.replicas()
        if placement is None or len(set(placement.homes)) < WORKERS or self.query.handovers:
            return False
        copies = [
            held.get(executor, {}).get(worker)
            for worker, executors in enumerate(placement.replicas)
            for executor in executors
        ]
        fresh = [one.epoch is not None and one.epoch >= epoch - 2 for one in copies if one]
        fetched = self.reports[epoch][1].operators[OPERATOR].fetched
        return not fetched and len(fresh) == WORKERS * self.replicas and all(fresh)


@dataclass
class SparkUnderLoss:
    """Spark's own aggregate of the same rows, which begins with none."""

    spark: SparkSession
    checkpoint: Path
    query: StreamingQuery
    ended: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, spark: SparkSession, checkpoint: Path, keys: int) -> "SparkUnderLoss":
        """Start it, when its store is filled."""
        profiles = Profiles(spark, keys, incompressible, WORKERS)
        filling = cls._start(profiles, checkpoint, profiles.filling_rows)
        await_condition(lambda: len(filling.ended) >= FILLING, filling.query)
        filling.query.stop()
        return cls._start(profiles, checkpoint, ROWS)

    @classmethod
    def _start(cls, profiles: Profiles, checkpoint: Path, rows: int) -> "SparkUnderLoss":
        ended: list[float] = []

        def deliver(outputs: DataFrame, epoch: int) -> None:
            read_all(outputs)
            ended.append(time.monotonic())

        query = start(profiles.on_spark(rows), checkpoint, deliver)
        return cls(profiles.spark, checkpoint, query, ended)

    def lose(self) -> Recovery:
        """Kill an executor, and wait for the first output after it."""
        for _ in range(3):
            self._epoch()
        await_condition(lambda: len(live(self.spark.sparkContext)) == WORKERS, self.query)
        victim = max(live(self.spark.sparkContext), key=int)
        killed, known = lose(self.spark, victim, signal.SIGKILL, after=self._epoch)
        await_condition(lambda: self.ended[-1] > known, self.query)
        ended = next(at for at in self.ended if at > known)
        return Recovery(known - killed, ended - killed, stored=_bytes(self.checkpoint))

    def _epoch(self) -> None:
        count = len(self.ended)
        await_condition(lambda: len(self.ended) > count, self.query)


def lose(
    spark: SparkSession, executor: str, sign: signal.Signals, after: Callable[[], Any]
) -> tuple[float, float]:
    """Send an executor a signal in the middle of an epoch, `after` one has ended: when that was,
    and when the driver knew that the executor is lost."""
    context = spark.sparkContext
    process = processes(context)[executor]
    after()
    time.sleep(MIDDLE)
    killed = time.monotonic()
    os.kill(process, sign)
    while executor in live(context):
        time.sleep(0.005)
    return killed, time.monotonic()


def _forget() -> None:
    """Delete the files in the caches of this executor that none of its workers uses."""
    oldest = time.time() - UNUSED
    for directory in os.environ["SPARK_LOCAL_DIRS"].split(","):
        for file in Path(directory).glob(f"godwit-*/*{SUFFIX}"):
            with suppress(FileNotFoundError):
                if file.stat().st_mtime < oldest:
                    file.unlink()


def _bytes(directory: Path) -> int:
    """Of all files below it; one that is deleted meanwhile has none."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _sum(parts: Mapping[str, float]) -> float:
    return sum(parts.values())
