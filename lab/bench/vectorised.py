"""How fast is `vectorised`, beside `transformWithStateInPandas`?

The running mean of a number for each key, which comes out once an epoch for each key that had
records. A key comes once in an epoch, or four times. Spark has the better of two sizes of epoch. It
begins without state, since filling 1 M keys would take a quarter of an hour; Godwit begins with all
the keys.
"""

from functools import partial

from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.cli.output import note
from lab.bench.application import WORKERS, Bench
from lab.bench.breakdown import PARTS, breakdown
from lab.bench.results import BenchResults, ratios, show_contenders, summary
from lab.tools.filling import initial, known, settled
from lab.tools.spark_query import start, use_store
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, TimedQuery, take_turns
from lab.workloads.means import MEANS, STATE, PandasMean, running_mean

OPERATOR = "means"
KNOWN = ("xxhash64(id) AS k", "1L AS n", "0D AS total")
NUMBER = "CAST(value % 1000 AS double) AS x"
EPOCHS = 10
PEER_EPOCHS = 2


def run(bench: Bench) -> None:
    keys = bench.pick(1_000_000, 250_000)
    sizes = [keys, 4 * keys]
    grid = [bench.pick(5_000, 500), bench.pick(20_000, 1_000)]
    settings = {"epochs": EPOCHS, "peer_epochs": PEER_EPOCHS, "keys": keys, "peer_grid": grid}
    report = BenchResults("vectorised", bench, settings)
    ours = [_ours(bench, keys, rows) for rows in sizes]
    peers = [_peer(bench, keys, rows) for rows in grid]
    tried: dict[str, float] = {}
    for one in peers:
        tried[one.name] = one.turn(PEER_EPOCHS, warm_up=1).rate
        note(f"    tried {one.name}: {tried[one.name]:,.0f} records/s")
    peer = max(peers, key=lambda one: tried[one.name])
    epochs = {one.name: EPOCHS for one in ours} | {peer.name: PEER_EPOCHS}
    turns = take_turns([*ours, peer], bench.repetitions, epochs, warm_up=1)
    found = {name: summary(turn) for name, turn in turns.items()}
    over = {one.name: ratios(turns[one.name], turns[peer.name]) for one in ours}
    parts = {
        one.name: breakdown(bench.spark, turns[one.name], one.checkpoint, OPERATOR) for one in ours
    }
    report.add({"rows": sizes}, **found, ratio=over, peer_grid=tried, breakdown=parts)
    show_contenders(found, over, "faster than Spark")
    print("Where the time of an epoch of Godwit goes, median seconds:")
    show_table(
        ["contender", *PARTS],
        [[name, *(part.get(one, "-") for one in PARTS)] for name, part in parts.items()],
    )


def _ours(bench: Bench, keys: int, rows: int) -> TimedQuery:
    checkpoint = bench.directory / f"godwit-{rows}"

    def launch(sink: EpochCounter) -> StreamingQuery:
        state = initial(checkpoint, OPERATOR, partial(known, bench.spark, keys, *KNOWN))
        query = (
            gw.stream(bench.source(rows, settled(keys), NUMBER))
            .vectorised(OPERATOR, key="k", function=running_mean, state=STATE, output=MEANS)
            .to(gw.foreach_batch(sink))
            .start(checkpoint, workers=WORKERS, initial=state)
        )
        return query.spark_query

    return TimedQuery(f"godwit {rows:,}", checkpoint, launch)


def _peer(bench: Bench, keys: int, rows: int) -> TimedQuery:
    checkpoint = bench.directory / f"pandas-{rows}"

    def launch(sink: EpochCounter) -> StreamingQuery:
        use_store(bench.spark, "rocksdb")
        groups = bench.source(rows, settled(keys), NUMBER).groupBy("k")
        means = groups.transformWithStateInPandas(PandasMean(), MEANS, "Update", "None")
        return start(means, checkpoint, sink)

    return TimedQuery(f"spark pandas {rows:,}", checkpoint, launch)
