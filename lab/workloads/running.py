"""Running a workload in an open loop, and moving its state meanwhile.

The source never waits: event n takes place at its time, whether or not those before it have been
processed. What is measured is in `report`.
"""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery as Spark

import godwit as gw
from godwit.errors import ConfigError
from godwit.inspect.sizes import bytes_by_bin
from godwit.inspect.targets import Planner
from godwit.log.history import History
from godwit.log.layout import SPARK
from godwit.log.spark_log import source_offsets
from godwit.migration.strategies import left, parse
from godwit.model.routing import check_workers
from godwit.model.time import micros
from godwit.worker.replicas import read_reports
from lab.workloads.catalog import Workload
from lab.workloads.executors import processes
from lab.workloads.memory import processor_seconds, proportional_mib, sampled
from lab.workloads.rate import SECOND, Rate
from lab.workloads.report import Epoch, Migration, Report, Usage
from lab.workloads.source import register

BINS: Final = 4096

Say = Callable[[str], None]

REBALANCE: Final[Literal["rebalance"]] = "rebalance"

_MOVE: Final = re.compile(r"at (.+?) (?:to (\d+) workers?|rebalance)(?: with (\S+))?")


@dataclass(frozen=True, slots=True)
class Move:
    """A migration that is asked for so many seconds after the begin: to a number of workers, to a
    routing, or to what balances the load that was measured until then (`rebalance`). Which bins
    workers get is up to a `planner`, if there is one; `projected` costs are for `markov`."""

    at: float
    target: int | gw.Routing | Literal["rebalance"]
    strategy: str = "paced"
    planner: Planner | None = None
    projected: Path | None = None

    @classmethod
    def parse(cls, text: str) -> "Move":
        """
        >>> move = Move.parse("at 20s to 4 workers with batched:64")
        >>> move.at, move.target, move.strategy
        (20.0, 4, 'batched:64')
        >>> Move.parse("at 20s rebalance").target
        'rebalance'
        """
        if (found := _MOVE.fullmatch(text.strip())) is None:
            raise ConfigError(
                f"'{text}' is no move; write it like 'at 20s to 4 workers with paced' or "
                "'at 20s rebalance'"
            )
        strategy = found[3] or "paced"
        parse(strategy)
        at = micros(found[1]) / SECOND
        return cls(at, int(found[2]) if found[2] else REBALANCE, strategy)

    def ask(self, query: gw.Query, operator: str) -> gw.Migration:
        """Begin the migration of an operator."""
        if isinstance(self.target, int) and self.planner is not None:
            return query.rescale(
                self.target,
                operator,
                planner=self.planner,
                projected=self.projected,
                strategy=self.strategy,
                supersede=True,
            )
        if isinstance(self.target, str):
            return query.rebalance(None, operator, strategy=self.strategy, supersede=True)
        return query.migrate(self.target, operator, strategy=self.strategy, supersede=True)


