"""Figures 5 to 12 of Megaphone: each of NEXMark's queries, while a quarter of its state moves.

A run for each query, in which all its operators move a quarter of their bins by each strategy in
turn, to and fro. Queries 1 and 2 have no state to move and show what Spark alone does.
"""

from typing import Final

from lab.experiments.laboratory import Lab
from lab.experiments.moves import WORKERS, moves
from lab.tools.page import Findings
from lab.workloads.catalog import workload
from lab.workloads.overview import overview
from lab.workloads.plan import WorkloadRun
from lab.workloads.rate import Rate

NAMES: Final = ("all-at-once", "matched", "paced")
STATELESS: Final = ("q1", "q2")
QUERIES: Final = (*STATELESS, "q3", "q4", "q5", "q6", "q7", "q8")
BINS: Final = 64  # of which `matched` moves two an epoch


def nexmark(lab: Lab) -> Findings:
    """How does a migration disturb each of NEXMark's queries?"""
    warm_up, gap = lab.pick((8.0, 14.0), (5.0, 6.0))
    rate = Rate.parse(lab.pick("10k", "2k"))
    reports = {}
    with lab.spark() as spark:
        for name in QUERIES:
            moved = () if name in STATELESS else moves(NAMES, BINS, warm_up + 6, gap)
            seconds = warm_up + (10 if name in STATELESS else 6 + gap * len(NAMES))
            wanted = WorkloadRun(workload(name), rate, WORKERS, seconds, warm_up, moved, BINS)
            reports[name] = lab.run(spark, name, wanted)
    about = (
        f"{rate.until(10**6) - 1:,} events a second, {WORKERS} workers on 2 executors, {BINS} "
        "bins an operator. A quarter of each operator moves at once, by matching, and paced."
    )
    return Findings(overview(reports, about), reports)
