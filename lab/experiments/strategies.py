"""Figure 1 of Megaphone: latency over time while a quarter of the state moves.

Each strategy has a run of its own over the same state. Beside them Spark's own way: its query is
stopped between two epochs, its checkpoint repartitioned from 2 to 4, and the query started again.
"""

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lab.experiments.lab import (
    WORKERS,
    Lab,
    hash_counts,
    one_each,
    overview,
)
from lab.experiments.page import Findings
from lab.experiments.spark_queries import count_by_group, use_rocksdb
from lab.workloads.catalog import NUMBERED, Workload
from lab.workloads.rate import Rate
from lab.workloads.report import Migration, Report
from lab.workloads.running import Recorder, Run, end_on_spark, start_on_spark

NAMES: Final = ("all-at-once", "fluid", "batched:16", "matched", "paced")
BINS: Final = 256
OWN_WAY: Final = "Spark: stop, repartition, restart"
EPOCH: Final = 200_000  # events of Spark's epochs while it fills its store
PERIOD: Final = 2.0  # seconds from one of its epochs to the next, so that it can be stopped between


def strategies(lab: Lab) -> Findings:
    """How does a migration disturb a query, by strategy, and Spark's own way beside it?"""
    keys = lab.pick(6_000_000, 200_000)
    bins = lab.pick(BINS, 32)
    warm_up, at, seconds = lab.pick((8.0, 16.0, 56.0), (5.0, 8.0, 16.0))
    wanted = Run(hash_counts(keys), Rate.parse("10k"), WORKERS, seconds, warm_up, bins=bins)
    with lab.spark() as spark:
        reports = {
            name: lab.run(spark, name, one) for name, one in one_each(wanted, NAMES, at).items()
        }
        own = partial(own_way, lab, spark, keys, lab.pick(60.0, 40.0))
        reports[OWN_WAY] = lab.other(OWN_WAY, own)
    about = (
        f"Hash count over {keys:,} known keys, 10,000 events a second, 4 workers on 2 executors, "
        f"{bins} bins, of which a quarter moves. Spark draws as many events at random before it is "
        "measured, so it knows about 63 % of the keys; it rewrites all its state, from 2 to 4 "
        "partitions."
    )
    return Findings(overview(reports, about), reports)


def own_way(lab: Lab, spark: SparkSession, keys: int, seconds: float) -> Report:
    """Spark's query fills its store, catches up, and is repartitioned after half of the time."""
    use_rocksdb(spark)
    filling = max(10, keys // 80_000)  # seconds
    rate = Rate.parse(f"{keys // filling} for {filling} s, 10k for {10 * seconds} s")
    workload = Workload(OWN_WAY, NUMBERED, partial(count_by_group, keys=keys), mode="update")
    wanted = Run(workload, rate, 2, filling + seconds, filling, epoch_events=EPOCH)
    with tempfile.TemporaryDirectory(prefix="godwit-") as name:
        directory = Path(name)
        checkpoint = directory / "checkpoint"
        recorder = Recorder(wanted, checkpoint, lambda line: lab.say(f"  {line}"))

        def start(partitions: int) -> StreamingQuery:
            spark.conf.set("spark.sql.shuffle.partitions", partitions)
            rows = count_by_group(wanted.rows(spark), keys)
            return start_on_spark(wanted, recorder, directory, rows, PERIOD)

        query = start(2)
        try:
            while not recorder.has_begun.wait(1.0) and query.isActive:
                pass
            query.awaitTermination(
                max(1, int(recorder.began + filling + seconds / 2 - time.time()))
            )
            _await_gap(query)  # Spark repartitions only what is whole
        finally:
            query.stop()
        asked = time.time() - recorder.began
        lab.say(f"  {asked:.1f} s: stopped")
        spark._streamingCheckpointManager.repartition(str(checkpoint), 4)
        lab.say(f"  {time.time() - recorder.began:.1f} s: repartitioned")
        before = len(recorder.report.epochs)
        end_on_spark(start(4), recorder)
    report = recorder.report
    report.about = {**report.about, "label": OWN_WAY}
    ended = report.epochs[before].delivered
    report.migrations = [Migration("counts", "restart", 0, 1.0, asked, ended, "done")]
    return report


def _await_gap(query: StreamingQuery) -> None:
    """Wait for the end of an epoch after which there is time until the next one."""
    before = query.lastProgress
    while query.isActive:
        newest = query.lastProgress
        if newest is not None and (before is None or newest.batchId > before.batchId):
            if newest.batchDuration < 500 * PERIOD:
                return
            before = newest
        time.sleep(0.01)
