"""Figure 20 of Megaphone: the memory of all processes while state moves."""

from typing import Final

from lab.experiments.laboratory import Lab
from lab.experiments.moves import WORKERS, one_each
from lab.tools.page import Findings, Section
from lab.tools.tables import ResultTable
from lab.workloads.known_counts import hash_counts
from lab.workloads.overview import overview
from lab.workloads.plan import WorkloadRun
from lab.workloads.rate import Rate
from lab.workloads.report import RunReport

NAMES: Final = ("all-at-once", "batched:128", "paced")


def memory(lab: Lab) -> Findings:
    """How much more memory does a query need while its state moves?"""
    keys = lab.pick(8_000_000, 200_000)
    warm_up, at, seconds = lab.pick((8.0, 18.0, 36.0), (5.0, 8.0, 16.0))
    wanted = WorkloadRun(hash_counts(keys), Rate.parse("10k"), WORKERS, seconds, warm_up)
    reports = {}
    for name, one in one_each(wanted, NAMES, at).items():
        with lab.spark() as spark:  # heaps do not shrink: each strategy has its own
            reports[name] = lab.run(spark, name, one)
    rows = [[name, *(f"{mib:,.0f}" for mib in _greatest(one))] for name, one in reports.items()]
    about = f"Hash count over {keys:,} known keys; proportional set size, every half second."
    return Findings(
        [
            Section(
                "Greatest, MiB", about, table=ResultTable(["", "steady", "from the move on"], rows)
            ),
            *overview(reports),
        ],
        reports,
    )


def _greatest(report: RunReport) -> tuple[float, float]:
    """Between the warm-up and the move, and afterwards."""
    asked = report.migrations[0].asked
    before = [mib for at, mib in report.memory if report.warm_up <= at < asked]
    return max(before, default=0.0), max(mib for at, mib in report.memory if at >= asked)
