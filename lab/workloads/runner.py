"""Running a workload in an open loop, and moving its state meanwhile.

The source never waits: event n takes place at its time, whether or not those before it have been
processed. What is measured is in `report`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.errors import ConfigError
from godwit.inspect.sizes import bytes_by_bin
from godwit.log.history import History
from godwit.log.layout import SPARK
from godwit.migration.strategies import left
from godwit.model.text import plural
from godwit.worker.replicas import read_reports
from lab.tools.executors import kill
from lab.tools.processes import processor_seconds, proportional_mib, sampled
from lab.tools.spark_query import start
from lab.workloads.catalog import Results
from lab.workloads.plan import Departure, ScheduledMove, WorkloadRun
from lab.workloads.recorder import Recorder, Say
from lab.workloads.report import ObservedMigration, RunReport, Usage

PATIENCE: Final = 120.0  # seconds after the last event that migrations may take to end

INTERRUPTED: Final = "it was interrupted"


def run(
    spark: SparkSession,
    wanted: WorkloadRun,
    directory: Path,
    say: Say,
    report: RunReport | None = None,
) -> RunReport:
    """Run a workload to the end of its stream, in a directory of its own, with all moves.

    The report is filled as the run goes on: whoever passes one in has it, however the run ends.
    """
    report = wanted.report() if report is None else report
    made = wanted.workload.make(wanted.rows(spark))
    if wanted.moves and isinstance(made, DataFrame):
        raise ConfigError(f"{wanted.workload.name} has no state that could move; name no move")
    checkpoint = directory / "checkpoint"
    spark_log = checkpoint if isinstance(made, DataFrame) else checkpoint / SPARK
    recorder = Recorder(report, wanted.events, spark_log, say)
    with sampled() as memory, recorder.never_silent():
        try:
            if isinstance(made, DataFrame):
                run_on_spark(start_on_spark(wanted, recorder, directory, made), recorder)
            else:
                Runner(wanted, recorder, directory).run(made, wanted.workload.initial(spark))
        except BaseException as error:
            is_interrupted = isinstance(error, KeyboardInterrupt)
            report.ending = INTERRUPTED if is_interrupted else f"it failed: {_first_line(error)}"
            raise
        finally:
            report.memory = [(at - recorder.began, mib) for at, mib in memory if recorder.began]
    return report


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class Runner:
    """One run of a workload of Godwit's."""

    def __init__(self, wanted: WorkloadRun, recorder: Recorder, directory: Path) -> None:
        self._run = wanted
        self._recorder = recorder
        self._directory = directory
        self._query: gw.Query | None = None
        self._asked: list[tuple[ObservedMigration, gw.Migration]] = []
        self._leaving: list[tuple[ObservedMigration, str]] = []
        self.homes: dict[int, Sequence[str]] = {}  # executors of workers, by epoch

    def run(self, made: gw.Stream | Results, initial: Mapping[str, DataFrame]) -> None:
        used = processor_seconds()
        checkpoint = self._directory / "checkpoint"
        results = {"": made} if isinstance(made, gw.Stream) else made
        output = self._directory / "output"
        ends = [stream.to(gw.files(output / name)) for name, stream in results.items()]
        query = self._query = gw.query(*ends).start(
            checkpoint,
            workers=self._run.workers,
            options=gw.Options(bins=self._run.bins, replicas=self._run.replicas),
            initial=initial,
            listener=self._listen,
        )
        try:
            self._play(query)
            self._end(query)
            self._recorder.report.usage = _usage(History(checkpoint), processor_seconds() - used)
            if not self._open():
                self._recorder.wait_for(lambda: "the windows that are left to close")
                with suppress(gw.RefusedError):  # there is no event time
                    query.finish()
        finally:
            self._recorder.wait_for(lambda: "the query to stop")
            query.stop()
            self._recorder.report.migrations = self._migrations()

    def _play(self, query: gw.Query) -> None:
        """Deliver all events, with all moves."""
        recorder = self._recorder
        while not recorder.has_begun.wait(1.0) and query.is_active:
            pass
        recorder.wait_for(lambda: "the next epoch")
        for move in sorted(self._run.moves, key=lambda move: move.at):
            while (now := recorder.now) < move.at and query.is_active:
                query.await_epoch((query.epoch or 0) + 1, move.at - now)
            if isinstance(move, Departure):
                self._leaving += self._depart(query, move)
            else:
                self._asked += self._ask(query, move)
        while not recorder.is_over and query.is_active:
            query.await_epoch((query.epoch or 0) + 1, 1.0)

    def _end(self, query: gw.Query) -> None:
        """Let migrations end, if they do so in time."""
        recorder = self._recorder
        if self._open():
            recorder.say(f"all events are delivered; {self._open()}")
        recorder.wait_for(lambda: self._open() or "the last epoch")
        end = time.monotonic() + PATIENCE
        for _, handle in self._asked:
            handle.wait(max(0.0, end - time.monotonic()))
        if not self._open():
            query.process_all_available()
            return
        recorder.report.ending = f"a migration had not ended {PATIENCE:.0f} s after the last event"
        recorder.say(f"given up: {self._open()}")

    def _open(self) -> str:
        """Which migrations are open, and how far they are."""
        some = [handle for _, handle in self._asked if handle.outcome == "open"]
        told = [f"{', '.join(one.operators)}: {_progress(one)}" for one in some]
        return f"{plural(len(some), 'open migration')} ({', '.join(told)})" if some else ""

    def _migrations(self) -> list[ObservedMigration]:
        """What became of all of them so far."""
        report = self._recorder.report
        moved = [replace(one, outcome=handle.outcome) for one, handle in self._asked]
        ended = [replace(one, ended=_end(report, moved, one)) for one in moved]
        return ended + [self.departed(one, executor) for one, executor in self._leaving]

    def _depart(
        self, query: gw.Query, departure: Departure
    ) -> Iterator[tuple[ObservedMigration, str]]:
        """Let an executor leave, with the bins of all its workers."""
        placement = query.placement
        if placement is None or len(placement.executors) < 2:
            raise ConfigError("an executor can leave only where workers are pinned to several")
        executor, now = placement.homes[0], self._recorder.now
        self._recorder.say(f"executor {executor} is {departure.how}")
        if departure.how == "killed":
            kill(SparkSession.active().sparkContext, executor)
        else:
            query.drain(executor)
        for name in query.operators:
            homes = np.array(placement.homes)[query.routing(name).owners]
            share = float(np.mean(homes == executor))
            bins = int(np.sum(homes == executor))
            yield ObservedMigration(name, f"executor {departure.how}", bins, share, now), executor

    def departed(self, migration: ObservedMigration, executor: str) -> ObservedMigration:
        """It has ended with the first epoch in which no worker was on that executor."""
        for epoch in self._recorder.report.epochs:
            homes = self.homes.get(epoch.number, [executor])
            if epoch.delivered > migration.asked and executor not in homes:
                return replace(migration, ended=epoch.delivered, outcome="done")
        return migration

    def _ask(
        self, query: gw.Query, move: ScheduledMove
    ) -> Iterator[tuple[ObservedMigration, gw.Migration]]:
        """Move all operators."""
        now = self._recorder.now
        for name in query.operators:
            before = query.routing(name)
            handle = move.ask(query, name)
            target = handle.target
            bins = left(before, target)
            last = History(self._directory / "checkpoint").last()
            trees = [tree.unpack() for tree in last.trees[name].values()] if last else []
            sizes = bytes_by_bin(trees, before.bins)
            share = float(sizes[bins].sum() / max(sizes.sum(), 1.0))
            self._recorder.say(
                f"{name} to {target.workers} workers, {move.strategy}: {len(bins):,} bins, "
                f"{share:.0%} of the state"
            )
            yield ObservedMigration(name, move.strategy, len(bins), share, now), handle

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


