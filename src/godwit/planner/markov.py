"""One migration with those to come in mind (Ding et al., Definition 4.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError, InfeasibleError
from godwit.planner.assignment import Assignment, Interval
from godwit.planner.inputs import limit_of
from godwit.planner.partitionings import (
    Costs,
    Indices,
    Weights,
    heaviest_part,
    state_moved,
)
from godwit.planner.projected import Projected


@dataclass(frozen=True, slots=True)
class MarkovStep(Assignment):
    """The target of a migration; `projected` is the projected cost of what comes after.

    Existing nodes keep their places, new ones follow.
    """

    projected: float


def markov_step(
    intervals: Sequence[Interval | None],
    nodes: int,
    load: npt.ArrayLike,
    size: npt.ArrayLike,
    tau: float,
    projected: Projected,
) -> MarkovStep:
    """The balanced partitioning of least state moved plus gamma times projected cost.

    `intervals` has one for each node, in any order; None for a node that was removed before.
    Balance and state moved are those of `load` and `size` now; projected costs grow with the size
    of all state. Targets are the partitionings that the projected costs know.
    """
    loads, sizes = np.asarray(load, np.float64), np.asarray(size, np.float64)
    known, cost = _balanced(projected, nodes, loads, tau)
    origin = _stops(intervals, len(loads))
    problem = projected.problem
    moved = _moved(origin, known, sizes, problem.edges)
    scale = sizes.sum() / problem.total if problem.total else 1.0
    best = int((moved + problem.gamma * scale * cost).argmin())
    parts = list(zip([0, *known[best, :-1].tolist()], known[best].tolist(), strict=True))
    return MarkovStep(
        _assign(intervals, parts, sizes),
        cost=float(moved[best]),
        gain=float(sizes.sum() - moved[best]),
        max_load=float(heaviest_part(loads, known[best : best + 1])[0]),
        projected=float(scale * cost[best]),
    )


def _balanced(projected: Projected, nodes: int, load: Weights, tau: float) -> tuple[Indices, Costs]:
    """The known partitionings that are balanced for these loads, in the numbering of the loads."""
    if nodes not in projected.stops:
        raise ConfigError(
            f"costs were projected for {', '.join(map(str, projected.stops))} nodes, not for "
            f"{nodes}; compute them with a chain that knows {nodes}"
        )
    edges = np.asarray(projected.problem.edges)
    if edges[-1] != len(load):
        raise ConfigError(
            f"costs were projected for {edges[-1]} tasks, not for {len(load)}; compute them for "
            f"{len(load)}"
        )
    stops = edges[projected.stops[nodes]]
    heaviest = heaviest_part(load, stops)
    fit = heaviest <= limit_of(load, nodes, tau)
    if not fit.any():
        least = float(heaviest.min() / (load.sum() / nodes) - 1)
        task = int(load.argmax())
        raise InfeasibleError(
            f"no partitioning over {nodes} nodes with a projected cost is balanced for this load; "
            f"use a tau of at least {least:.6g}, or compute projected costs for this load",
            task=task,
            load=float(load[task]),
            tau=least,
        )
    return stops[fit], projected.cost[nodes][fit]


def _stops(intervals: Sequence[Interval | None], tasks: int) -> Indices:
    """The stops of intervals in any order; an error unless they share out the tasks."""
    taken = sorted(interval for interval in intervals if interval and interval[0] < interval[1])
    if [0, *(stop for _, stop in taken)] != [*(start for start, _ in taken), tasks]:
        raise ConfigError(
            f"the intervals {list(intervals)} do not share out the tasks 0 to {tasks - 1}; "
            "a routing that is not made of intervals needs the planner 'scattered'"
        )
    return np.array([stop for _, stop in taken])


def _moved(origin: Indices, stops: Indices, size: Weights, edges: npt.ArrayLike) -> Costs:
    """`state_moved`, over runs of tasks: stops are at `edges`, those of the origin anywhere."""
    ends = np.union1d(edges, origin)
    runs = np.add.reduceat(size, ends[:-1])
    fewer = np.searchsorted(ends, stops).astype(np.uint16)
    return state_moved(np.searchsorted(ends, origin), fewer, runs)


def _assign(
    intervals: Sequence[Interval | None], parts: Sequence[Interval], size: Weights
) -> tuple[Interval | None, ...]:
    """Hand the parts to the nodes so that the most state stays; new nodes take what is left."""
    # Imported here, since every process of every worker would wait for it otherwise.
    from scipy.optimize import linear_sum_assignment

    before = np.concatenate([[0.0], np.cumsum(size)])
    there = [node for node, interval in enumerate(intervals) if interval is not None]
    old, new = np.array([intervals[node] for node in there]), np.array(parts)
    start = np.maximum(old[:, None, 0], new[None, :, 0])
    stop = np.maximum(np.minimum(old[:, None, 1], new[None, :, 1]), start)
    owners, taken = linear_sum_assignment(before[stop] - before[start], maximize=True)
    found: list[Interval | None] = [None] * len(intervals)
    for owner, part in zip(owners.tolist(), taken.tolist(), strict=True):
        found[there[owner]] = parts[part]
    left = sorted(set(range(len(parts))) - set(taken.tolist()))
    return (*found, *(parts[part] for part in left))
