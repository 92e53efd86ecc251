"""What does it cost that workers stay on their executors, and that others keep replicas?

The count by key of `aggregate`, on two executors: with workers wherever Spark runs them (they fetch
their state when they change the executor), with workers that are placed, and with a replica of each
on the other executor.
"""

from dataclasses import dataclass
from unittest.mock import patch

from godwit.spark.pinning import Pinning
from lab.bench.application import WORKERS, Bench
from lab.bench.contenders import godwit_count
from lab.bench.results import BenchResults, ratios, show, summary
from lab.tools.filling import settled
from lab.tools.session import PLACED
from lab.tools.tables import show_table
from lab.tools.turns import TimedQuery, Turn, take_turns

EPOCHS = 8
WARM_UP = 3  # epochs, in which caches and replicas are filled
CONF = {
    "spark.master": f"local-cluster[{WORKERS},1,2048]",
    **PLACED,
}


def run(bench: Bench) -> None:
    keys, rows = bench.pick(1_000_000, 100_000), bench.pick(1_000_000, 50_000)
    epochs = bench.pick(EPOCHS, 4)
    report = BenchResults("pinned", bench, {"epochs": epochs, "keys": keys, "rows": rows})

    def count(name: str, replicas: int) -> TimedQuery:
        checkpoint = bench.directory / name
        return godwit_count(
            bench,
            checkpoint,
            settled(keys),
            rows,
            name=name,
            preload=keys,
            drain=False,
            replicas=replicas,
        )

    anywhere, placed, copied = count("anywhere", 0), count("placed", 0), count("replicas", 1)
    turns = take_turns([Roaming(anywhere), placed, copied], bench.repetitions, epochs, WARM_UP)
    found = {name: summary(turn) for name, turn in turns.items()}
    over = {
        "placed over anywhere": ratios(turns["placed"], turns["anywhere"]),
        "replicas over placed": ratios(turns["replicas"], turns["placed"]),
    }
    report.add({"rows": rows}, **found, ratio=over)
    show_table(
        ["contender", "records/s", "epoch s", "p99 s"],
        [
            [
                name,
                show(one["records_per_second"], "{:,.0f}"),
                one["epoch_seconds"]["median"],
                one["epoch_seconds"]["p99"],
            ]
            for name, one in found.items()
        ],
    )
    for name, ratio in over.items():
        print(f"{name}: {show(ratio)} x the records a second")


@dataclass(frozen=True, slots=True)
class Roaming:
    """A query whose workers are not placed, as without Spark's setting for it."""

    query: TimedQuery

    @property
    def name(self) -> str:
        return self.query.name

    def turn(self, epochs: int, warm_up: int = WARM_UP) -> Turn:
        with patch.object(Pinning, "executors", return_value={}):
            return self.query.turn(epochs, warm_up)
