"""Fewer, larger tasks, for problems that have too many partitionings to enumerate."""

import numpy as np
import numpy.typing as npt

from godwit.errors import InfeasibleError
from godwit.planner.chain import Chain
from godwit.planner.partitionings import Balance
from godwit.planner.projected import Problem, Projected


def merge_tasks(
    chain: Chain,
    load: npt.ArrayLike,
    size: npt.ArrayLike,
    tau: float,
    gamma: float,
    partitionings: int,
) -> Problem:
    """The problem with the most tasks that has at most so many partitionings.

    Adjacent tasks are merged so that their loads are as equal as they can be. The costs projected
    for it are those of planning with the merged tasks for ever: never less than the exact ones.
    """
    loads, sizes = np.asarray(load, np.float64), np.asarray(size, np.float64)
    low, high = max(chain.nodes), len(loads) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if _count(chain, loads, tau, middle) <= partitionings:
            low = middle
        else:
            high = middle
    edges = _edges(loads, low)
    load_of, size_of = (np.add.reduceat(each, edges[:-1]).tolist() for each in (loads, sizes))
    return Problem(chain, tuple(load_of), tuple(size_of), tau, gamma, tuple(edges.tolist()))


def _count(chain: Chain, load: npt.NDArray[np.float64], tau: float, tasks: int) -> int:
    """How many partitionings so many tasks have; none if they are too large for the balance."""
    runs = np.add.reduceat(load, _edges(load, tasks)[:-1])
    try:
        return sum(Balance.of(runs, nodes, tau).count() for nodes in chain.nodes)
    except InfeasibleError:
        return 0


def excess(coarse: Projected, exact: Projected) -> npt.NDArray[np.float64]:
    """How much more each partitioning of the merged tasks is said to cost than it does exactly."""
    edges = np.asarray(coarse.problem.edges)
    return np.array(
        [
            cost - exact.of(edges[stops])
            for nodes in coarse.stops
            for stops, cost in zip(coarse.stops[nodes], coarse.cost[nodes], strict=True)
        ]
    )


def _edges(load: npt.NDArray[np.float64], tasks: int) -> npt.NDArray[np.int64]:
    """Where so many runs of about equal load begin and end."""
    middles = np.cumsum(load) - load / 2
    run = np.minimum(middles * tasks // max(load.sum(), 1e-300), tasks - 1)
    edges: npt.NDArray[np.int64] = np.flatnonzero(np.diff(run, prepend=-1, append=tasks))
    return edges
