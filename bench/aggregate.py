"""How fast does `aggregate` count by key, beside Spark's `groupBy().count()`?

With 1 M and 10 M keys; records of keys that are all known (*settled*), or all new. Spark gets the
best of a grid: two state stores, two sizes of epoch.
"""

from dataclasses import dataclass
from functools import partial

from bench.breakdown import PARTS, breakdown
from bench.contenders import OPERATOR, PROVIDERS, godwit_count, spark_count
from bench.harness import Bench, Contender, fresh, say, settled, take_turns
from bench.report import Report, ratios, show, summary, table

EPOCHS = 10
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
    rows = bench.pick(1_000_000, 50_000)
    grid = [bench.pick(1_000_000, 50_000), bench.pick(100_000, 20_000)]
    report = Report(
        "aggregate",
        bench,
        {
            "epochs": {"godwit": EPOCHS, "spark": PEER_EPOCHS},
            "godwit_rows_per_epoch": rows,
            "spark_grid": {"provider": list(PROVIDERS), "rows_per_epoch": grid},
        },
    )
    table_rows, times = [], []
    for keys in (bench.pick(1_000_000, 100_000), bench.pick(10_000_000, 200_000)):
        for new in (False, True):
            case = Case(keys, new)
            say(f"  {case.label}")
            ours = _ours(bench, case, rows)
            peer, tried = _best_peer(bench, case, grid)
            turns = take_turns(
                [ours, peer], bench.repetitions, {ours.name: EPOCHS, peer.name: PEER_EPOCHS}
            )
            mine, theirs = turns[ours.name], turns[peer.name]
            parts = breakdown(bench.spark, mine, ours.checkpoint, OPERATOR)
            found = {name: summary(turn) for name, turn in turns.items()}
            ratio = ratios(mine, theirs)
            report.add(
                {"keys": keys, "new": new, "peer": peer.name},
                **found,
                ratio=ratio,
                spark_grid=tried,
                breakdown=parts,
            )
            for name, one in found.items():
                epoch = one["epoch_seconds"]
                table_rows.append(
                    [
                        case.label,
                        name,
                        show(one["records_per_second"], "{:,.0f}"),
                        epoch["median"],
                        epoch["p99"],
                        show(ratio) if name == ours.name else "",
                    ]
                )
            times.append([case.label, *(parts.get(part, "-") for part in PARTS)])
    table(["case", "contender", "records/s", "epoch s", "p99 s", "ratio"], table_rows)
    print("Where the time of an epoch goes, median seconds:")
    table(["case", *PARTS], times)


def _ours(bench: Bench, case: Case, rows: int) -> Contender:
    checkpoint = bench.directory / f"godwit-{case.keys}"
    return godwit_count(bench, checkpoint, case.key, rows, preload=case.keys)


def _best_peer(bench: Bench, case: Case, grid: list[int]) -> tuple[Contender, dict[str, float]]:
    """Fill Spark's state stores with the settled keys, and choose the fastest of the grid."""
    tried: dict[str, float] = {}
    contenders: dict[str, Contender] = {}
    for provider in PROVIDERS:
        checkpoint = bench.directory / f"spark-{provider}-{case.keys}"
        contender = partial(spark_count, bench, checkpoint, provider=provider)
        if not checkpoint.exists():
            fill = min(grid[0], case.keys)
            say(f"    filling {provider}")
            contender(settled(case.keys), fill).turn(case.keys // fill, warm_up=0)
        for rows in grid:
            name = f"spark {provider} {rows:,}"
            contenders[name] = contender(case.key, rows, name=name)
            tried[name] = contenders[name].turn(PEER_EPOCHS).rate
            say(f"    tried {name}: {tried[name]:,.0f} records/s")
    best = max(tried, key=lambda name: tried[name])
    return contenders[best], tried
