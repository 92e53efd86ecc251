"""How fast does `aggregate` fold sessions and sliding windows, beside Spark's `session_window`
and `window`?

Count and sum of the records of each key, in sessions with gaps of five seconds or in windows of a
minute that slide by a second. Event time goes on by a second an epoch, so that windows close all
the time. A key comes in about one epoch of twenty, which ends a session of most of its visits.
Spark keeps its state in RocksDB, and puts out a window when it closes (append mode).
"""

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from lab.bench.application import WORKERS, Bench
from lab.bench.results import BenchResults, ratios, show, summary
from lab.tools.spark_query import start, use_store
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, TimedQuery, take_turns

DELAY = "2 seconds"
GAP = "5 seconds"
LENGTH, SLIDE = "1 minute", "1 second"
EPOCHS = 8
VISITS = 20  # epochs from a record of a key to the next, on the average


def run(bench: Bench) -> None:
    sizes = {
        "sessions": bench.pick(500_000, 20_000),
        "sliding": bench.pick(20_000, 1_000),  # of which Spark makes sixty times as many
    }
    settings = {"epochs": EPOCHS, "gap": GAP, "length": LENGTH, "slide": SLIDE, "delay": DELAY}
    report = BenchResults("sessions", bench, settings)
    spans: dict[str, tuple[Any, Callable[[str], Column]]] = {
        "sessions": (gw.session(GAP), lambda at: sf.session_window(at, GAP)),
        "sliding": (gw.sliding(LENGTH, SLIDE), lambda at: sf.window(at, LENGTH, SLIDE)),
    }
    lines = []
    for kind, rows in sizes.items():
        ours, spark = spans[kind]
        contenders = [_ours(bench, kind, ours, rows), _sparks(bench, kind, spark, rows)]
        turns = take_turns(contenders, bench.repetitions, EPOCHS)
        found = {name: summary(turn) for name, turn in turns.items()}
        over = ratios(*(turns[one.name] for one in contenders))
        report.add({"windows": kind, "rows": rows}, **found, ratio=over)
        for name, one in found.items():
            rate, seconds = show(one["records_per_second"], "{:,.0f}"), one["epoch_seconds"]
            faster = show(over) if name == contenders[0].name else ""
            lines.append([kind, name, rate, seconds["median"], seconds["p99"], faster])
    show_table(["windows", "contender", "records/s", "epoch s", "p99 s", "x Spark"], lines)


def _records(bench: Bench, rows: int) -> DataFrame:
    """A second an epoch, in the course of which its records come."""
    return bench.source(
        rows,
        f"xxhash64(value) % {rows * VISITS} AS k",
        f"timestamp_micros(value * {1_000_000 // rows}) AS at",
        "value % 1000 AS n",
    )


def _ours(bench: Bench, kind: str, window: Any, rows: int) -> TimedQuery:
    checkpoint = bench.directory / f"godwit-{kind}"

    def launch(sink: EpochCounter) -> StreamingQuery:
        windows = gw.stream(_records(bench, rows)).aggregate(
            kind,
            key="k",
            window=window,
            time="at",
            delay=DELAY,
            records=gw.count(),
            total=gw.sum("n"),
        )
        return windows.to(gw.foreach_batch(sink)).start(checkpoint, workers=WORKERS).spark_query

    return TimedQuery(f"godwit {kind}", checkpoint, launch)


def _sparks(bench: Bench, kind: str, window: Callable[[str], Column], rows: int) -> TimedQuery:
    checkpoint = bench.directory / f"spark-{kind}"

    def launch(sink: EpochCounter) -> StreamingQuery:
        use_store(bench.spark, "rocksdb")
        records = _records(bench, rows).withWatermark("at", DELAY)
        windows = records.groupBy("k", window("at")).agg(sf.count(sf.lit(1)), sf.sum("n"))
        return start(windows, checkpoint, sink, mode="append")

    return TimedQuery(f"spark {kind}", checkpoint, launch)
