"""Figures 10 and 11 of Ding et al.: how long it takes to plan, and to project costs beforehand.

Times are those of one processor. `tau` bounds the search, so it is what the paper varies; here the
numbers of tasks, nodes and partitionings are, on which the times depend.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from godwit.model.routing import Routing
from godwit.planner import intervals_of, scattered, single_step
from lab.experiments.costs import GAMMA, SEED, SKEW, TASKS, Month
from lab.experiments.laboratory import Lab
from lab.tools import plots
from lab.tools.page import Findings, Section
from lab.tools.tables import ResultTable

TAU: Final = 0.2


def planning(lab: Lab) -> Findings:
    """How long does it take to plan a migration?"""
    turns = lab.pick(9, 2)
    series: dict[str, list[tuple[float, float]]] = {}
    for before, after in ((8, 10), (16, 12), (64, 80)):
        for bins in lab.pick((64, 256, 1024, 4096, 16_384), (64, 256)):
            if bins < 4 * max(before, after):  # so few tasks a node keep no balance
                continue
            routing = Routing.even(bins, before)
            load, size = np.random.default_rng(SEED).lognormal(0, SKEW, (2, bins))
            plans: dict[str, Callable[[], object]] = {
                "single step": partial(single_step, intervals_of(routing), after, load, size, TAU),
                "scattered": partial(scattered, routing.owners, after, load, size, TAU),
            }
            for name, plan in plans.items():
                label = f"{name}, {before} to {after} nodes"
                series.setdefault(label, []).append((bins, 1e3 * _median(plan, turns)))
            lab.say(f"{before} to {after} nodes, {bins:,} tasks")
    about = f"tau {TAU}, log-normal loads and sizes; the median of {turns} turns."
    rows = [
        [label, f"{bins:,}", f"{taken:.2f}"] for label in series for bins, taken in series[label]
    ]
    figure = plots.curves(series, "tasks", "milliseconds of a processor")
    return Findings(
        [
            Section("Time by number of tasks", about, figure),
            Section("Milliseconds", table=ResultTable(["planner", "tasks", "ms"], rows)),
        ],
        numbers={"milliseconds": series},
    )


def projection(lab: Lab) -> Findings:
    """How long does it take to project the costs of migrations to come?"""
    rows = []
    for limit in lab.pick((0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45), (0.2, 0.25)):
        began = time.process_time()
        costs = Month.of(TASKS).projected(limit, GAMMA, most=50_000)
        rows.append((limit, costs.count, costs.sweeps, time.process_time() - began))
        lab.say(f"tau {limit:g}: {costs.count:,} partitionings, {rows[-1][-1]:.1f} s")
    about = (
        f"{TASKS} tasks, 4 to 8 nodes, gamma {GAMMA}, in one process: on Spark, blocks of "
        "partitionings are spread over its cores."
    )
    line = {"projection": [(float(count), seconds) for _, count, _, seconds in rows]}
    figure = plots.curves(line, "partitionings", "seconds of a processor")
    header = ["tau", "partitionings", "sweeps", "seconds"]
    cells = [[f"{t:g}", f"{count:,}", f"{sweeps}", f"{s:.1f}"] for t, count, sweeps, s in rows]
    return Findings(
        [
            Section("Time by number of partitionings", about, figure),
            Section("Seconds", table=ResultTable(header, cells)),
        ],
        numbers={"projections": [dict(zip(header, row, strict=True)) for row in rows]},
    )


def _median(plan: Callable[[], object], turns: int) -> float:
    """The processor time of a call, in seconds, once it has been called."""
    plan()
    taken = []
    for _ in range(turns):
        began = time.process_time()
        plan()
        taken.append(time.process_time() - began)
    return float(np.median(taken))
