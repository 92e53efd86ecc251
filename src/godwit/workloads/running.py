"""Running a workload in an open loop, moving its state meanwhile, and measuring latencies.

The source never waits: event n takes place at its time, whether or not those before it have been
processed. Its latency is the time at which the outputs of its epoch are durable and visible, less
its own. An epoch is one transaction, so the outputs of moved and unmoved keys appear together.
"""

import itertools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyspark.sql import SparkSession

import godwit as gw
from godwit.errors import ConfigError
from godwit.log.layout import SPARK
from godwit.log.spark_log import source_offsets
from godwit.model.routing import check_workers
from godwit.model.time import micros
from godwit.strategies import parse
from godwit.workloads.catalog import Workload
from godwit.workloads.latency import Histogram
from godwit.workloads.rate import SECOND, Rate
from godwit.workloads.source import register

PERCENTILES: Final = (50.0, 99.0, 99.9)
SLOT: Final = 250_000  # of the timeline, in microseconds

_MOVE: Final = re.compile(r"at (.+?) to (\d+) workers?(?: with (\S+))?")


@dataclass(frozen=True, slots=True)
class Move:
    """A migration that is asked for so many seconds after the begin."""

    at: float
    workers: int
    strategy: str = "paced"

    @classmethod
    def parse(cls, text: str) -> "Move":
        """
        >>> Move.parse("at 20s to 4 workers with batched:64")
        Move(at=20.0, workers=4, strategy='batched:64')
        """
        if (found := _MOVE.fullmatch(text.strip())) is None:
            raise ConfigError(
                f"'{text}' is no move; write it like 'at 20s to 4 workers with paced'"
            )
        strategy = found[3] or "paced"
        parse(strategy)
        return cls(micros(found[1]) / SECOND, int(found[2]), strategy)


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be run: `warm_up` seconds at the begin are not measured."""

    workload: Workload
    rate: Rate
    workers: int
    seconds: float
    warm_up: float
    moves: tuple[Move, ...] = ()

    def check(self) -> None:
        """Refuse what cannot be run."""
        check_workers(self.workers)
        if not 0 <= self.warm_up < self.seconds:
            raise ConfigError(
                f"a run of {self.seconds:g} s leaves nothing to measure after a warm-up of "
                f"{self.warm_up:g} s"
            )
        for move in self.moves:
            check_workers(move.workers)
            if move.at >= self.seconds:
                raise ConfigError(f"a move at {move.at:g} s comes after the end of the run")


@dataclass(frozen=True, slots=True)
class Epoch:
    """Events `first` up to `last` became visible at `delivered`, seconds after the begin."""

    number: int
    first: int
    last: int
    delivered: float
    moved: dict[str, int]  # bins, by operator
    fetched: int  # bytes


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration of one operator; times are seconds after the begin."""

    operator: str
    workers: int
    strategy: str
    asked: float
    ended: float | None
    outcome: str


@dataclass(slots=True)
class Report:
    """What was seen; latencies are in microseconds."""

    run: Run
    epochs: list[Epoch] = field(default_factory=list)
    migrations: list[Migration] = field(default_factory=list)

    def latencies(self, epoch: Epoch) -> Any:
        intended = self.run.rate.times(np.arange(epoch.first, epoch.last))
        return np.int64(epoch.delivered * SECOND) - intended

    def histogram(self, moving: bool | None = None) -> Histogram:
        """Of all measured events, of those in epochs while state moved, or of the others."""
        found = Histogram()
        for epoch in self.measured():
            if moving is None or self.is_moving(epoch) is moving:
                found.add(self.latencies(epoch))
        return found

    def measured(self) -> list[Epoch]:
        """The epochs whose events all took place after the warm-up."""
        first = self.run.rate.until(int(self.run.warm_up * SECOND) - 1)
        return [epoch for epoch in self.epochs if epoch.first >= first]

    def is_moving(self, epoch: Epoch) -> bool:
        """Whether a migration was open while its events took place or were processed."""
        began = float(self.run.rate.times(np.array([epoch.first]))[0]) / SECOND
        return any(
            one.asked <= epoch.delivered and (one.ended is None or began <= one.ended)
            for one in self.migrations
        )

    def timeline(self) -> list[tuple[float, int, int]]:
        """For each slot of time in which events took place: its begin in seconds, and the median
        and greatest latency of its events."""
        slots: dict[int, list[Any]] = {}
        for epoch in self.epochs:
            latencies = self.latencies(epoch)
            slot = self.run.rate.times(np.arange(epoch.first, epoch.last)) // SLOT
            borders = np.flatnonzero(np.diff(slot, prepend=-1, append=-1))
            for a, b in itertools.pairwise(borders):
                slots.setdefault(int(slot[a]), []).append(latencies[a:b])
        joined = {slot: np.concatenate(parts) for slot, parts in sorted(slots.items())}
        return [
            (slot * SLOT / SECOND, int(np.median(one)), int(one.max()))
            for slot, one in joined.items()
        ]

    def summary(self) -> dict[str, dict[str, float]]:
        """Latencies in seconds, of all events and of those while state moved and did not."""
        parts = {"all": self.histogram(), "steady": self.histogram(moving=False)}
        if self.migrations:
            parts["moving"] = self.histogram(moving=True)
        return {
            name: {
                "events": float(histogram.total),
                **{f"p{p:g}": histogram.percentile(p) / SECOND for p in PERCENTILES},
                "max": histogram.greatest / SECOND,
            }
            for name, histogram in parts.items()
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.run.workload.name,
            "rate": str(self.run.rate),
            "workers": self.run.workers,
            "seconds": self.run.seconds,
            "warm_up": self.run.warm_up,
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "migrations": [asdict(migration) for migration in self.migrations],
            "latency": self.summary(),
            "timeline": self.timeline(),
            "ccdf": self.histogram().ccdf(),
        }


