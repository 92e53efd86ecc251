"""What planners are given, checked once: a mistake is one clear error."""

from collections.abc import Iterable, Sequence
from operator import index

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError
from godwit.planner.assignment import Floats, Interval

# Sums of loads are wrong by rounding: by less than this share of a node's limit, for up to 65,536
# tasks on 64 nodes. A load above the limit by no more than that is within it.
ROUNDING = 1e-9


def limit_of(load: Floats, nodes: int, tau: float) -> float:
    """The most that a node may have (Definition 3.1), with room for rounding."""
    return (1 + tau) * float(load.sum()) / nodes * (1 + ROUNDING)


def check_weights(load: npt.ArrayLike, size: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Load and size of every task as numbers that can be added up."""
    loads, sizes = _weights("load", load), _weights("size", size)
    if len(loads) != len(sizes):
        raise ConfigError(f"there are {len(loads)} loads and {len(sizes)} sizes; give as many")
    return loads, sizes


def _weights(name: str, values: npt.ArrayLike) -> Floats:
    try:
        weights = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"the {name} of every task must be a number") from None
    if weights.ndim != 1:
        raise ConfigError(f"{name} must have one number a task, not the shape {weights.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        task = int(wrong[0])
        raise ConfigError(
            f"task {task} has {name} {weights[task]}; it must be a finite number from 0 on"
        )
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        raise ConfigError(f"the {name} of all tasks is more than a float can hold")
    return weights


def check_nodes(nodes: int) -> int:
    nodes = _integer("the number of nodes", nodes)
    if nodes < 1:
        raise ConfigError(f"the number of nodes must be at least 1, not {nodes}")
    return nodes


def check_tau(tau: float) -> float:
    try:
        number = float(tau)
    except (TypeError, ValueError):
        raise ConfigError(f"tau must be a number, not {tau!r}") from None
    if not (np.isfinite(number) and number >= 0):
        raise ConfigError(f"tau must be a finite number from 0 on, not {tau}")
    return number


def check_intervals(intervals: Iterable[Sequence[int]], tasks: int) -> list[Interval]:
    """One interval a node, which together have every task exactly once."""
    checked: list[Interval] = []
    for node, interval in enumerate(intervals):
        if not (isinstance(interval, Iterable) and len(interval) == 2):
            raise ConfigError(f"node {node} has {interval!r} for an interval, not (start, stop)")
        start, stop = (_integer(f"an end of the interval of node {node}", end) for end in interval)
        if not 0 <= start <= stop <= tasks:
            raise ConfigError(
                f"node {node} has the interval ({start}, {stop}); "
                f"it must be within (0, {tasks}), for there are {tasks} tasks"
            )
        checked.append((start, stop))
    reached, before = 0, -1
    for (start, stop), node in sorted((one, node) for node, one in enumerate(checked)):
        if start == stop:
            continue
        if start < reached:
            raise ConfigError(f"task {start} is in the intervals of nodes {before} and {node}")
        if start > reached:
            raise ConfigError(f"task {reached} is in the interval of no node")
        reached, before = stop, node
    if reached < tasks:
        raise ConfigError(f"task {reached} is in the interval of no node")
    if not checked:
        raise ConfigError("there is no current node")
    return checked


def _integer(name: str, value: int) -> int:
    try:
        return index(value)
    except TypeError:
        raise ConfigError(f"{name} must be an integer, not {value!r}") from None
