"""A skewed stream before and after its load is balanced, on the running engine.

The words of a text come as often as Zipf has it, so one of four workers gets far more records than
the others, and every epoch waits for it. Each record waits for an answer, as a look-up elsewhere
would: workers then wait at the same time, whatever the number of cores.
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from lab.experiments.laboratory import Lab
from lab.experiments.moves import WORKERS
from lab.tools import plots
from lab.tools.page import Findings, Section
from lab.tools.tables import ResultTable
from lab.workloads.catalog import NUMBERED, Workload
from lab.workloads.counts import ANSWER, WORDS_A_LINE, look_ups
from lab.workloads.overview import overview
from lab.workloads.plan import REBALANCE, ScheduledMove, WorkloadRun
from lab.workloads.rate import Rate
from lab.workloads.report import RunReport

WORDS: Final = 200
BINS: Final = 1024
LINES: Final = 240  # a second: more than skewed workers can do, and less than balanced ones
EPOCH: Final = 500  # lines of an epoch, so that one is as much work as the other


def skew(lab: Lab) -> Findings:
    """How much shorter do epochs become when the load of a skewed stream is balanced?"""
    warm_up, at, seconds = lab.pick((12.0, 24.0, 42.0), (8.0, 14.0, 24.0))
    workload = Workload("look-ups", NUMBERED, partial(look_ups, words=WORDS))
    rate = Rate.parse(str(LINES))
    still = WorkloadRun(workload, rate, WORKERS, seconds, warm_up, bins=BINS, epoch_events=EPOCH)
    moving = replace(still, moves=(ScheduledMove(at, REBALANCE),))
    with lab.spark() as spark:
        reports = {
            "as hashed": lab.run(spark, "as hashed", still),
            "rebalanced": lab.run(spark, "rebalanced", moving),
        }
    about = (
        f"{LINES * WORDS_A_LINE:,} words a second, of {WORDS} in all; word k is about as frequent "
        f"as 1/k. 4 workers on 2 executors, {BINS:,} bins; each word waits {1e3 * ANSWER:g} ms. An "
        f"epoch has at most {EPOCH} lines of {WORDS_A_LINE} words."
    )
    ended = reports["rebalanced"].migrations[0].ended
    until = at if ended is None else ended
    rows = [
        [label, part, *_cells(report, begin, end)]
        for label, report in reports.items()
        for part, begin, end in (("before", warm_up, at), ("after", until, np.inf))
    ]
    header = ["", "of the move", "epochs", "median s", "longest s", "lines a second"]
    lengths = {label: _lengths(report) for label, report in reports.items()}
    figure = plots.curves(
        lengths,
        "delivered, seconds since the start",
        "seconds since the epoch before",
        log="",
        moved=[(at, until)],
    )
    return Findings(
        [
            Section("Length of epochs", about, figure),
            Section(f"Epochs before {at:g} s and after the move", table=ResultTable(header, rows)),
            *overview(reports),
        ],
        reports,
    )


def _lengths(report: RunReport) -> list[tuple[float, float]]:
    """When each epoch was delivered, and the seconds since the one before."""
    delivered = [epoch.delivered for epoch in report.epochs]
    return list(zip(delivered[1:], np.diff(delivered).tolist(), strict=True))


def _cells(report: RunReport, begin: float, end: float) -> list[str]:
    """Of the epochs that began and were delivered between two times."""
    epochs = [
        (epoch.last - epoch.first, epoch.delivered - before.delivered)
        for before, epoch in pairwise(report.epochs)
        if begin <= before.delivered and epoch.delivered <= end
    ]
    if not epochs:
        return ["0", "-", "-", "-"]
    events, lengths = np.array(epochs).T
    seconds = (f"{some:.2f}" for some in (np.median(lengths), lengths.max()))
    return [f"{len(epochs)}", *seconds, f"{events.sum() / lengths.sum():.0f}"]