class Runner:
    """One run of a workload on a Spark session, in a directory of its own."""

    def __init__(
        self, spark: SparkSession, run: Run, directory: Path, say: Callable[[str], None]
    ) -> None:
        self._run = run
        self._directory = directory
        self._say = say
        self._report = Report(run)
        self._began = 0.0  # seconds since 1970
        self._next = 0  # event
        register(spark)
        source = spark.readStream.format(run.workload.source)
        self._events = run.rate.until(int(run.seconds * SECOND))
        rows = source.options(rate=str(run.rate), events=self._events).load()
        self._job = run.workload.make(rows).to(gw.files(directory / "output"))

    def run(self) -> Report:
        """Run to the end of the stream, with all moves on the way."""
        query = self._job.start(
            self._directory / "checkpoint", workers=self._run.workers, listener=self._listen
        )
        try:
            if query.await_epoch(0):
                self._began = self._offsets(0)["began"] / SECOND
            moves = sorted(self._run.moves, key=lambda move: move.at)
            asked = dict(one for move in moves for one in self._ask(query, move))
            while self._next < self._events and query.is_active:
                query.await_epoch((query.epoch or 0) + 1, 1.0)
            self._finish(query)
        finally:
            query.stop()
        self._report.migrations += [
            replace(one, ended=self._end(one, asked, handle), outcome=handle.outcome)
            for one, handle in asked.items()
        ]
        return self._report

    def _finish(self, query: gw.Query) -> None:
        """Let open migrations end, and then the windows."""
        query.process_all_available()
        with suppress(gw.RefusedError):  # there is no event time
            query.finish()

    def _ask(self, query: gw.Query, move: Move) -> Iterator[tuple[Migration, gw.Migration]]:
        """Move all operators when the time has come."""
        while (now := time.time() - self._began) < move.at and query.is_active:
            query.await_epoch((query.epoch or 0) + 1, move.at - now)
        self._say(f"{now:.1f} s: to {move.workers} workers, {move.strategy}")
        for name in query.operators:
            handle = query.migrate(move.workers, name, strategy=move.strategy, supersede=True)
            yield Migration(name, move.workers, move.strategy, now, None, "open"), handle

    def _end(
        self, migration: Migration, asked: Iterable[Migration], handle: gw.Migration
    ) -> float | None:
        """When the outputs of the last bins that moved became visible; None if it is open."""
        if handle.outcome == "open":
            return None
        later = [one.asked for one in asked if one.operator == migration.operator]
        until = min((at for at in later if at > migration.asked), default=float("inf"))
        moved = [
            epoch.delivered
            for epoch in self._report.epochs
            if migration.operator in epoch.moved and migration.asked <= epoch.delivered < until
        ]
        return max(moved, default=migration.asked)

    def _offsets(self, epoch: int) -> dict[str, int]:
        """Where the source is after an epoch."""
        spark_log = self._directory / "checkpoint" / SPARK
        offsets: dict[str, int] = json.loads(source_offsets(spark_log, epoch)[0])
        return offsets

    def _listen(self, report: gw.EpochReport) -> None:
        """An epoch has been delivered."""
        now, offsets = time.time(), self._offsets(report.epoch)
        operators = report.operators.values()
        epoch = Epoch(
            report.epoch,
            self._next,
            offsets["event"],
            now - offsets["began"] / SECOND,
            {operator.name: operator.moved for operator in operators if operator.moved},
            sum(operator.fetched for operator in operators),
        )
        self._report.epochs.append(epoch)
        self._next = epoch.last
        if epoch.last > epoch.first:
            worst = self._report.latencies(epoch).max() / SECOND
            self._say(
                f"{epoch.delivered:.1f} s: epoch {epoch.number}, {epoch.last:,} of "
                f"{self._events:,} events, latency {worst:.2f} s"
                + "".join(f", {n} bins of {name} moved" for name, n in epoch.moved.items())
            )


@contextmanager
def local_session(master: str) -> Iterator[SparkSession]:
    """A local Spark that logs nothing; it ends with the context."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master(master)
        .appName("godwit run")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()
