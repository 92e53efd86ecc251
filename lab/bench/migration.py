"""What does a migration cost the epochs that it runs in? By strategy and by the size of the state.

Two executors with a worker each, without replicas. A quarter of the state moves from the one to the
other. Executors read the checkpoint at no more than 1 Gbit/s, as if it were behind a network. The
epochs of each turn are compared with those before the migration in the same turn. Each turn starts
with a copy of the same checkpoint and with empty caches, which its first epochs fill.

Beside that, Spark's own way with the same state in its own store: to stop the query, to repartition
its checkpoint from 2 to 4 and to start it again. Its records come at a steady rate. Its outage is
the time from the last output before to the first one after that leaves no record waiting.
"""

import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.cli.output import note
from godwit.log.history import History
from lab.bench.application import WORKERS, Bench
from lab.bench.results import BenchResults, show, spread
from lab.tools import spark_query
from lab.tools.processes import sampled
from lab.tools.session import PLACED
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, reported
from lab.workloads.profiles import FETCH_RATE, FILLING, OPERATOR, ROW_BYTES, ROWS, Profiles, padded

BINS = 128
SIZES = (256, 512, 1024)  # MiB
STEADY = 12  # epochs
REPETITIONS = 7
FEWER = 2  # for those of which no more is claimed than that they are in between
STRATEGIES = ("all-at-once", "fluid", "batched:8", "matched", "paced")
CLAIMED = ("all-at-once", "paced")
PERIOD = 5.0  # seconds: as often come the records of an epoch of Spark's
OUTAGES = 2  # repetitions
LONGEST = 600.0  # seconds
CONF = {
    "spark.master": f"local-cluster[{WORKERS},1,2048]",
    **PLACED,
    "spark.locality.wait": "60s",
}


@dataclass(frozen=True, slots=True)
class MigrationTurn:
    """Epochs in seconds: before a migration, and from its request to its end; and memory in MiB."""

    steady: list[float]
    moving: list[float]
    fetched: int
    steady_memory: float
    moving_memory: float

    @property
    def slower(self) -> float:
        """The longest epoch while state moves, by the longest before."""
        return max(self.moving) / max(self.steady)


