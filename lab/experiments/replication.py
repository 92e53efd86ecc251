"""Figure 5 of Rhino: what it costs a query to have replicas, while nothing happens.

At half of the load that the query bears, runs with and without replicas take turns.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from lab.experiments.laboratory import Lab
from lab.experiments.moves import WORKERS
from lab.tools.page import Findings, Section
from lab.tools.tables import ResultTable
from lab.tools.turns import in_turn
from lab.workloads.known_counts import hash_counts
from lab.workloads.overview import overview
from lab.workloads.plan import WorkloadRun
from lab.workloads.rate import SECOND, Rate
from lab.workloads.report import RunReport

NAMES: Final = {0: "no replicas", 1: "replicas"}
FLOOD: Final = Rate.parse("2M")  # more than the query bears
EPOCH: Final = 500_000  # events of an epoch in the flood
BINS: Final = 256
GREATEST: Final = "the greatest load"


def replication(lab: Lab) -> Findings:
    """What does it cost a query to have replicas?"""
    keys = lab.pick(2_000_000, 100_000)
    warm_up, seconds, turns = lab.pick((6.0, 22.0, 3), (3.0, 9.0, 1))
    reports: dict[str, RunReport] = {}
    with lab.spark() as spark:
        flood = WorkloadRun(hash_counts(keys), FLOOD, WORKERS, lab.pick(5.0, 1.0), 0.5, bins=BINS)
        flooded = lab.run(spark, GREATEST, replace(flood, epoch_events=EPOCH))
        borne = flooded.throughput()
        half = Rate.parse(f"{round(borne / 2)}")
        wanted = WorkloadRun(hash_counts(keys), half, WORKERS, seconds, warm_up, bins=BINS)
        for turn, replicas in in_turn(reversed(NAMES), turns):
            label = f"{NAMES[replicas]}, {turn}"
            reports[label] = lab.run(spark, label, replace(wanted, replicas=replicas))
    about = (
        f"Hash count over {keys:,} known keys, {half.until(SECOND) - 1:,} events a second, half of "
        f"the {borne:,.0f} that it bears; {WORKERS} workers on 2 executors. Runs take turns."
    )
    return Findings(
        [
            Section("Medians of the runs", about, table=_costs(reports, turns)),
            *overview(reports, group=lambda label: label.split(",")[0]),
        ],
        {GREATEST: flooded, **reports},
        numbers={"greatest_load": borne},
    )


def _costs(reports: dict[str, RunReport], turns: int) -> ResultTable:
    """With and without, and what the former is of the latter."""
    header = ["", "p50 s", "p99 s", "processor s", "memory MiB", "keepers: processor s"]
    header += ["keepers: MB read", "keepers: MiB"]
    found = {
        name: np.median([_numbers(reports[f"{name}, {turn + 1}"]) for turn in range(turns)], axis=0)
        for name in NAMES.values()
    }
    rows = [[name, *(f"{value:.2f}" for value in values)] for name, values in found.items()]
    ratios = found["replicas"][:4] / found["no replicas"][:4]
    return ResultTable(header, [*rows, ["ratio", *(f"{one:.2f} x" for one in ratios), "", "", ""]])


def _numbers(report: RunReport) -> list[float]:
    """Percentiles are exact: the buckets of a histogram are wider than what is looked for."""
    used, epochs = report.usage, report.timed()
    assert used is not None
    each = [report.latencies(epoch) / SECOND for epoch in epochs]
    weights = [
        np.full(len(one), (epoch.last - epoch.first) / len(one))
        for one, epoch in zip(each, epochs, strict=True)
    ]
    latency = np.quantile(
        np.concatenate(each),
        [0.5, 0.99],
        weights=np.concatenate(weights),
        method="inverted_cdf",
    )
    memory = max(mib for at, mib in report.memory if at >= report.warm_up)
    kept = [used.kept_seconds, used.kept_bytes / 1e6, used.kept_mib]
    return [*latency.tolist(), used.seconds, memory, *kept]
