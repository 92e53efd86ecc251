"""What does a second operator over the same source cost, if both share what Spark reads?

Two operators count by different keys. They share a stream, of which Godwit keeps the rows of the
epoch, or they have a stream each over the same DataFrame, which Spark then computes twice. The
source is cheap (a counter), or records are parsed from JSON. One operator alone is beside them.
"""

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from lab.bench.application import WORKERS, Bench
from lab.bench.results import BenchResults, show, slower, summary
from lab.tools.filling import settled
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, TimedQuery, take_turns

EPOCHS = 12
JSON = """concat('{"k": ', xxhash64(value % KEYS), ', "at": "2026-01-01T12:00:00", "page": "/', \
value % 1000, '", "ms": ', value % 977, '}') AS text"""
PARSED = "from_json(text, 'k long, at timestamp, page string, ms long') AS parsed"


def run(bench: Bench) -> None:
    keys, rows = bench.pick(1_000_000, 100_000), bench.pick(500_000, 20_000)
    report = BenchResults("graph", bench, {"epochs": EPOCHS, "keys": keys, "rows": rows})
    sources: dict[str, Callable[[], DataFrame]] = {
        "counter": lambda: bench.source(rows, settled(keys)),
        "JSON": lambda: (
            bench.source(rows, JSON.replace("KEYS", str(keys)))
            .selectExpr(PARSED)
            .select("parsed.*")
        ),
    }
    lines = []
    for source, read in sources.items():
        contenders = [
            _query(bench, source, name, partial(make, read))
            for name, make in {
                "one operator": _one,
                "shared": _shared,
                "read twice": _twice,
            }.items()
        ]
        turns = take_turns(contenders, bench.repetitions, bench.pick(EPOCHS, 4))
        found = {name: summary(turn) for name, turn in turns.items()}
        one, *others = turns
        longer = {name: slower(turns[name], turns[one]) for name in others}
        report.add({"source": source, "rows": rows}, **found, longer=longer)
        for name, told in found.items():
            seconds, ratio = told["epoch_seconds"], show(longer[name]) if name in longer else ""
            lines.append([source, name, seconds["median"], seconds["p99"], ratio])
    show_table(["source", "contender", "epoch s", "p99 s", "x one operator"], lines)


def _query(bench: Bench, source: str, name: str, job: Callable[[gw.Sink], gw.Job]) -> TimedQuery:
    checkpoint = bench.directory / f"{source} {name}"

    def launch(sink: EpochCounter) -> StreamingQuery:
        # Nobody reads the outputs: they would count as work of the second operator.
        counted = gw.foreach_batch(lambda rows, epoch: sink.note(epoch))
        return job(counted).start(checkpoint, workers=WORKERS).spark_query

    return TimedQuery(name, checkpoint, launch)


def _one(read: Callable[[], DataFrame], sink: gw.Sink) -> gw.Job:
    return _first(gw.stream(read())).to(sink)


def _shared(read: Callable[[], DataFrame], sink: gw.Sink) -> gw.Job:
    stream = gw.stream(read())
    return _both(stream, stream, sink)


def _twice(read: Callable[[], DataFrame], sink: gw.Sink) -> gw.Job:
    rows = read()
    return _both(gw.stream(rows), gw.stream(rows), sink)


def _both(left: gw.Stream, right: gw.Stream, sink: gw.Sink) -> gw.Job:
    groups = right.transform(lambda rows: rows.selectExpr("k & 65535 AS digits"))
    digits = groups.aggregate("digits", key="digits", n=gw.count())
    return gw.query(_first(left).to(sink), digits.to(gw.foreach_batch(_leave)))


def _first(stream: gw.Stream) -> gw.Stream:
    return stream.aggregate("counts", key="k", n=gw.count())


def _leave(rows: DataFrame, epoch: int) -> None:
    """Take no rows."""
