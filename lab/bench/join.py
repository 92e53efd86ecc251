"""How fast does `join` match two streams, beside Spark's stream-stream join?

Each side has a record every millisecond of event time, and each record matches about one of the
other side, which came or comes any time within bounds. The bounds say how many rows of state there
are. It is an inner join over the same two sources, with two sizes of epoch for both; Spark's state
is in RocksDB.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.cli.output import note
from lab.bench.application import WORKERS, Bench
from lab.bench.breakdown import PARTS, breakdown
from lab.bench.results import BenchResults, ratios, show, summary
from lab.tools.spark_query import start, use_store
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, TimedQuery, take_turns

OPERATOR = "matched"
EPOCHS = 6
WARM_UP = 2
SCATTER = 7919  # a prime: the right has the keys of the left in another order


def run(bench: Bench) -> None:
    states = [bench.pick(1_000_000, 100_000), bench.pick(10_000_000, 400_000)]
    sizes = [bench.pick(100_000, 20_000), bench.pick(500_000, 50_000)]
    report = BenchResults("join", bench, {"epochs": EPOCHS, "rows_per_epoch": sizes})
    lines, times = [], []
    for state in states:
        note(f"  {state:,} rows of state")
        for make in (_ours, _theirs):
            fill = min(state // 2, bench.pick(1_000_000, 100_000))
            make(bench, state, fill).turn(state // fill, warm_up=0)
        for rows in sizes:
            ours, theirs = _ours(bench, state, rows), _theirs(bench, state, rows)
            turns = take_turns([ours, theirs], bench.repetitions, EPOCHS, WARM_UP)
            found = {name: summary(turn) for name, turn in turns.items()}
            faster = ratios(turns[ours.name], turns[theirs.name])
            parts = breakdown(bench.spark, turns[ours.name], ours.checkpoint, OPERATOR)
            report.add({"state": state, "rows": rows}, **found, ratio=faster, breakdown=parts)
            for name, one in found.items():
                rate, seconds = show(one["records_per_second"], "{:,.0f}"), one["epoch_seconds"]
                told = show(faster) if name == theirs.name else ""
                lines.append([f"{state:,}", f"{rows:,}", name, rate, seconds["median"], told])
            times.append([f"{state:,}", f"{rows:,}", *(parts.get(part, "-") for part in PARTS)])
    header = ["state", "an epoch", "contender", "records/s", "epoch s", "Godwit is faster"]
    show_table(header, lines)
    print("Where the time of an epoch of Godwit goes, median seconds:")
    show_table(["state", "an epoch", *PARTS], times)


def _sides(bench: Bench, state: int, rows: int) -> tuple[DataFrame, DataFrame]:
    """The records of both sides: in as many milliseconds as there are rows, each key comes once."""
    sides = [
        bench.source(
            rows // 2,
            f"xxhash64({number} % {state}) AS k",
            "timestamp_micros(value * 1000) AS at",
            "value",
        )
        for number in ("value", f"(value * {SCATTER})")
    ]
    return sides[0], sides[1].withColumnsRenamed({"at": "then", "value": "other"})


def _ours(bench: Bench, state: int, rows: int) -> TimedQuery:
    checkpoint = bench.directory / f"godwit {state}"

    def launch(sink: EpochCounter) -> StreamingQuery:
        left, right = _sides(bench, state, rows)
        query = (
            gw.stream(left)
            .join(
                OPERATOR,
                gw.stream(right),
                on="k",
                within=(f"-{state // 2} ms", f"{state // 2} ms"),
                time=("at", "then"),
                delay="0 s",
            )
            .to(gw.foreach_batch(sink))
            .start(checkpoint, workers=WORKERS)
        )
        return query.spark_query

    return TimedQuery("godwit", checkpoint, launch)


def _theirs(bench: Bench, state: int, rows: int) -> TimedQuery:
    checkpoint = bench.directory / f"spark {state}"

    def launch(sink: EpochCounter) -> StreamingQuery:
        use_store(bench.spark, "rocksdb")
        left, right = _sides(bench, state, rows)
        left = left.withWatermark("at", "0 seconds").alias("l")
        right = right.withWatermark("then", "0 seconds").alias("r")
        bound = f"INTERVAL {state // 2} MILLISECONDS"
        near = f"l.k = r.k AND then >= at - {bound} AND then <= at + {bound}"
        joined = left.join(right, sf.expr(near)).select("l.k", "at", "value", "then", "other")
        return start(joined, checkpoint, sink, mode="append")

    return TimedQuery("spark rocksdb", checkpoint, launch)
