"""What does an epoch of Godwit cost beside the bare floor?

The floor is `foreachBatch`, a shuffle by hash, and `mapInArrow` over the same rows: no state, no
output, no promise. Godwit counts by key, once with a sink that ignores the rows and once with one
that reads them. Both are timed from trigger to commit.
"""

from godwit.cli.output import note
from lab.bench.application import Bench
from lab.bench.breakdown import PARTS, breakdown
from lab.bench.contenders import OPERATOR, floor, godwit_count
from lab.bench.results import BenchResults, show, slower, summary
from lab.tools.filling import settled
from lab.tools.tables import show_table
from lab.tools.turns import take_turns

EPOCHS = 12


def run(bench: Bench) -> None:
    keys = bench.pick(1_000_000, 100_000)
    epochs = bench.pick(EPOCHS, 6)
    report = BenchResults("overhead", bench, {"epochs": epochs, "keys": keys})
    results, times = [], []
    for rows in (1_000, 100_000, bench.pick(1_000_000, 200_000)):
        note(f"  {rows:,} records an epoch")
        home = bench.directory / str(rows)
        ours = godwit_count(bench, home / "godwit", settled(keys), rows, preload=keys, drain=False)
        sunk = godwit_count(
            bench, home / "sunk", settled(keys), rows, preload=keys, name="godwit, sink"
        )
        bare = floor(bench, home / "floor", settled(keys), rows)
        turns = take_turns([bare, ours, sunk], bench.repetitions, epochs)
        over = {one.name: slower(turns[one.name], turns[bare.name]) for one in (ours, sunk)}
        parts = breakdown(bench.spark, turns[sunk.name], sunk.checkpoint, OPERATOR)
        found = {name: summary(turn) for name, turn in turns.items()}
        report.add({"rows": rows}, **found, over_floor=over, breakdown=parts)
        for name, one in found.items():
            seconds = one["epoch_seconds"]
            ratio = show(over[name]) if name in over else ""
            results.append([rows, name, seconds["median"], seconds["p99"], ratio])
        times.append([rows, *(parts.get(part, "-") for part in PARTS)])
    show_table(["records", "contender", "epoch s", "p99 s", "x floor"], results)
    print("Where the time of an epoch of 'godwit, sink' goes, median seconds:")
    show_table(["records", *PARTS], times)
