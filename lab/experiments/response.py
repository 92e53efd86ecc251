"""Figure 13 of Ding et al.: the response time after a migration, by planner and length of windows.

Frequent patterns over a sliding window; all operators go from four workers to three at once, to the
target that a planner finds from the load and state that were measured until then. The costs of the
migrations to come, which the Markov-aware one looks at, are those of going back and forth.
"""

from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from godwit.inspect.targets import PLANNERS
from godwit.planner.chain import Chain
from godwit.planner.iteration import project
from godwit.planner.task_merging import merge_tasks
from lab.experiments.laboratory import Lab
from lab.experiments.moves import WORKERS
from lab.tools import plots
from lab.tools.page import Findings, Section
from lab.tools.session import scratch
from lab.tools.tables import ResultTable
from lab.workloads.catalog import NUMBERED, Workload
from lab.workloads.overview import overview
from lab.workloads.patterns import frequent_patterns
from lab.workloads.plan import BINS, ScheduledMove, WorkloadRun
from lab.workloads.rate import Rate
from lab.workloads.report import RunReport

RATE: Final = "300"  # tweets a second
AFTER: Final = 8.0  # seconds
TAU: Final = 0.3
GAMMA: Final = 0.8


def response(lab: Lab) -> Findings:
    """How long do answers take after a migration, by planner and length of the window?"""
    windows = lab.pick((2, 6), (2,))
    warm_up, at = 8.0, 14.0
    reports: dict[str, RunReport] = {}
    lines: dict[str, list[tuple[float, float]]] = {planner: [] for planner in PLANNERS}
    rows = []
    with scratch() as costs, lab.spark() as spark:
        projected(costs)
        for window in windows:
            make = partial(frequent_patterns, window=f"{window} s", support=20)
            workload = Workload("frequent-patterns", NUMBERED, make, closing=True)
            for planner in PLANNERS:
                label = f"{window} s, {planner}"
                known = costs if planner == "markov" else None
                move = ScheduledMove(at, WORKERS - 1, "all-at-once", planner, known)
                wanted = WorkloadRun(
                    workload, Rate.parse(RATE), WORKERS, at + AFTER, warm_up, (move,)
                )
                report = reports[label] = lab.run(spark, label, wanted)
                before, after = mean(report, warm_up, at), mean(report, at, at + AFTER)
                lines[planner].append((window, after))
                moved = max(migration.share for migration in report.migrations)
                rows.append(
                    [f"{window} s", planner, f"{before:.2f}", f"{after:.2f}", f"{moved:.0%}"]
                )
    about = (
        f"{RATE} tweets a second; {WORKERS} workers on 2 executors become {WORKERS - 1}. The mean "
        f"latency of the events of {AFTER:g} s from the request on, and of those before it; and "
        "what moves of the state of the operator that moves most of it."
    )
    header = ["window", "planner", "before s", "after s", "state moved"]
    figure = plots.curves(lines, "length of the window, s", "mean latency, s", log="")
    return Findings(
        [
            Section("Response time after a migration", about, figure),
            Section("By planner", table=ResultTable(header, rows)),
            *overview(reports),
        ],
        reports,
    )


def projected(directory: Path) -> None:
    """Fill it with the costs of going back and forth, for bins of equal load and size."""
    equal = np.ones(BINS)
    chain = Chain.learn([WORKERS, WORKERS - 1, WORKERS])
    project(merge_tasks(chain, equal, equal, TAU, GAMMA, partitionings=5_000), directory)


def mean(report: RunReport, begin: float, end: float) -> float:
    """Of the median latencies of the slots between two times."""
    line = report.timeline()
    within = (line.begin >= begin) & (line.begin < end)
    return float(line.median[within].mean()) if within.any() else float("nan")
