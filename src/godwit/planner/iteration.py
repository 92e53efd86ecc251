"""Projected costs by policy iteration, in blocks that run anywhere and are kept as they finish.

A sweep finds for every partitioning, and every number of nodes that may follow, the partitioning
to migrate to, given the costs C known so far. Then C becomes what these choices cost for ever, and
not only what they cost once more: a handful of sweeps suffice, where value iteration (Figure 6 of
Ding et al.) gains a factor of gamma with each. With TC the costs after one more migration, no value
of TC is farther from the exact one than
gamma / (1 - gamma) * max |TC - C| (Puterman, Markov Decision Processes, section 6.3).
"""

import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from godwit.planner.nearest import Targets, nearest
from godwit.planner.partitionings import Costs, Indices
from godwit.planner.projected import Problem, Projected
from godwit.planner.work import ProjectionDirectory

TOLERANCE = 1e-9  # of the size of all state
_PRECISION = 1e-13  # what a sweep gains below this share of the costs is rounding


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How many blocks of a sweep are done, and how far the sweep before was from exact costs."""

    sweep: int
    done: int
    blocks: int
    bound: float

    def __str__(self) -> str:
        return f"sweep {self.sweep}: {self.done} of {self.blocks} blocks, bound {self.bound:.2g}"


class SolveBlocks(Protocol):
    """Solves blocks in any order, wherever the directory can be seen; yields each that is done."""

    def __call__(self, solve: Callable[[int], int], blocks: Sequence[int]) -> Iterable[int]: ...


def solve_in_process(solve: Callable[[int], int], blocks: Sequence[int]) -> Iterable[int]:
    """Solve blocks in this process, one after the other."""
    return map(solve, blocks)


def project(
    problem: Problem,
    directory: Path | None = None,
    *,
    run: SolveBlocks = solve_in_process,
    tolerance: float = TOLERANCE,
    progress: Callable[[SweepProgress], None] = lambda _: None,
) -> Projected:
    """The projected costs of a problem, to within `tolerance` times the size of all state.

    What is in the directory already is not computed again; without one, nothing is kept. The bound
    of the result is above the tolerance only if 64-bit numbers cannot carry that.
    """
    if directory is None:
        with tempfile.TemporaryDirectory() as scratch:
            return project(problem, Path(scratch), run=run, tolerance=tolerance, progress=progress)
    work = ProjectionDirectory.prepare(problem, directory)
    bound = math.inf
    while True:
        sweep, before = work.newest()
        solve = partial(solve_block, str(directory), work.digest, sweep)
        missing = work.missing(sweep)
        for done, _ in enumerate(run(solve, missing), len(work.blocks) - len(missing) + 1):
            progress(SweepProgress(sweep, done, len(work.blocks), bound))
        policy = Policy.of(work, sweep)
        after = policy.one_sweep(before)
        gain = float(np.abs(after - before).max())
        bound = problem.gamma / (1 - problem.gamma) * gain
        if bound <= tolerance * problem.total or gain <= _PRECISION * after.max():
            return work.finish(after, bound, sweep)
        work.go_on(sweep, policy.for_ever(before))


def solve_block(directory: str, digest: str, sweep: int, block: int) -> int:
    """Find the best migrations of one block, keep them in the directory and return its number."""
    work = _opened(directory, digest)
    problem = work.problem
    size = np.asarray(problem.size)
    values = work.by_nodes(work.values(sweep))
    nodes, rows = work.blocks[block]
    stops = work.stops[nodes][work.order[nodes][rows]]
    found = [
        nearest(stops, _targets(directory, digest, count), size, problem.gamma * values[count])
        for count in problem.chain.row(nodes)
    ]
    work.keep(sweep, block, [moved for moved, _ in found], [target for _, target in found])
    return block


# Processes solve many blocks: they keep what does not change. Another problem has another digest.
@lru_cache(maxsize=1)
def _opened(directory: str, digest: str) -> ProjectionDirectory:
    return ProjectionDirectory.open(Path(directory))


@lru_cache(maxsize=32)
def _targets(directory: str, digest: str, nodes: int) -> Targets:
    work = _opened(directory, digest)
    return Targets.of(work.stops[nodes], work.problem.tasks)


@dataclass(frozen=True, slots=True)
class Policy:
    """For each partitioning and number of nodes to follow: its probability, and where to migrate.

    One row for each number of nodes; `moved` is the mean of what one migration moves.
    """

    gamma: float
    share: npt.NDArray[np.float64]
    target: Indices
    moved: Costs

    @classmethod
    def of(cls, work: ProjectionDirectory, sweep: int) -> "Policy":
        """What the blocks of a sweep have found."""
        chain, count = work.problem.chain, work.count
        share, moved = np.zeros((len(chain.nodes), count)), np.zeros(count)
        target = np.zeros(share.shape, np.int64)
        for block, (nodes, rows) in enumerate(work.blocks):
            here = work.start[nodes] + work.order[nodes][rows]
            moves, targets = work.found(sweep, block)
            for (to, probability), move, best in zip(
                chain.row(nodes).items(), moves, targets, strict=True
            ):
                row = chain.nodes.index(to)
                share[row, here] = probability
                target[row, here] = work.start[to] + best
                moved[here] += probability * move
        return cls(work.problem.gamma, share, target, moved)

    def one_sweep(self, values: Costs) -> Costs:
        """The costs of one migration by this policy, and of `values` from there on."""
        later: Costs = (self.share * values[self.target]).sum(axis=0)
        return self.moved + self.gamma * later

    def for_ever(self, values: Costs) -> Costs:
        """The costs of all migrations by this policy; `values` is where to start from."""
        steps = math.ceil(math.log(1e-16) / math.log(self.gamma))
        for _ in range(steps):
            values = self.one_sweep(values)
        return values
