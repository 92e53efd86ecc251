"""What does appending to a long list write? Bytes of deltas a record, by the length of the lists.

A state machine appends each record to the list of its key and reads nothing. Spark's own list state
is not asked; the question is whether the length of a list matters.
"""

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.cli.output import note
from godwit.log.history import History
from lab.bench.application import WORKERS, Bench
from lab.bench.results import BenchResults, show, spread, summary
from lab.tools.filling import initial, known
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, TimedQuery, Turn, take_turns

OPERATOR = "prices"
KEYS = 100
LENGTHS = (1_000, 10_000, 100_000)
EPOCHS = 8


def run(bench: Bench) -> None:
    keys = bench.pick(KEYS, 4)
    report = BenchResults("list_state", bench, {"keys": keys, "epochs": EPOCHS})
    lines = []
    for rows in (bench.pick(10_000, 1_000), bench.pick(100_000, 4_000)):
        note(f"  {rows:,} records an epoch")
        contenders = [_lists(bench, keys, length, rows) for length in LENGTHS]
        turns = take_turns(contenders, bench.repetitions, EPOCHS)
        for length, contender in zip(LENGTHS, contenders, strict=True):
            found = summary(turns[contender.name])
            size = spread(_bytes_a_record(contender, turns[contender.name]))
            report.add({"length": length, "rows": rows}, **found, delta_bytes_a_record=size)
            seconds = statistics.median(s for turn in turns[contender.name] for s in turn.seconds)
            lines.append([length, rows, show(size, "{:.2f}"), seconds])
    show_table(["elements a key", "records", "delta bytes a record", "epoch s"], lines)


def append(key: int, value: Any, state: Any) -> None:
    state.prices.append(value.price)


def _lists(bench: Bench, keys: int, length: int, rows: int) -> TimedQuery:
    checkpoint = bench.directory / f"{length}-{rows}"

    def launch(sink: EpochCounter) -> StreamingQuery:
        columns = (f"id % {keys} AS k", f"id div {keys} AS _pos", "id AS price")
        elements = partial(known, bench.spark, keys * length, *columns)
        prices = initial(checkpoint, "prices", elements)
        query = (
            gw.stream(bench.source(rows, f"value % {keys} AS k", "value AS price"))
            .state_machine(
                OPERATOR,
                key="k",
                state={"prices": gw.List("price long")},
                output="k long",
                function=append,
            )
            .to(gw.foreach_batch(sink))
            .start(checkpoint, workers=WORKERS, initial=prices and {OPERATOR: prices})
        )
        return query.spark_query

    return TimedQuery(f"{length:,} elements", checkpoint, launch)


def _bytes_a_record(contender: TimedQuery, turns: Sequence[Turn]) -> list[float]:
    history = History(contender.checkpoint)
    return [
        sum(receipt.bytes for receipt in manifest.receipts[OPERATOR]) / epoch.rows
        for turn in turns
        for epoch in turn.epochs
        if (manifest := history.manifest(epoch.number))
    ]
