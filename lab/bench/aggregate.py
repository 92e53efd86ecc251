"""How fast does `aggregate` count by key, beside Spark's `groupBy().count()`?

With 1 M and 10 M keys; records of keys that are all known (*settled*), or all new, when each turn
begins with the same state. Godwit runs with two sizes of epoch. Spark runs with each of its state
stores and the best of three sizes, those of Godwit among them, in an application of its own for
each store; RocksDB also with the smaller one of Godwit's, whichever is the best. Of 1 M settled
keys, each comes four times in an epoch of 4 M records, which both fold before they look at their
state. Beside them is the floor that Godwit stands on: one shuffle and the way to Python, without
state and outputs.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from godwit.cli.output import note
from lab.bench.application import Application, Away, Bench
from lab.bench.breakdown import PARTS, breakdown
from lab.bench.contenders import OPERATOR, floor, godwit_count, spark_count
from lab.bench.results import BenchResults, ratios, show, summary
from lab.tools.filling import fresh, settled
from lab.tools.spark_query import STORES
from lab.tools.tables import show_table
from lab.tools.turns import Contender, TimedQuery, take_turns

EPOCHS = {False: 8, True: 4}  # fewer of new keys, of which each makes the state larger
PEER_EPOCHS = 2
WARM_UP = 1


@dataclass(frozen=True, slots=True)
class Case:
    """So many keys in the state; records of these keys, or of new ones."""

    keys: int
    new: bool

    @property
    def key(self) -> str:
        return fresh(self.keys) if self.new else settled(self.keys)

    @property
    def label(self) -> str:
        return f"{self.keys:,} keys, {'all new' if self.new else 'settled'}"


def run(bench: Bench) -> None:
    sizes = [bench.pick(1_000_000, 50_000), bench.pick(4_000_000, 100_000)]
    grid = [bench.pick(100_000, 20_000), *sizes]
    keys = [bench.pick(1_000_000, 100_000), bench.pick(10_000_000, 200_000)]
    report = BenchResults(
        "aggregate",
        bench,
        {
            "warm_up_epochs": WARM_UP,
            "epochs": {"godwit": list(EPOCHS.values()), "spark": PEER_EPOCHS},
            "godwit_rows_per_epoch": sizes,
            "spark_grid": {"provider": list(STORES), "rows_per_epoch": grid},
        },
    )
    cases = [Case(count, new) for count in keys for new in (False, True)]
    rates, times = [], []
    for case in cases:
        if bench.only and bench.only not in case.label:
            continue
        note(f"  {case.label}")
        ours = [_ours(bench, case, rows) for rows in sizes]
        floors = [_floor(bench, case, rows) for rows in sizes]
        tried: dict[str, float] = {}
        with ExitStack() as stack:
            homes = {name: stack.enter_context(Application(bench)) for name in STORES}
            peers: dict[str, Away] = {}
            for name, home in homes.items():
                by_rows = _peers(bench, home, case, name, grid, tried)
                best = max(by_rows.values(), key=lambda one: tried[one.name])
                peers |= {name: best}
                if name == "rocksdb":
                    peers |= {f"{name} {sizes[0]:,}": by_rows[sizes[0]]}
            epochs = {one.name: EPOCHS[case.new] for one in (*ours, *floors)}
            epochs |= {peer.name: PEER_EPOCHS for peer in peers.values()}
            every: list[Contender] = [*ours, *floors, *peers.values()]
            once = {one.name: one for one in every}
            turns = take_turns([*once.values()], bench.repetitions, epochs, WARM_UP)
        found = {name: summary(turn) for name, turn in turns.items()}
        over = {
            one.name: {
                label: ratios(turns[one.name], turns[peer.name]) for label, peer in peers.items()
            }
            for one in (*ours, *floors)
        }
        parts = {
            one.name: breakdown(bench.spark, turns[one.name], one.checkpoint, OPERATOR)
            for one in ours
        }
        about = {"keys": case.keys, "new": case.new}
        report.add(about, **found, ratio=over, spark_grid=tried, breakdown=parts)
        for name, one in found.items():
            rate, seconds = show(one["records_per_second"], "{:,.0f}"), one["epoch_seconds"]
            faster = [show(ratio) for ratio in over.get(name, {}).values()] or [""] * len(peers)
            rates.append([case.label, name, rate, seconds["median"], seconds["p99"], *faster])
        for name, part in parts.items():
            times.append([case.label, name, *(part.get(column, "-") for column in PARTS)])
    over_each = ["x best rocksdb", f"x rocksdb {sizes[0]:,}", "x best memory"]
    show_table(["case", "contender", "records/s", "epoch s", "p99 s", *over_each], rates)
    print("Where the time of an epoch goes, median seconds:")
    show_table(["case", "contender", *PARTS], times)


def _ours(bench: Bench, case: Case, rows: int) -> TimedQuery:
    """A state of its own for each size of epoch; new keys come on top of the settled ones."""
    name = f"godwit {rows:,}"
    known = bench.directory / f"{name}-{case.keys}"
    count = partial(godwit_count, bench, key=case.key, rows=rows, name=name, preload=case.keys)
    if not case.new:
        return count(checkpoint=known)
    if not known.exists():
        count(checkpoint=known, key=settled(case.keys)).turn(1, warm_up=0)
    return count(checkpoint=bench.directory / f"{name} new keys", origin=known)


def _floor(bench: Bench, case: Case, rows: int) -> TimedQuery:
    name = f"floor {rows:,}"
    return floor(bench, bench.directory / f"{name} {case.label}", case.key, rows, name)


def _peers(
    bench: Bench,
    home: Application,
    case: Case,
    store: str,
    grid: list[int],
    tried: dict[str, float],
) -> dict[int, Away]:
    """Fill one of Spark's state stores with the settled keys, and try epochs of each size."""
    known = bench.directory / f"spark-{store}-{case.keys}"

    def count(key: str, rows: int, **places: Any) -> Away:
        make = partial(spark_count, key=key, rows=rows, store=store, **places)
        return Away(f"spark {store} {rows:,}", home, make)

    if not known.exists():
        fill = min(max(grid), case.keys)
        note(f"    filling {store}")
        count(settled(case.keys), fill, checkpoint=known).turn(case.keys // fill, warm_up=0)
    places = {"checkpoint": known}
    if case.new:
        places = {"checkpoint": bench.directory / f"{store} new keys", "origin": known}
    peers = {rows: count(case.key, rows, **places) for rows in grid}
    for one in peers.values():
        tried[one.name] = one.turn(1, WARM_UP).rate
        note(f"    tried {one.name}: {tried[one.name]:,.0f} records/s")
    return peers
