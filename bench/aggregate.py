"""How fast does `aggregate` count by key, beside Spark's `groupBy().count()`?

With 1 M and 10 M keys; records of keys that are all known (*settled*), or all new. Godwit runs with
two sizes of epoch. Spark gets the best of a grid: two state stores, two sizes of epoch.
"""

from dataclasses import dataclass
from functools import partial

from bench.breakdown import PARTS, breakdown
from bench.contenders import OPERATOR, PROVIDERS, godwit_count, spark_count
from bench.harness import Bench, Contender, fresh, say, settled, take_turns
from bench.report import Report, ratios, show, summary, table

EPOCHS = 8
PEER_EPOCHS = 3


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
    grid = [bench.pick(100_000, 20_000), bench.pick(1_000_000, 50_000)]
    report = Report(
        "aggregate",
        bench,
        {
            "epochs": {"godwit": EPOCHS, "spark": PEER_EPOCHS},
            "godwit_rows_per_epoch": sizes,
            "spark_grid": {"provider": list(PROVIDERS), "rows_per_epoch": grid},
        },
    )
    rates, times = [], []
    for keys in (bench.pick(1_000_000, 100_000), bench.pick(10_000_000, 200_000)):
        for new in (False, True):
            case = Case(keys, new)
            say(f"  {case.label}")
            ours = [_ours(bench, case, rows) for rows in sizes]
            peer, tried = _best_peer(bench, case, grid)
            epochs = {one.name: EPOCHS for one in ours} | {peer.name: PEER_EPOCHS}
            turns = take_turns([*ours, peer], bench.repetitions, epochs)
            found = {name: summary(turn) for name, turn in turns.items()}
            over = {one.name: ratios(turns[one.name], turns[peer.name]) for one in ours}
            parts = {
                one.name: breakdown(bench.spark, turns[one.name], one.checkpoint, OPERATOR)
                for one in ours
            }
            report.add(
                {"keys": keys, "new": new, "peer": peer.name},
                **found,
                ratio=over,
                spark_grid=tried,
                breakdown=parts,
            )
            for name, one in found.items():
                rate, seconds = show(one["records_per_second"], "{:,.0f}"), one["epoch_seconds"]
                ratio = show(over[name]) if name in over else ""
                rates.append([case.label, name, rate, seconds["median"], seconds["p99"], ratio])
            for name, part in parts.items():
                times.append([case.label, name, *(part.get(column, "-") for column in PARTS)])
    table(["case", "contender", "records/s", "epoch s", "p99 s", "ratio"], rates)
    print("Where the time of an epoch goes, median seconds:")
    table(["case", "contender", *PARTS], times)


def _ours(bench: Bench, case: Case, rows: int) -> Contender:
    """A state of its own for each size of epoch; new keys come on top of the settled ones."""
    name = f"godwit {rows:,}"
    checkpoint = bench.directory / f"{name}-{case.keys}"
    return godwit_count(bench, checkpoint, case.key, rows, name=name, preload=case.keys)


def _best_peer(bench: Bench, case: Case, grid: list[int]) -> tuple[Contender, dict[str, float]]:
    """Fill Spark's state stores with the settled keys, and choose the fastest of the grid."""
    tried: dict[str, float] = {}
    contenders: dict[str, Contender] = {}
    for provider in PROVIDERS:
        checkpoint = bench.directory / f"spark-{provider}-{case.keys}"
        contender = partial(spark_count, bench, checkpoint, provider=provider)
        if not checkpoint.exists():
            fill = min(max(grid), case.keys)
            say(f"    filling {provider}")
            contender(settled(case.keys), fill).turn(case.keys // fill, warm_up=0)
        for rows in grid:
            name = f"spark {provider} {rows:,}"
            contenders[name] = contender(case.key, rows, name=name)
            tried[name] = contenders[name].turn(PEER_EPOCHS, warm_up=1).rate
            say(f"    tried {name}: {tried[name]:,.0f} records/s")
    best = max(tried, key=lambda name: tried[name])
    return contenders[best], tried
