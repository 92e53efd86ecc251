"""What does a timer cost before it is due?

A thousand records an epoch, each of which asks for a notice, and a thousand notices that are due:
once with a thousand that wait, once with a million. Event time goes on by a second an epoch.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from bench.harness import WORKERS, Bench, Query, Sink, say, take_turns
from bench.report import Report, show, slower, summary, table

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
    report = Report("timers", bench, {"epochs": epochs, "rows": ROWS, "waiting": [few, many]})
    contenders = [_waiting(bench, waiting) for waiting in (few, many)]
    turns = take_turns(contenders, bench.repetitions, epochs)
    found = {name: summary(turn) for name, turn in turns.items()}
    over = slower(turns[contenders[1].name], turns[contenders[0].name])
    report.add({"due": ROWS}, **found, ratio=over)
    table(
        ["contender", "epoch s", "p99 s"],
        [[n, s["epoch_seconds"]["median"], s["epoch_seconds"]["p99"]] for n, s in found.items()],
    )
    print(f"With {many:,} waiting an epoch takes {show(over)} times as long as with {few:,}.")


def _waiting(bench: Bench, waiting: int) -> Query:
    checkpoint = bench.directory / f"timers-{waiting}"

    def query(sink: Sink, rows: int) -> StreamingQuery:
        records = bench.source(
            rows,
            f"xxhash64(value % {waiting}) AS k",
            f"timestamp_micros(greatest(value - {waiting}, 0L) * 1000) AS at",
            "value AS number",
        )
        job = gw.stream(records).unary(
            "timers",
            key="k",
            function=Remind(waiting),
            state="n long",
            output="k long",
            time="at",
            notices="",
        )
        started = job.to(gw.foreach_batch(sink)).start(checkpoint, workers=WORKERS)
        return started.spark_query

    say(f"    filling {waiting:,}")
    Query("fill", checkpoint, lambda sink: query(sink, waiting)).turn(1, warm_up=0)
    return Query(f"{waiting:,} waiting", checkpoint, lambda sink: query(sink, ROWS))
