"""How long do projected migration costs take, and what are they good for? Ding et al., section 6.

The paper's setting: 64 equal tasks, 8 to 16 nodes in steps of two, a load of at most 1.2 times the
average, gamma 0.8. The chain is learnt from the first month of the stored hourly series; migrations
are then those of the second month. Beside it a smaller setting, half of these nodes, in which tasks
are merged and the costs compared with the exact ones.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from godwit.cli.output import note
from godwit.planner.chain import Chain
from godwit.planner.iteration import SolveBlocks, SweepProgress, project
from godwit.planner.markov import markov_step
from godwit.planner.projected import Problem, Projected
from godwit.planner.task_merging import excess, merge_tasks
from godwit.spark.projection import OnSpark
from lab.bench.application import Bench
from lab.bench.results import BenchResults
from lab.tools.tables import show_table
from lab.workloads.hourly import hourly_nodes

TASKS, TAU, GAMMA = 64, 0.2, 0.8
LEARNT = 31  # days of the first month
LOOK_UPS = 10_000
STEPS = 20


def run(bench: Bench) -> None:
    report = BenchResults("projected", bench, {"tasks": TASKS, "tau": TAU, "gamma": GAMMA})
    small = [half for day in hourly_nodes() for half in (nodes // 2 for nodes in day)]
    whole = [nodes + nodes % 2 for day in hourly_nodes() for nodes in day]
    _merging(report, Chain.learn(small[: 24 * LEARNT]))
    if not bench.full:
        _costs(bench, report, "half of the nodes", small)
    else:
        _costs(bench, report, "the paper's", whole)


def _costs(bench: Bench, report: BenchResults, name: str, series: Sequence[int]) -> None:
    chain, ones = Chain.learn(series[: 24 * LEARNT]), np.ones(TASKS)
    problem = Problem.of(chain, ones, ones, TAU, GAMMA)
    timed = TimedBlocks(OnSpark(bench.spark), bench.directory / "seconds")
    began = time.monotonic()
    found = project(problem, bench.directory / "costs", run=timed, progress=_tell)
    seconds = time.monotonic() - began
    myopic = project(Problem.of(chain, ones, ones, TAU, 0.0), bench.directory / "single")
    later = [b for a, b in pairwise(series[24 * LEARNT :]) if a != b]
    findings = {
        "partitionings": found.count,
        "seconds": round(seconds, 1),
        "seconds_of_processors": round(timed.processors(), 1),
        "load_of_the_machine": os.getloadavg()[1],
        "sweeps": found.sweeps,
        "bound_of_all_state": found.bound / problem.total,
        "look_up_microseconds": _look_ups(found),
        "step_milliseconds": _steps(found),
        "migrations": len(later),
        "moved_percent": _moved(found, later),
        "moved_percent_single_step": _moved(myopic, later),
    }
    report.add({"setting": name}, **findings)
    show_table(["finding", "value"], [[key, value] for key, value in findings.items()])


def _merging(report: BenchResults, chain: Chain) -> None:
    """Costs of merged tasks against exact ones."""
    ones = np.ones(TASKS)
    exact = project(Problem.of(chain, ones, ones, TAU, GAMMA))
    count = exact.count
    lines = []
    for most in (count // 2, count // 4, count // 10):
        problem = merge_tasks(chain, ones, ones, TAU, GAMMA, most)
        coarse = project(problem)
        shares = excess(coarse, exact) / exact.problem.total
        mean = np.mean(np.concatenate(list(coarse.cost.values()))) / exact.problem.total
        found = {
            "partitionings": coarse.count,
            "of": count,
            "mean_cost": float(mean),
            "mean_excess": float(shares.mean()),
            "most_excess": float(shares.max()),
        }
        report.add({"setting": "merged tasks", "tasks": len(problem.load)}, **found)
        lines.append([len(problem.load), *found.values()])
    show_table(["tasks", "partitionings", "of", "mean cost", "mean excess", "most excess"], lines)


@dataclass(frozen=True, slots=True)
class TimedBlocks:
    """Runs blocks elsewhere, and takes down the processor time of each."""

    run: SolveBlocks
    file: Path

    def __call__(self, solve: Callable[[int], int], blocks: Sequence[int]) -> Iterator[int]:
        yield from self.run(partial(solve_timed, self.file, solve), blocks)

    def processors(self) -> float:
        return sum(float(line) for line in self.file.read_text().split())


def solve_timed(file: Path, solve: Callable[[int], int], block: int) -> int:
    began = time.process_time()
    solve(block)
    with file.open("a") as times:
        times.write(f"{time.process_time() - began}\n")
    return block


def _tell(progress: SweepProgress) -> None:
    if progress.done % 16 == 0 or progress.done == progress.blocks:
        note(f"    {progress}")


def _look_ups(found: Projected) -> float:
    rng = np.random.default_rng(0)
    nodes = max(found.stops, key=lambda each: len(found.stops[each]))
    rows = list(found.stops[nodes][rng.integers(0, len(found.stops[nodes]), LOOK_UPS)])
    found.of(rows[0])
    began = time.process_time()
    for row in rows:
        found.of(row)
    return round((time.process_time() - began) / LOOK_UPS * 1e6, 2)


def _steps(found: Projected) -> float:
    nodes = max(found.stops, key=lambda each: len(found.stops[each]))
    ones = np.ones(TASKS)
    half = [(0, TASKS // 2), (TASKS // 2, TASKS)]
    began = time.process_time()
    for _ in range(STEPS):
        markov_step(half, nodes, ones, ones, TAU, found)
    return round((time.process_time() - began) / STEPS * 1e3, 2)


def _moved(found: Projected, later: Sequence[int]) -> float:
    """What each migration of a series moves in the mean, in percent of all state."""
    ones, moved = np.ones(TASKS), 0.0
    edges = np.linspace(0, TASKS, later[0] + 1).astype(int).tolist()
    intervals: list[Any] = list(pairwise(edges))
    for nodes in later:
        step = markov_step(intervals, nodes, ones, ones, TAU, found)
        intervals = [interval for interval in step.intervals if interval is not None]
        moved += step.cost
    return round(100 * moved / TASKS / len(later), 3)
