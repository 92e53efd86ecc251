"""Figure 1 of Megaphone: latency over time while a quarter of the state moves.

Each strategy has a run of its own over the same state. Beside them Spark's own way: its query is
stopped between two epochs, its checkpoint repartitioned from 2 to 4, and the query started again.
"""

import time
from functools import partial
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lab.experiments.laboratory import Lab
from lab.experiments.moves import WORKERS, one_each
from lab.tools.page import Findings
from lab.tools.session import scratch
from lab.tools.spark_query import await_gap, use_store
from lab.workloads.catalog import NUMBERED, Workload
from lab.workloads.known_counts import hash_counts
from lab.workloads.overview import overview
from lab.workloads.plan import WorkloadRun
from lab.workloads.rate import Rate
from lab.workloads.recorder import Recorder
from lab.workloads.report import ObservedMigration, RunReport
from lab.workloads.runner import run_on_spark, start_on_spark
from lab.workloads.spark_queries import count_by_group

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
    wanted = WorkloadRun(hash_counts(keys), Rate.parse("10k"), WORKERS, seconds, warm_up, bins=bins)
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


def own_way(lab: Lab, spark: SparkSession, keys: int, seconds: float) -> RunReport:
    """Spark's query fills its store, catches up, and is repartitioned after half of the time."""
    use_store(spark, "rocksdb")
    filling = max(10, keys // 80_000)  # seconds
    rate = Rate.parse(f"{keys // filling} for {filling} s, 10k for {10 * seconds} s")
    workload = Workload(OWN_WAY, NUMBERED, partial(count_by_group, keys=keys), mode="update")
    wanted = WorkloadRun(workload, rate, 2, filling + seconds, filling, epoch_events=EPOCH)
    with scratch() as directory:
        checkpoint = directory / "checkpoint"
        recorder = Recorder(
            wanted.report(), wanted.events, checkpoint, lambda line: lab.say(f"  {line}")
        )

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
            await_gap(query, PERIOD / 2)  # Spark repartitions only what is whole
        finally:
            query.stop()
        asked = recorder.now
        recorder.say("stopped")
        spark._streamingCheckpointManager.repartition(str(checkpoint), 4)
        recorder.say("repartitioned")
        before = len(recorder.report.epochs)
        run_on_spark(start(4), recorder)
    report = recorder.report
    report.about = {**report.about, "label": OWN_WAY}
    ended = report.epochs[before].delivered
    report.migrations = [ObservedMigration("counts", "restart", 0, 1.0, asked, ended, "done")]
    return report
