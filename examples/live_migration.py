"""A query over a million keys moves its state from 2 to 4 workers while it runs.

    python examples/live_migration.py [PICTURE]

Two executors with separate local directories, and a stream of page views that come in whether the
query keeps up or not. It runs twice: the state moves all at once, and paced. At the end a table of
latencies, a picture of them, and a check that every count is exactly right.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyspark
from matplotlib import pyplot
from pyspark.sql import SparkSession

import godwit as gw

USERS = 1_000_000
VIEWS_A_SECOND = 5_000
PAGE_BYTES = 300
STRATEGIES = ("all-at-once", "paced")
WARM_UP, STEADY, AFTER = 14, 14, 6  # seconds of the stream
BUSY = 3  # times the median: on a quiet machine the slowest is 1.2 times while nothing moves
SETTLING = 2  # seconds after the last step, in which its epoch may still run
BINS = 4096
NETWORK = 125_000_000  # bytes a second, 1 Gbit/s: all is on one disk here, as it is on no cluster
CLUSTER = {
    "spark.master": "local-cluster[2,2,1536]",
    # So that workers stay where they are; see docs/internals/record.md.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "30s",
    "spark.python.daemon.module": "godwit.spark.daemon",  # Python starts sooner
    "spark.sql.shuffle.partitions": "2",
    # A short run on few cores has no use for the JVM's second compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}


@dataclass(frozen=True, slots=True)
class Run:
    """What was seen of one run; times are seconds since its first view.

    `latencies` has for each second of the stream when its views had all come, and how long after
    that their results were delivered.
    """

    strategy: str
    latencies: list[tuple[float, float]]
    asked: float
    done: float
    bytes_read: int
    exact: bool

    def during(self, moving: bool) -> list[float]:
        """The latencies of views that came while state moved or was first used then, or before."""
        first, last = (self.asked, self.done + SETTLING) if moving else (WARM_UP, self.asked)
        return [wait for at, wait in self.latencies if first <= at + wait and at <= last]


def main() -> None:
    if len(sys.argv) > 2:  # the process of Spark, started below
        for run in play(Path(sys.argv[1])):
            with Path(sys.argv[2]).open("a") as file:
                file.write(json.dumps([getattr(run, name) for name in Run.__slots__]) + "\n")
        return
    picture, began = Path(sys.argv[1] if len(sys.argv) > 1 else "demo.png"), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="godwit-") as home:
        log, results = Path(home, "spark.log"), Path(home, "results")
        os.environ |= {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_WORKER_DIR": home}
        with log.open("wb") as errors:
            command = [sys.executable, __file__, home, str(results)]
            if subprocess.run(command, stderr=errors, check=False).returncode:
                sys.exit(f"it failed; the end of Spark's log:\n{log.read_text()[-3000:]}")
        runs = [Run(*json.loads(line)) for line in results.read_text().splitlines()]
    report(runs)
    draw(runs, picture)
    print(f"\nlatency over time: {picture}; the demo took {time.monotonic() - began:.0f} s")
    if not all(run.exact for run in runs):
        sys.exit(1)


def play(home: Path) -> Iterator[Run]:
    """One run for each strategy, in one Spark application."""
    say("starting Spark: two executors with two cores, each of which reads state at 1 Gbit/s")
    spark = SparkSession.builder.config(map={**CLUSTER}).getOrCreate()
    for strategy in STRATEGIES:
        say(f"\n{strategy}: a state of {USERS:,} users and about {USERS * PAGE_BYTES >> 20} MiB")
        yield migrate(spark, home / strategy, strategy)
    spark.stop()


def migrate(spark: SparkSession, checkpoint: Path, strategy: str) -> Run:
    """Run the query for a while, and move its state in the midst."""
    page = f"lpad({{}}, {PAGE_BYTES}, '/') AS page"
    views = (
        spark.readStream.format("rate")
        .options(rowsPerSecond=VIEWS_A_SECOND, numPartitions=2)
        .load()
        .selectExpr(f"value % {USERS} AS user", page.format("value"), "timestamp")
    )
    reports: list[gw.EpochReport] = []
    known = spark.range(USERS).selectExpr(
        "id AS user", "0L AS views", page.format("id"), "CAST(NULL AS timestamp) AS since"
    )
    query = (
        gw.stream(views)
        .aggregate(
            "users",
            key="user",
            views=gw.count(),
            page=gw.max("page"),
            since=gw.min("timestamp"),
        )
        .to(gw.files(checkpoint.with_suffix(".output")))
        .start(
            checkpoint,
            workers=2,
            # With replicas on both executors there would be nothing to fetch.
            options=gw.Options(bins=BINS, replicas=0, fetch_rate=NETWORK),
            initial={"users": known},
            listener=reports.append,
        )
    )
    say("  2 workers count the views that come in")
    await_second(query, WARM_UP + STEADY)
    asked, steady = time.time(), len(reports)
    migration = query.migrate(gw.Routing.even(BINS, 4), strategy=strategy)
    while migration.wait(timeout=3) == "open":
        progress = migration.progress
        say(f"  moving to 4 workers: {progress.arrived:,} of {progress.bins:,} bins are there")
    done = time.time()
    say(f"  {migration.outcome} after {done - asked:.1f} s")
    await_second(query, last_second(query) + AFTER)
    query.stop()
    fetched = sum(report.operators["users"].fetched for report in reports[steady:])
    return seen(spark, query, checkpoint, strategy, asked, done, fetched)


def await_second(query: gw.Query, second: int) -> None:
    """Wait until the views of the first so many seconds are counted."""
    while last_second(query) < second:
        query.await_epoch((query.epoch or 0) + 1)


def last_second(query: gw.Query) -> int:
    return max((last for _, _, last in epochs(query)), default=0)


def epochs(query: gw.Query) -> Iterator[tuple[float, int, int]]:
    """When each epoch was delivered, and the seconds of the stream that it has: first and last."""
    for progress in query.spark_query.recentProgress:
        began = datetime.fromisoformat(progress.timestamp).timestamp()
        for source in progress.sources:
            first, last = json.loads(source.startOffset), json.loads(source.endOffset)
            if "Rate" in source.description and first is not None:
                yield began + progress.durationMs["triggerExecution"] / 1000, first, last


def seen(
    spark: SparkSession,
    query: gw.Query,
    checkpoint: Path,
    strategy: str,
    asked: float,
    done: float,
    fetched: int,
) -> Run:
    state = gw.read_state(spark, checkpoint, "users")
    began = state.where("user = 0").collect()[0].since.timestamp()
    latencies = [
        (second - began, delivered - second)
        for delivered, first, last in epochs(query)
        for second in (began + number + 1 for number in range(first, last))
    ]
    views = state.agg({"views": "sum"}).collect()[0][0]
    right = state.where(f"views = {views} div {USERS} + int(user < {views} % {USERS})").count()
    say(f"  {views:,} views counted; the counts of {right:,} users are exactly right")
    exact = right == USERS and views >= last_second(query) * VIEWS_A_SECOND
    return Run(strategy, latencies, asked - began, done - began, fetched, exact)


def report(runs: list[Run]) -> None:
    line = "{:12} {:>8} {:>8} {:>10} {:>12}"
    print("\n" + line.format("", "median s", "max s", "duration s", "MiB fetched"))
    steady = [wait for run in runs for wait in run.during(moving=False)]
    rows = [("steady", steady, "", "")]
    for run in runs:
        duration, fetched = f"{run.done - run.asked:.1f}", f"{run.bytes_read / 2**20:.1f}"
        rows.append((run.strategy, run.during(moving=True), duration, fetched))
    for name, waits, duration, fetched in rows:
        median, worst = f"{statistics.median(waits):.2f}", f"{max(waits):.2f}"
        print(line.format(name, median, worst, duration, fetched))
    if max(steady) > BUSY * statistics.median(steady):
        print("\nthe machine was too busy to compare: latencies varied while nothing moved")
    exact = all(run.exact for run in runs)
    print(f"\nlatency: from a view to its result; every count is exactly right: {exact}")


def draw(runs: list[Run], path: Path) -> None:
    """Latency over time, one panel a run, with the time of the migration marked."""
    figure, panels = pyplot.subplots(
        len(runs), sharex=True, sharey=True, figsize=(9, 5), layout="constrained"
    )
    for run, panel in zip(runs, panels, strict=True):
        times = [at for at, _ in run.latencies if at > WARM_UP]
        panel.plot(times, [wait for at, wait in run.latencies if at > WARM_UP], ".-", lw=1)
        panel.axvspan(run.asked, run.done, color="tab:orange", alpha=0.3, label="state moves")
        panel.set_title(f"2 to 4 workers, {run.strategy}", loc="left", fontsize=10)
        panel.set_ylabel("latency, s")
        panel.legend(loc="upper left")
    panels[0].set_ylim(bottom=0)  # of all panels; before the last plot it would fix the top, too
    panels[-1].set_xlabel("seconds since the first view")
    figure.savefig(path, dpi=120)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
