"""How fast is `deduplicate`, beside Spark's `dropDuplicatesWithinWatermark`?

Every second record is the duplicate of one that came an epoch of Godwit's before. Both keep a key
until the watermark is `within` after it, and both have a delay as long. Spark has the better of two
sizes of epoch. The state is filled before it counts.
"""

from collections.abc import Sequence

from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.cli.output import note
from lab.bench.application import WORKERS, Bench
from lab.bench.breakdown import PARTS, breakdown
from lab.bench.results import BenchResults, ratios, show_contenders, summary
from lab.tools.spark_query import start, use_store
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, TimedQuery, take_turns

OPERATOR = "once"
HORIZON = 2  # epochs of Godwit's, in event time
EPOCHS = 8


def run(bench: Bench) -> None:
    rows = bench.pick(500_000, 100_000)
    grid = [rows // 5, rows]
    settings = {"epochs": EPOCHS, "rows": rows, "horizon": HORIZON * rows, "peer_grid": grid}
    report = BenchResults("deduplicate", bench, settings)
    ours = _ours(bench, rows)
    peers = [_peer(bench, rows, size) for size in grid]
    fill = 3 * HORIZON
    ours.turn(fill, warm_up=0)
    tried: dict[str, float] = {}
    for one, size in zip(peers, grid, strict=True):
        one.turn(fill * rows // size, warm_up=0)
        tried[one.name] = one.turn(EPOCHS).rate
        note(f"    tried {one.name}: {tried[one.name]:,.0f} records/s")
    peer = max(peers, key=lambda one: tried[one.name])
    turns = take_turns([ours, peer], bench.repetitions, EPOCHS)
    found = {name: summary(turn) for name, turn in turns.items()}
    over = {peer.name: ratios(turns[ours.name], turns[peer.name])}
    parts = breakdown(bench.spark, turns[ours.name], ours.checkpoint, OPERATOR)
    report.add({"rows": rows}, **found, ratio=over, peer_grid=tried, breakdown=parts)
    show_contenders(found, over, "Godwit is faster")
    print("Where the time of an epoch of Godwit goes, median seconds:")
    show_table(PARTS, [[parts.get(part, "-") for part in PARTS]])


def _columns(rows: int) -> Sequence[str]:
    """Of two records one repeats the key of another, `rows` records before it."""
    return (
        f"xxhash64(value - pmod(value, 2) * {rows - rows % 2 + 1}) AS k",
        "timestamp_micros(value * 10) AS at",
        "value AS number",
    )


def _within(rows: int) -> str:
    return f"{HORIZON * rows // 100} milliseconds"


def _ours(bench: Bench, rows: int) -> TimedQuery:
    checkpoint = bench.directory / "godwit"

    def launch(sink: EpochCounter) -> StreamingQuery:
        within = _within(rows)
        query = (
            gw.stream(bench.source(rows, *_columns(rows)))
            .deduplicate(OPERATOR, key="k", time="at", within=within, delay=within)
            .to(gw.foreach_batch(sink))
            .start(checkpoint, workers=WORKERS)
        )
        return query.spark_query

    return TimedQuery(f"godwit {rows:,}", checkpoint, launch)


def _peer(bench: Bench, rows: int, size: int) -> TimedQuery:
    checkpoint = bench.directory / f"spark-{size}"

    def launch(sink: EpochCounter) -> StreamingQuery:
        use_store(bench.spark, "rocksdb")
        timed = bench.source(size, *_columns(rows)).withWatermark("at", _within(rows))
        return start(timed.dropDuplicatesWithinWatermark(["k"]), checkpoint, sink)

    return TimedQuery(f"spark rocksdb {size:,}", checkpoint, launch)
