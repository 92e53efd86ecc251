"""Figures 9, 12 and 14 of Ding et al.: what the migrations of a month move, by planner.

The paper's setting halved: 32 tasks instead of 64, and 4 to 8 nodes instead of 8 to 16, so that the
tasks of a node are as many. Their loads and sizes are log-normal, and seeded; so is the hourly
series of numbers of nodes, since the paper's trace is not public. The chain is learnt from the
first month; the migrations are those of the second.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from godwit.planner import even, hashed, scattered, single_step
from godwit.planner.assignment import Floats, intervals_in
from godwit.planner.bin_assignment import Owners
from godwit.planner.chain import Chain
from godwit.planner.iteration import project
from godwit.planner.markov import markov_step
from godwit.planner.projected import Projected
from godwit.planner.task_merging import merge_tasks
from lab.experiments.laboratory import Lab
from lab.tools import plots
from lab.tools.page import Findings, Section
from lab.tools.tables import ResultTable
from lab.workloads.hourly import hourly_nodes

TASKS: Final = 32
TAU: Final = 0.3
GAMMA: Final = 0.8
LEARNT: Final = 24 * 31  # hours of the first month
SKEW: Final = 0.2  # of the logarithms of loads and sizes
SEED: Final = 1
EXACT, MERGED = "Markov-aware", "Markov-aware, merged tasks"
ABOUT: Final = (
    "Half of the paper's nodes, 4 to 8, hour by hour over the second month of the stored series. "
    "Tasks have log-normal loads and sizes."
)

Step = Callable[[Owners, int], npt.NDArray[np.int32]]
"""The owners of all tasks after a migration to so many nodes."""


@dataclass(frozen=True, slots=True)
class Month:
    """The migrations of the second month, and the tasks that they move."""

    load: Floats
    size: Floats
    chain: Chain
    nodes: Sequence[int]

    @classmethod
    def of(cls, tasks: int, migrations: int | None = None) -> "Month":
        """All migrations of the month with so many tasks, or only the first ones."""
        rng = np.random.default_rng(SEED)
        series = [nodes // 2 for day in hourly_nodes() for nodes in day]
        later = series[LEARNT:]
        changes = [b for a, b in pairwise(later) if a != b]
        load, size = rng.lognormal(0, SKEW, (2, tasks))
        return cls(load, size, Chain.learn(series[:LEARNT]), [later[0], *changes[:migrations]])

    def drawn(self, migrations: int) -> "Month":
        """So many migrations as the chain has them, and not as they came."""
        rng = np.random.default_rng(SEED)
        nodes = [self.nodes[0]]
        for _ in range(migrations):
            row = self.chain.row(nodes[-1])
            nodes.append(int(rng.choice(list(row), p=list(row.values()))))
        return replace(self, nodes=nodes)

    def moved(self, step: Step) -> float:
        """What a migration moves in the mean, in percent of all state."""
        owners = (np.arange(len(self.size)) * self.nodes[0] // len(self.size)).astype(np.int32)
        moved = 0.0
        for nodes in self.nodes[1:]:
            after = step(owners, nodes)
            moved += float(self.size[after != owners].sum())
            # Nodes are numbered anew: removed ones leave no gap.
            owners = np.unique(after, return_inverse=True)[1].astype(np.int32)
        return 100 * moved / float(self.size.sum()) / (len(self.nodes) - 1)

    def projected(self, tau: float, gamma: float, most: int) -> Projected:
        """Projected costs; of merged tasks where there are more than `most` partitionings."""
        return project(merge_tasks(self.chain, self.load, self.size, tau, gamma, most))

    def single_step(self, tau: float) -> Step:
        return lambda owners, nodes: (
            single_step(_intervals(owners), nodes, self.load, self.size, tau).owners
        )

    def markov(self, tau: float, costs: Projected) -> Step:
        return lambda owners, nodes: (
            markov_step(_intervals(owners), nodes, self.load, self.size, tau, costs).owners
        )

    def scattered(self, tau: float) -> Step:
        return lambda owners, nodes: scattered(owners, nodes, self.load, self.size, tau).owners

    def hashed(self, seed: int) -> Step:
        return lambda owners, nodes: hashed(owners, nodes, self.load, self.size, seed=seed).owners

    def even(self, owners: Owners, nodes: int) -> npt.NDArray[np.int32]:
        return even(owners, nodes, self.load, self.size).owners

    def others(self, seeds: int) -> dict[str, float]:
        """What those move that look at no load: consistent hashing in the mean of some seeds."""
        by_hash = [self.moved(self.hashed(seed)) for seed in range(seeds)]
        return {
            "consistent hashing": float(np.mean(by_hash)),
            "Storm's": self.moved(self.even),
        }


def tau(lab: Lab) -> Findings:
    """How much state does a migration move, by planner and tolerance of imbalance (tau)?"""
    month = Month.of(TASKS, lab.pick(None, 30))
    seeds, most = lab.pick((100, 60_000), (3, 500))
    others = month.others(seeds)
    rows: dict[float, Mapping[str, float]] = {}
    for limit in lab.pick((0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6), (0.2, 0.3)):
        costs = month.projected(limit, GAMMA, most)
        rows[limit] = {
            "single step": month.moved(month.single_step(limit)),
            _markov(costs, TASKS): month.moved(month.markov(limit, costs)),
            "scattered": month.moved(month.scattered(limit)),
            **others,
        }
        lab.say(f"tau {limit:g}: {costs.problem.tasks} tasks, {costs.count:,} partitionings")
    about = (
        f"{ABOUT} {TASKS} tasks, gamma {GAMMA}. Projected costs are exact up to {most:,} "
        "partitionings; above that tasks are merged. Consistent hashing and Storm's do not keep to "
        f"a tau; the former is the mean of {seeds} seeds."
    )
    return _by("tau", about, rows)


def tasks(lab: Lab) -> Findings:
    """How much state does a migration move, by number of tasks?"""
    seeds, most = lab.pick((20, 60_000), (2, 500))
    rows: dict[float, Mapping[str, float]] = {}
    for count in lab.pick((32, 64, 128, 256, 512), (32, 64)):
        month = Month.of(count, lab.pick(None, 30))
        costs = month.projected(TAU, GAMMA, most)
        rows[count] = {
            "single step": month.moved(month.single_step(TAU)),
            _markov(costs, count): month.moved(month.markov(TAU, costs)),
            "scattered": month.moved(month.scattered(TAU)),
            **month.others(seeds),
        }
        lab.say(
            f"{count} tasks, projected for {costs.problem.tasks}: {costs.count:,} partitionings"
        )
    about = (
        f"{ABOUT} tau {TAU}, gamma {GAMMA}. Projected costs are exact up to {most:,} "
        "partitionings; above that tasks are merged, and only merged tasks move."
    )
    return _by("tasks", about, rows)


def discount(lab: Lab) -> Findings:
    """How much state does a migration move, the more those to come are counted (gamma)?"""
    month = Month.of(TASKS, lab.pick(None, 30))
    drawn = month.drawn(lab.pick(2000, 30))
    rows: dict[float, Mapping[str, float]] = {}
    for gamma in lab.pick((0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95), (0.0, 0.8)):
        costs = month.projected(TAU, gamma, most=lab.pick(20_000, 500))
        rows[gamma] = {
            "the month's migrations": month.moved(month.markov(TAU, costs)),
            "drawn from the chain": drawn.moved(drawn.markov(TAU, costs)),
        }
        lab.say(f"gamma {gamma:g}: {costs.sweeps} sweeps")
    about = (
        f"{ABOUT} {TASKS} tasks, tau {TAU}. With gamma 0 only the migration itself counts. Beside "
        f"the month's migrations {len(drawn.nodes) - 1:,} that were drawn from the chain: what is "
        "optimal for a chain need not be for a series that follows the hours of the day."
    )
    return _by("gamma", about, rows)


def _markov(costs: Projected, tasks: int) -> str:
    return EXACT if costs.problem.tasks == tasks else MERGED


def _intervals(owners: Owners) -> list[tuple[int, int]]:
    return intervals_in(owners, int(owners.max()) + 1)


def _by(name: str, about: str, rows: Mapping[float, Mapping[str, float]]) -> Findings:
    """Percentages by one number: as lines, as a table, and as numbers."""
    planners = list(dict.fromkeys(planner for row in rows.values() for planner in row))
    series = {
        planner: [(x, row[planner]) for x, row in rows.items() if planner in row]
        for planner in planners
    }
    lines = [
        [f"{x:g}", *(f"{row[planner]:.2f}" if planner in row else "-" for planner in planners)]
        for x, row in rows.items()
    ]
    log = "x" if name == "tasks" else ""
    figure = plots.curves(series, name, "moved by a migration, % of the state", log=log)
    sections = [
        Section("State moved", about, figure),
        Section("Percent of the state", table=ResultTable([name, *planners], lines)),
    ]
    return Findings(sections, numbers={"percent_moved": series})