@dataclass(frozen=True, slots=True)
class Departure:
    """The executor of worker 0 leaves so many seconds after the begin: it is killed, or drained."""

    at: float
    how: Literal["killed", "drained"] = "killed"


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be run: `warm_up` seconds at the begin are not measured.

    An epoch takes all events whose time has come, or at most `epoch_events` of them.
    """

    workload: Workload
    rate: Rate
    workers: int
    seconds: float
    warm_up: float
    moves: tuple[Move | Departure, ...] = ()
    bins: int = BINS
    epoch_events: int | None = None
    replicas: int = 0  # of each worker, on other executors

    def check(self) -> None:
        """Refuse what cannot be run."""
        check_workers(self.workers)
        if not 0 <= self.warm_up < self.seconds:
            raise ConfigError(
                f"a run of {self.seconds:g} s leaves nothing to measure after a warm-up of "
                f"{self.warm_up:g} s"
            )
        for move in self.moves:
            if isinstance(move, Move) and isinstance(move.target, int):
                check_workers(move.target)
            if move.at >= self.seconds:
                raise ConfigError(f"a move at {move.at:g} s comes after the end of the run")

    @property
    def events(self) -> int:
        return self.rate.until(int(self.seconds * SECOND))

    def rows(self, spark: SparkSession) -> DataFrame:
        """The events as a stream."""
        register(spark)
        source = spark.readStream.format(self.workload.source)
        source = source.options(rate=str(self.rate), events=self.events, **self.workload.options)
        if self.epoch_events is not None:
            source = source.option("epochEvents", self.epoch_events)
        return source.load()

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload.name,
            "rate": str(self.rate),
            "workers": self.workers,
            "seconds": self.seconds,
            "bins": self.bins,
            "epoch_events": self.epoch_events,
            "replicas": self.replicas,
        }


def run(spark: SparkSession, wanted: Run, directory: Path, say: Say) -> Report:
    """Run a workload to the end of its stream, in a directory of its own, with all moves."""
    made = wanted.workload.make(wanted.rows(spark))
    if wanted.moves and not isinstance(made, gw.Stream):
        raise ConfigError(f"{wanted.workload.name} has no state that could move; name no move")
    checkpoint = directory / "checkpoint"
    with sampled() as memory:
        if isinstance(made, gw.Stream):
            recorder = Recorder(wanted, checkpoint / SPARK, say)
            Runner(wanted, recorder, directory, say).run(made, wanted.workload.initial(spark))
        else:
            recorder = Recorder(wanted, checkpoint, say)
            end_on_spark(start_on_spark(wanted, recorder, directory, made), recorder)
    report = recorder.report
    report.memory = [(at - recorder.began, mib) for at, mib in memory]
    return report


class Recorder:
    """Notes when epochs are delivered; Spark's log of the query says which events they have."""

    def __init__(self, wanted: Run, spark_log: Path, say: Say) -> None:
        self.report = Report(wanted.rate, wanted.warm_up, wanted.to_json())
        self.report.closing = wanted.workload.closing
        self.began = 0.0  # seconds since 1970, once an epoch has been delivered
        self.has_begun = threading.Event()
        self._events = wanted.events
        self._spark_log = spark_log
        self._say = say

    @property
    def is_over(self) -> bool:
        """Have all events been delivered?"""
        return bool(self.report.epochs) and self.report.epochs[-1].last >= self._events

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
        delivered = now - self.began
        events = (first, offsets["event"])
        epoch = Epoch(number, *events, delivered, dict(moved), share, dict(fetched))
        self.report.epochs.append(epoch)
        self.has_begun.set()
        if epoch.last > epoch.first:
            worst = self.report.latencies(self.report.answered()[-1]).max() / SECOND
            self._say(
                f"{delivered:.1f} s: epoch {number}, {epoch.last:,} of {self._events:,} events, "
                f"latency {worst:.2f} s"
                + "".join(f", {n} bins of {name} moved" for name, n in moved.items())
            )


