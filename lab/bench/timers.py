"""What does a timer cost before it is due?

A thousand records an epoch, each of which asks for a notice, and a thousand notices that are due:
once with a thousand that wait, once with a million. Event time goes on by a second an epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.cli.output import note
from godwit.log.history import History
from lab.bench.application import WORKERS, Bench
from lab.bench.results import BenchResults, show, slower, spread, summary
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, TimedQuery, Turn, take_turns

OPERATOR = "timers"
ROWS = 1_000
EPOCHS = 12


@dataclass(frozen=True, slots=True)
class Remind:
    """Asks for a notice when as many seconds have passed as keep `waiting` of them waiting.

    The first records, which all have the same time, ask for one second after the other.
    """

    waiting: int

    def __call__(self, events: Any, notify: Any) -> Any:
        seconds = self.waiting // ROWS
        for kind, time, key, value, state in events:
            if kind == "notice":
                yield (key,)
                continue
            state.n = (state.n or 0) + 1
            first = value.number < self.waiting
            after = value.number % seconds + 1 if first else seconds
            notify(key, time + timedelta(seconds=after))


def run(bench: Bench) -> None:
    few, many = ROWS, bench.pick(1_000_000, 20_000)
    epochs = bench.pick(EPOCHS, 4)
    report = BenchResults("timers", bench, {"epochs": epochs, "rows": ROWS, "waiting": [few, many]})
    contenders = [_waiting(bench, waiting) for waiting in (few, many)]
    turns = take_turns(contenders, bench.repetitions, epochs)
    found = {name: summary(turn) for name, turn in turns.items()}
    over = slower(turns[contenders[1].name], turns[contenders[0].name])
    due = {one.name: spread(_due(one.checkpoint, turns[one.name])) for one in contenders}
    report.add({"due": ROWS}, **found, ratio=over, notices_due=due)
    show_table(
        ["contender", "epoch s", "p99 s", "notices an epoch"],
        [
            [n, s["epoch_seconds"]["median"], s["epoch_seconds"]["p99"], due[n]["median"]]
            for n, s in found.items()
        ],
    )
    print(f"With {many:,} waiting an epoch takes {show(over)} times as long as with {few:,}.")


def _due(checkpoint: Path, turns: Sequence[Turn]) -> list[float]:
    """The notices of each epoch, of which each is an output."""
    history = History(checkpoint)
    return [
        sum(file.rows for file in manifest.outputs[OPERATOR])
        for turn in turns
        for epoch in turn.epochs
        if (manifest := history.manifest(epoch.number))
    ]


def _waiting(bench: Bench, waiting: int) -> TimedQuery:
    checkpoint = bench.directory / f"timers-{waiting}"

    def query(sink: EpochCounter, rows: int) -> StreamingQuery:
        records = bench.source(
            rows,
            f"xxhash64(value % {waiting}) AS k",
            f"timestamp_micros(greatest(value - {waiting}, 0L) * 1000) AS at",
            "value AS number",
        )
        job = gw.stream(records).unary(
            OPERATOR,
            key="k",
            function=Remind(waiting),
            state="n long",
            output="k long",
            time="at",
            notices="",
        )
        started = job.to(gw.foreach_batch(sink)).start(checkpoint, workers=WORKERS)
        return started.spark_query

    note(f"    filling {waiting:,}")
    TimedQuery("fill", checkpoint, lambda sink: query(sink, waiting)).turn(1, warm_up=0)
    return TimedQuery(f"{waiting:,} waiting", checkpoint, lambda sink: query(sink, ROWS))
