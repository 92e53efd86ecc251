"""How fast does `state_machine` call a Python function a record, beside `transformWithState`?

A counter a key, which emits (key, count) for each record; no key comes twice in an epoch. The peers
are Spark's two Python interfaces to keyed state, by pandas frames and by rows, each with the better
of two sizes of epoch. They begin without state, since filling 1 M keys would take them a quarter of
an hour; Godwit begins with all the keys.
"""

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.cli.output import note
from lab.bench.application import WORKERS, Bench
from lab.bench.breakdown import PARTS, breakdown
from lab.bench.contenders import COUNTED
from lab.bench.results import BenchResults, ratios, show_contenders, summary
from lab.tools.filling import initial, known, settled
from lab.tools.spark_query import start, use_store
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, TimedQuery, take_turns
from lab.workloads.counts import count_record
from lab.workloads.spark_queries import COUNTS, PandasCounter, RowCounter

OPERATOR = "counter"
OUTPUT = "k long, n long"
EPOCHS = 10
PEER_EPOCHS = 2


def run(bench: Bench) -> None:
    keys = bench.pick(1_000_000, 20_000)
    rows = bench.pick(500_000, 10_000)
    grid = [bench.pick(5_000, 500), bench.pick(20_000, 1_000)]
    settings = {"epochs": EPOCHS, "peer_epochs": PEER_EPOCHS, "keys": keys, "peer_grid": grid}
    report = BenchResults("state_machine", bench, settings)
    ours = _ours(bench, keys, rows)
    peers: list[TimedQuery] = []
    tried: dict[str, float] = {}
    for name, transform in (("pandas", _in_pandas), ("rows", _in_rows)):
        grid_of = [_peer(bench, name, transform, keys, size) for size in grid]
        rates = {}
        for peer in grid_of:
            rates[peer.name] = peer.turn(PEER_EPOCHS, warm_up=1).rate
            note(f"    tried {peer.name}: {rates[peer.name]:,.0f} records/s")
        peers.append(max(grid_of, key=lambda peer: rates[peer.name]))
        tried |= rates
    epochs = {ours.name: EPOCHS} | {peer.name: PEER_EPOCHS for peer in peers}
    turns = take_turns([ours, *peers], bench.repetitions, epochs, warm_up=1)
    found = {name: summary(turn) for name, turn in turns.items()}
    over = {peer.name: ratios(turns[ours.name], turns[peer.name]) for peer in peers}
    parts = breakdown(bench.spark, turns[ours.name], ours.checkpoint, OPERATOR)
    report.add({"rows": rows}, **found, ratio=over, peer_grid=tried, breakdown=parts)
    show_contenders(found, over, "Godwit is faster")
    print("Where the time of an epoch of Godwit goes, median seconds:")
    show_table(PARTS, [[parts.get(part, "-") for part in PARTS]])


def _ours(bench: Bench, keys: int, rows: int) -> TimedQuery:
    checkpoint = bench.directory / "godwit"

    def launch(sink: EpochCounter) -> StreamingQuery:
        state = initial(checkpoint, OPERATOR, partial(known, bench.spark, keys, *COUNTED))
        query = (
            gw.stream(bench.source(rows, settled(keys), "value"))
            .state_machine(OPERATOR, key="k", state="n long", output=OUTPUT, function=count_record)
            .to(gw.foreach_batch(sink))
            .start(checkpoint, workers=WORKERS, initial=state)
        )
        return query.spark_query

    return TimedQuery("godwit", checkpoint, launch)


def _peer(
    bench: Bench, name: str, transform: Callable[[DataFrame], DataFrame], keys: int, rows: int
) -> TimedQuery:
    checkpoint = bench.directory / name

    def launch(sink: EpochCounter) -> StreamingQuery:
        use_store(bench.spark, "rocksdb")
        return start(transform(bench.source(rows, settled(keys), "value")), checkpoint, sink)

    return TimedQuery(f"spark {name} {rows:,}", checkpoint, launch)


def _in_pandas(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").transformWithStateInPandas(PandasCounter(), COUNTS, "Update", "None")


def _in_rows(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").transformWithState(RowCounter(), COUNTS, "Update", "None")