def _progress(migration: gw.Migration) -> str:
    progress = migration.progress
    return f"{progress.arrived:,} of {progress.bins:,} bins"


def _usage(history: History, seconds: float) -> Usage:
    """What all processes and, as they say, keepers have used."""
    keepers = read_reports(history.files, history.newest_generation()).values()
    return Usage(
        seconds,
        sum(keeper.seconds for keeper in keepers),
        sum(keeper.bytes for keeper in keepers),
        proportional_mib([keeper.pid for keeper in keepers]),
    )


def _end(
    report: RunReport, others: Sequence[ObservedMigration], migration: ObservedMigration
) -> float | None:
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
    wanted: WorkloadRun,
    recorder: Recorder,
    directory: Path,
    rows: DataFrame,
    period: float = 0.0,
) -> StreamingQuery:
    """Start what is Spark's own business, at most an epoch a `period` of seconds; the outputs of an
    epoch are files in a directory of its own."""

    def deliver(outputs: DataFrame, epoch: int) -> None:
        outputs.write.mode("overwrite").parquet(str(directory / "output" / f"epoch={epoch}"))
        recorder.deliver(epoch)

    checkpoint = directory / "checkpoint"
    return start(rows, checkpoint, deliver, mode=wanted.workload.mode, period=period)


def run_on_spark(query: StreamingQuery, recorder: Recorder) -> None:
    """Let it run to the end of its stream."""
    try:
        while not recorder.is_over and query.isActive:
            query.awaitTermination(1)
        query.processAllAvailable()
    finally:
        query.stop()
