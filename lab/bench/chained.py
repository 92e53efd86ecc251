"""What does a second operator behind the first cost, beside one more shuffle?

One operator counts by key; two count by key, and then the changed keys by the last digits of their
hash. The floor is a bare epoch with one shuffle over the same records.
"""

import statistics

from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from lab.bench.application import WORKERS, Bench
from lab.bench.contenders import OPERATOR, floor, godwit_count
from lab.bench.results import BenchResults, show, spread, summary
from lab.tools.filling import settled
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, TimedQuery, take_turns

EPOCHS = 12


def run(bench: Bench) -> None:
    keys, rows = bench.pick(1_000_000, 100_000), bench.pick(100_000, 20_000)
    epochs = bench.pick(EPOCHS, 4)
    report = BenchResults("chained", bench, {"epochs": epochs, "keys": keys, "rows": rows})
    bare = floor(bench, bench.directory / "floor", settled(keys), rows)
    one = godwit_count(bench, bench.directory / "one", settled(keys), rows, drain=False)
    two = _two(bench, settled(keys), rows)
    turns = take_turns([bare, one, two], bench.repetitions, epochs)
    found = {name: summary(turn) for name, turn in turns.items()}
    medians = [[statistics.median(t.seconds) for t in turns[c.name]] for c in (bare, one, two)]
    more = spread([(b - a) / f for f, a, b in zip(*medians, strict=True)])
    report.add({"rows": rows}, **found, more=more)
    show_table(
        ["contender", "epoch s", "p99 s"],
        [[n, s["epoch_seconds"]["median"], s["epoch_seconds"]["p99"]] for n, s in found.items()],
    )
    print(f"The second operator costs {show(more)} times the epoch of the floor.")


def _two(bench: Bench, key: str, rows: int) -> TimedQuery:
    checkpoint = bench.directory / "two"

    def launch(sink: EpochCounter) -> StreamingQuery:
        query = (
            gw.stream(bench.source(rows, key))
            .aggregate(OPERATOR, key="k", n=gw.count())
            .transform(lambda changed: changed.selectExpr("k & 65535 AS digits"))
            .aggregate("digits", key="digits", n=gw.count())
            .to(gw.foreach_batch(lambda rows, epoch: sink.note(epoch)))
            .start(checkpoint, workers=WORKERS)
        )
        return query.spark_query

    return TimedQuery("two operators", checkpoint, launch)
