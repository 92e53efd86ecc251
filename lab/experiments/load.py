"""Figure 19 of Megaphone: offered load against the greatest latency, up to saturation.

At each load a quarter of the state moves by each strategy in turn; before, nothing does.
"""

from typing import Final

from lab.experiments.laboratory import Lab
from lab.experiments.moves import WORKERS, moves
from lab.tools import plots
from lab.tools.page import Findings, Section
from lab.workloads.known_counts import hash_counts
from lab.workloads.overview import before, overview
from lab.workloads.plan import WorkloadRun
from lab.workloads.rate import Rate

NAMES: Final = ("all-at-once", "paced")
RATES: Final = ("20k", "80k", "160k", "320k", "640k", "1200k", "2400k")
BINS: Final = 4096


def load(lab: Lab) -> Findings:
    """How much load does a query bear while its state moves?"""
    keys = lab.pick(2_000_000, 100_000)
    warm_up, gap = lab.pick((8.0, 10.0), (5.0, 6.0))
    reports = {}
    with lab.spark() as spark:
        for text in lab.pick(RATES, RATES[:2]):
            seconds = warm_up + 8 + gap * len(NAMES)
            wanted = WorkloadRun(
                hash_counts(keys),
                Rate.parse(text),
                WORKERS,
                seconds,
                warm_up,
                moves(NAMES, BINS, warm_up + 8, gap),
                BINS,
            )
            reports[f"{text} events/s"] = lab.run(spark, f"{text} events/s", wanted)
    series: dict[str, list[tuple[float, float]]] = {"none": []}  # before the first migration
    for report in reports.values():
        offered = report.rate.until(10**6) - 1
        if (greatest := before(report)) is not None:
            series["none"].append((offered, greatest))
        for one in report.disturbances():
            series.setdefault(one.strategy, []).append((offered, one.greatest))
    about = f"Hash count over {keys:,} known keys, 4 workers on 2 executors, {BINS:,} bins."
    curve = plots.curves(series, "offered load, events a second", "greatest latency, s")
    return Findings(
        [
            Section("Greatest latency by load", about, curve),
            *overview(reports),
        ],
        reports,
    )
