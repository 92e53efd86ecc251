"""How fast does `state_machine` call a Python function a record, beside `transformWithState`?

A counter a key, which emits (key, count) for each record; no key comes twice in an epoch. The peers
are Spark's two Python interfaces to keyed state, by pandas frames and by rows, each with the better
of two sizes of epoch. They begin without state, since filling 1 M keys would take them a quarter of
an hour; Godwit begins with all the keys.
"""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from lab.bench.breakdown import PARTS, breakdown
from lab.bench.contenders import use_provider, write
from lab.bench.harness import WORKERS, Bench, Query, Sink, say, settled, take_turns
from lab.bench.report import Report, ratios, show, summary, table
from lab.experiments.spark_queries import COUNTS, PandasCounter, RowCounter

OPERATOR = "counter"
OUTPUT = "k long, n long"
EPOCHS = 10
PEER_EPOCHS = 2


def run(bench: Bench) -> None:
    keys = bench.pick(1_000_000, 20_000)
    rows = bench.pick(500_000, 10_000)
    grid = [bench.pick(5_000, 500), bench.pick(20_000, 1_000)]
    settings = {"epochs": EPOCHS, "peer_epochs": PEER_EPOCHS, "keys": keys, "peer_grid": grid}
    report = Report("state_machine", bench, settings)
    ours = _ours(bench, keys, rows)
    peers: list[Query] = []
    tried: dict[str, float] = {}
    for name, transform in (("pandas", _in_pandas), ("rows", _in_rows)):
        grid_of = [_peer(bench, name, transform, keys, size) for size in grid]
        rates = {}
        for peer in grid_of:
            rates[peer.name] = peer.turn(PEER_EPOCHS, warm_up=1).rate
            say(f"    tried {peer.name}: {rates[peer.name]:,.0f} records/s")
        peers.append(max(grid_of, key=lambda peer: rates[peer.name]))
        tried |= rates
    epochs = {ours.name: EPOCHS} | {peer.name: PEER_EPOCHS for peer in peers}
    turns = take_turns([ours, *peers], bench.repetitions, epochs, warm_up=1)
    found = {name: summary(turn) for name, turn in turns.items()}
    over = {peer.name: ratios(turns[ours.name], turns[peer.name]) for peer in peers}
    parts = breakdown(bench.spark, turns[ours.name], ours.checkpoint, OPERATOR)
    report.add({"rows": rows}, **found, ratio=over, peer_grid=tried, breakdown=parts)
    lines = [
        [
            name,
            show(one["records_per_second"], "{:,.0f}"),
            one["epoch_seconds"]["median"],
            one["epoch_seconds"]["p99"],
            show(over[name]) if name in over else "",
        ]
        for name, one in found.items()
    ]
    table(["contender", "records/s", "epoch s", "p99 s", "Godwit is faster"], lines)
    print("Where the time of an epoch of Godwit goes, median seconds:")
    table(PARTS, [[parts.get(part, "-") for part in PARTS]])


def _ours(bench: Bench, keys: int, rows: int) -> Query:
    checkpoint = bench.directory / "godwit"

    def launch(sink: Sink) -> StreamingQuery:
        initial = None
        if not checkpoint.exists():
            known = bench.spark.range(0, keys, 1, WORKERS)
            initial = {OPERATOR: known.selectExpr("xxhash64(id) AS k", "1L AS n")}
        query = (
            gw.stream(bench.source(rows, settled(keys), "value"))
            .state_machine(OPERATOR, key="k", state="n long", output=OUTPUT, function=count)
            .to(gw.foreach_batch(sink))
            .start(checkpoint, workers=WORKERS, initial=initial)
        )
        return query.spark_query

    return Query("godwit", checkpoint, launch)


def count(key: int, value: Any, state: Any) -> list[tuple[int, int]]:
    state.n = (state.n or 0) + 1
    return [(key, state.n)]


def _peer(
    bench: Bench, name: str, transform: Callable[[DataFrame], DataFrame], keys: int, rows: int
) -> Query:
    checkpoint = bench.directory / name

    def launch(sink: Sink) -> StreamingQuery:
        use_provider(bench, "rocksdb")
        return write(transform(bench.source(rows, settled(keys), "value")), checkpoint, sink)

    return Query(f"spark {name} {rows:,}", checkpoint, launch)


def _in_pandas(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").transformWithStateInPandas(PandasCounter(), COUNTS, "Update", "None")


def _in_rows(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").transformWithState(RowCounter(), COUNTS, "Update", "None")