class Runner:
    """One run of a workload of Godwit's."""

    def __init__(self, wanted: Run, recorder: Recorder, directory: Path, say: Say) -> None:
        self._run = wanted
        self._recorder = recorder
        self._directory = directory
        self._say = say
        self._query: gw.Query | None = None
        self.homes: dict[int, Sequence[str]] = {}  # executors of workers, by epoch

    def run(self, stream: gw.Stream, initial: Mapping[str, DataFrame]) -> None:
        used = processor_seconds()
        checkpoint = self._directory / "checkpoint"
        query = self._query = stream.to(gw.files(self._directory / "output")).start(
            checkpoint,
            workers=self._run.workers,
            bins=self._run.bins,
            initial=initial,
            replicas=self._run.replicas,
            listener=self._listen,
        )
        report = self._recorder.report
        asked: list[tuple[Migration, gw.Migration]] = []
        leaving: list[tuple[Migration, str]] = []
        try:
            while not self._recorder.has_begun.wait(1.0) and query.is_active:
                pass
            for move in sorted(self._run.moves, key=lambda move: move.at):
                self._await(query, move.at)
                if isinstance(move, Departure):
                    leaving += self._depart(query, move)
                else:
                    asked += self._ask(query, move)
            while not self._recorder.is_over and query.is_active:
                query.await_epoch((query.epoch or 0) + 1, 1.0)
            query.process_all_available()  # lets open migrations end, and then the windows
            report.usage = _usage(History(checkpoint), processor_seconds() - used)
            with suppress(gw.RefusedError):  # there is no event time
                query.finish()
        finally:
            query.stop()
        moved = [replace(one, outcome=handle.outcome) for one, handle in asked]
        report.migrations = [replace(one, ended=_end(report, moved, one)) for one in moved]
        report.migrations += [self.departed(one, executor) for one, executor in leaving]

    def _await(self, query: gw.Query, at: float) -> None:
        """Wait until the time has come."""
        while (now := self._now) < at and query.is_active:
            query.await_epoch((query.epoch or 0) + 1, at - now)

    @property
    def _now(self) -> float:
        return time.time() - self._recorder.began

    def _depart(self, query: gw.Query, departure: Departure) -> Iterator[tuple[Migration, str]]:
        """Let an executor leave, with the bins of all its workers."""
        placement = query.placement
        if placement is None or len(placement.executors) < 2:
            raise ConfigError("an executor can leave only where workers are pinned to several")
        executor, now = placement.homes[0], self._now
        self._say(f"{now:.1f} s: executor {executor} is {departure.how}")
        if departure.how == "killed":
            context = SparkSession.active().sparkContext
            os.kill(processes(context)[executor], signal.SIGKILL)
        else:
            query.drain(executor)
        for name in query.operators:
            homes = np.array(placement.homes)[query.routing(name).owners]
            share = float(np.mean(homes == executor))
            bins = int(np.sum(homes == executor))
            yield Migration(name, f"executor {departure.how}", bins, share, now), executor

    def departed(self, migration: Migration, executor: str) -> Migration:
        """It has ended with the first epoch in which no worker was on that executor."""
        for epoch in self._recorder.report.epochs:
            homes = self.homes.get(epoch.number, [executor])
            if epoch.delivered > migration.asked and executor not in homes:
                return replace(migration, ended=epoch.delivered, outcome="done")
        return migration

    def _ask(self, query: gw.Query, move: Move) -> Iterator[tuple[Migration, gw.Migration]]:
        """Move all operators."""
        now = self._now
        for name in query.operators:
            before = query.routing(name)
            handle = move.ask(query, name)
            target = handle.request.target
            bins = left(before, target)
            last = History(self._directory / "checkpoint").last()
            trees = [tree.unpack() for tree in last.trees[name].values()] if last else []
            sizes = bytes_by_bin(trees, before.bins)
            share = float(sizes[bins].sum() / max(sizes.sum(), 1.0))
            self._say(
                f"{now:.1f} s: {name} to {target.workers} workers, {move.strategy}: {len(bins):,} "
                f"bins, {share:.0%} of the state"
            )
            yield Migration(name, move.strategy, len(bins), share, now), handle

    def _listen(self, report: gw.EpochReport) -> None:
        if self._query is not None and (placement := self._query.placement) is not None:
            self.homes[report.epoch] = placement.homes
        operators = report.operators.values()
        records = sum(operator.records for operator in operators)
        self._recorder.deliver(
            report.epoch,
            {operator.name: operator.moved for operator in operators if operator.moved},
            sum(operator.moved_records for operator in operators) / max(records, 1),
            {operator.name: operator.fetched for operator in operators if operator.fetched},
        )


def _usage(history: History, seconds: float) -> Usage:
    """What all processes and, as they say, keepers have used."""
    keepers = read_reports(history.files.root, history.newest_generation()).values()
    return Usage(
        seconds,
        sum(keeper.seconds for keeper in keepers),
        sum(keeper.bytes for keeper in keepers),
        proportional_mib([keeper.pid for keeper in keepers]),
    )


def _end(report: Report, others: Sequence[Migration], migration: Migration) -> float | None:
    """When the outputs of the last bins that moved became visible; None if it is open."""
    if migration.outcome == "open":
        return None
    later = [one.asked for one in others if one.operator == migration.operator]
    until = min((at for at in later if at > migration.asked), default=float("inf"))
    moved = [
        epoch.delivered
        for epoch in report.epochs
        if migration.operator in epoch.moved and migration.asked <= epoch.delivered < until
    ]
    return max(moved, default=migration.asked)


def start_on_spark(
    wanted: Run, recorder: Recorder, directory: Path, rows: DataFrame, period: float = 0.0
) -> Spark:
    """Start what is Spark's own business, at most an epoch a `period` of seconds; the outputs of an
    epoch are files in a directory of its own."""

    def deliver(outputs: DataFrame, epoch: int) -> None:
        outputs.write.mode("overwrite").parquet(str(directory / "output" / f"epoch={epoch}"))
        recorder.deliver(epoch)

    writer = rows.writeStream.foreachBatch(deliver).outputMode(wanted.workload.mode)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(processingTime=f"{period} seconds").start()


def end_on_spark(query: Spark, recorder: Recorder) -> None:
    """Let it run to the end of its stream."""
    try:
        while not recorder.is_over and query.isActive:
            query.awaitTermination(1)
        query.processAllAvailable()
    finally:
        query.stop()
