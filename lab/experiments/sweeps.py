"""Figures 16 to 18 of Megaphone: latency against duration, as bins, keys or both grow.

In each run a quarter of the state moves by each strategy in turn.
"""

from collections.abc import Iterable
from typing import Final

from lab.experiments.laboratory import Lab
from lab.experiments.moves import WORKERS, moves
from lab.tools.page import Findings
from lab.workloads.known_counts import hash_counts
from lab.workloads.overview import overview
from lab.workloads.plan import WorkloadRun
from lab.workloads.rate import Rate
from lab.workloads.report import RunReport

KEYS: Final = 2_000_000
MANY_KEYS: Final = (500_000, 2_000_000, 8_000_000)
MANY_BINS: Final = (16, 256, 4096, 65_536)
KEYS_A_BIN: Final = 8192


def bins(lab: Lab) -> Findings:
    """What do more bins change, for the same keys?"""
    keys = lab.pick(KEYS, 100_000)
    cases = [(f"{n:,} bins", keys, n) for n in lab.pick(MANY_BINS, (16, 256))]
    return _sweep(lab, f"{keys:,} keys", cases)


def keys(lab: Lab) -> Findings:
    """What do more keys change, with the same bins?"""
    cases = [(f"{n:,} keys", n, 4096) for n in lab.pick(MANY_KEYS, (50_000, 100_000))]
    return _sweep(lab, "4,096 bins", cases)


def proportional(lab: Lab) -> Findings:
    """What do more keys change, with as many of them in each bin?"""
    few = (KEYS_A_BIN * 16, KEYS_A_BIN * 32)
    many = [KEYS_A_BIN * count for count in (64, 256, 1024)]
    cases = [
        (f"{n:,} keys, {n // KEYS_A_BIN:,} bins", n, n // KEYS_A_BIN)
        for n in lab.pick(many, list(few))
    ]
    return _sweep(lab, f"{KEYS_A_BIN:,} keys a bin", cases)


def _sweep(lab: Lab, fixed: str, cases: Iterable[tuple[str, int, int]]) -> Findings:
    warm_up, gap = lab.pick((8.0, 10.0), (5.0, 6.0))
    reports: dict[str, RunReport] = {}
    with lab.spark() as spark:
        for label, keys, bins in cases:
            names = ("all-at-once", f"batched:{max(1, bins // 32)}", "paced")
            reports[label] = lab.run(
                spark,
                label,
                WorkloadRun(
                    hash_counts(keys),
                    Rate.parse("10k"),
                    WORKERS,
                    warm_up + 6 + gap * len(names),
                    warm_up,
                    moves(names, bins, warm_up + 6, gap),
                    bins,
                ),
            )
    about = (
        f"Hash count, {fixed}, 10,000 events a second, 4 workers on 2 executors; a quarter moves."
    )
    return Findings(overview(reports, about, kind=_kind, by_size=True), reports)


def _kind(strategy: str) -> str:
    return "batched, 8 steps" if strategy.startswith("batched") else strategy