def run(bench: Bench) -> None:
    sizes = [bench.pick(size, size // 16) for size in SIZES]
    repetitions = bench.pick(REPETITIONS, 1)
    report = BenchResults(
        "migration",
        bench,
        {
            "bins": BINS,
            "rows": ROWS,
            "steady_epochs": STEADY,
            "migrations": repetitions,
            "spark_seconds_between_epochs": PERIOD,
            "fetch_rate": FETCH_RATE,
        },
    )
    lines = []
    for size in sizes:
        if bench.only and bench.only != str(size):
            continue
        note(f"  {size} MiB")
        turns: dict[str, list[MigrationTurn]] = {strategy: [] for strategy in STRATEGIES}
        for repetition in range(repetitions):
            for strategy in STRATEGIES if repetition < FEWER else CLAIMED:
                turn = _turn(bench, size, strategy)
                turns[strategy].append(turn)
                note(
                    f"    {repetition + 1}/{repetitions} {strategy}: longest epoch "
                    f"{max(turn.steady):.2f} s, moving {max(turn.moving):.2f} s "
                    f"in {len(turn.moving)} epochs, {turn.fetched >> 20} MiB fetched"
                )
        outages = spread([_outage(bench, size) for _ in range(bench.pick(OUTAGES, 1))])
        note(f"    spark, repartitioned: an outage of {show(outages)} s")
        report.add({"mib": size, "strategy": "spark"}, outage=outages)
        for strategy, each in turns.items():
            found = _summary(each)
            report.add({"mib": size, "strategy": strategy}, **found)
            lines.append([size, strategy, *(show(found[name]) for name in found)])
    show_table(
        [
            "MiB",
            "strategy",
            "steady max s",
            "moving max s",
            "x steady",
            "epochs",
            "MiB",
            "x memory",
        ],
        lines,
    )


def _summary(turns: list[MigrationTurn]) -> dict[str, Any]:
    return {
        "steady_max": spread([max(turn.steady) for turn in turns]),
        "moving_max": spread([max(turn.moving) for turn in turns]),
        "slower": spread([turn.slower for turn in turns]),
        "epochs": spread([len(turn.moving) for turn in turns]),
        "fetched_mib": spread([turn.fetched / 2**20 for turn in turns]),
        "memory": spread([turn.moving_memory / turn.steady_memory for turn in turns]),
    }


def _turn(bench: Bench, size: int, strategy: str) -> MigrationTurn:
    origin = bench.directory / f"profiles-{size}"
    profiles = _profiles(bench, size)
    if not origin.exists():
        sink, query = _start(profiles, origin)
        sink.wait(query.spark_query, 1)
        query.stop()
    checkpoint = _copied(origin)
    sink, query = _start(profiles, checkpoint)
    try:
        first = sink.wait(query.spark_query, 1)
        settled = _settled(query, checkpoint, sink, first)
        with sampled() as before:
            sink.wait(query.spark_query, settled + STEADY - first)
        with sampled() as during:
            asked = query.epoch or 0
            quarter = gw.Routing(np.repeat(np.array([0, 1, 1, 1], np.int32), BINS // 4), WORKERS)
            migration = query.migrate(quarter, strategy=strategy)
            assert migration.wait() == "done"
            last = query.epoch or 0
            sink.wait(query.spark_query, last + 2 - first)
        epochs = {e.number: e.seconds for e in reported(query.spark_query, last + 1)}
    finally:
        query.stop()
    history = History(checkpoint)
    manifests = [history.manifest(epoch) for epoch in range(asked + 1, last + 2)]
    return MigrationTurn(
        steady=[epochs[number] for number in range(settled, settled + STEADY)],
        moving=[epochs[number] for number in range(asked + 1, last + 2)],
        fetched=sum(r.fetched for m in manifests if m for r in m.receipts[OPERATOR]),
        steady_memory=max(mib for _, mib in before),
        moving_memory=max(mib for _, mib in during),
    )


def _profiles(bench: Bench, mib: int) -> Profiles:
    return Profiles(bench.spark, mib * 2**20 // ROW_BYTES, padded, WORKERS)


def _start(profiles: Profiles, checkpoint: Path) -> tuple[EpochCounter, gw.Query]:
    sink = EpochCounter()
    query = (
        profiles.stream()
        .to(gw.foreach_batch(lambda rows, epoch: sink.note(epoch)))
        .start(
            checkpoint,
            workers=WORKERS,
            options=gw.Options(bins=BINS, retention=1000, replicas=0, fetch_rate=FETCH_RATE),
            initial=profiles.initial(checkpoint),
        )
    )
    return sink, query


def _outage(bench: Bench, size: int) -> float:
    """Seconds without output, while Spark's query is stopped, repartitioned and started again."""
    origin = bench.directory / f"spark-{size}"
    profiles = _profiles(bench, size)
    spark_query.use_store(bench.spark, "rocksdb")

    def start(
        checkpoint: Path, rows: int, partitions: int, period: float
    ) -> tuple[EpochCounter, StreamingQuery]:
        bench.spark.conf.set("spark.sql.shuffle.partitions", partitions)
        sink = EpochCounter()
        return sink, spark_query.start(profiles.on_spark(rows), checkpoint, sink, period=period)

    if not origin.exists():
        sink, query = start(origin, profiles.filling_rows, WORKERS, PERIOD)
        sink.wait(query, FILLING)
        spark_query.await_gap(query)
        query.stop()
    checkpoint = _copied(origin)
    sink, query = start(checkpoint, ROWS, WORKERS, PERIOD)
    sink.wait(query, 3)
    began = spark_query.await_gap(query)
    query.stop()
    bench.spark._streamingCheckpointManager.repartition(str(checkpoint), 2 * WORKERS)
    sink, query = start(checkpoint, ROWS, 2 * WORKERS, period=0)
    answered = 0
    while (outage := time.monotonic() - began) > answered * PERIOD:
        answered += 1
        if outage > LONGEST:
            raise TimeoutError(f"Spark has not caught up after {outage:.0f} s")
        sink.wait(query, answered)
    query.stop()
    return outage


def _copied(origin: Path) -> Path:
    """A copy in a place of its own: tasks of a query that was stopped may still write to theirs."""
    for old in origin.parent.glob("turn-*"):
        shutil.rmtree(old, ignore_errors=True)
    checkpoint = origin.parent / f"turn-{uuid.uuid4().hex}"
    shutil.copytree(origin, checkpoint, symlinks=True)
    return checkpoint


def _settled(query: gw.Query, checkpoint: Path, sink: EpochCounter, first: int) -> int:
    """The first epoch after three in which nobody had to fetch anything."""
    epoch, quiet = first, 0
    history = History(checkpoint)
    while quiet < 3:
        epoch += 1
        sink.wait(query.spark_query, epoch + 1 - first)
        manifest = history.manifest(epoch)
        assert manifest is not None
        fetched = sum(receipt.fetched for receipt in manifest.receipts[OPERATOR])
        quiet = 0 if fetched else quiet + 1
    return epoch + 1
