"""All balanced partitionings of tasks into intervals, and the state that moves between two of them.

A partitioning of m tasks over n nodes is the row of its n stops: the first part reaches from 0 to
the first stop, each other from the stop before. Nodes that get no task come last, with stop m, so
every set of intervals is one row.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError
from godwit.planner.inputs import limit_of
from godwit.planner.single import infeasible

MAX_TASKS = np.iinfo(np.uint16).max

Weights = npt.NDArray[np.float64]  # one number a task: its load, or the size of its state
Stops = npt.NDArray[np.uint16]  # one row a partitioning, one column a node
Costs = npt.NDArray[np.float64]  # one number a partitioning
Indices = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Balance:
    """How far an interval may reach, so that no node of `nodes` gets more than (1+tau)*W/nodes.

    `reach[p]` is the last stop of an interval that starts at task p, `first[r]` the first task
    from which r intervals reach the end (Ding et al., Definition 3.1).
    """

    nodes: int
    reach: Indices
    first: Indices

    @classmethod
    def of(cls, load: npt.ArrayLike, nodes: int, tau: float) -> Self:
        """The balance of these loads; an error when no partitioning can keep it."""
        weights = np.asarray(load, np.float64)
        _check(weights, nodes, tau)
        total = _sums(weights)
        reach = _reach(total, limit_of(weights, nodes, tau))
        first = _first(reach, nodes)
        if first[nodes] > 0:
            raise infeasible(weights, nodes, tau)
        return cls(nodes, reach, first)

    def count(self) -> int:
        """How many partitionings there are, without making them.

        >>> Balance.of([1, 1, 1, 1], nodes=2, tau=0.5).count()
        3
        """
        tasks = len(self.reach) - 1
        ways = np.zeros(tasks + 1, object)  # from each task to the end, in no interval more
        ways[tasks] = 1
        starts = np.arange(tasks)
        for _ in range(self.nodes):
            sums = np.concatenate([[0], np.cumsum(ways)])
            ways = np.append(sums[self.reach[:-1] + 1] - sums[starts + 1], 1)
        return int(ways[0])

    def partitionings(self) -> Stops:
        """All of them, in lexicographic order of their stops.

        >>> Balance.of([1, 1, 1, 1], nodes=2, tau=0.5).partitionings().tolist()
        [[1, 4], [2, 4], [3, 4]]
        """
        tasks = len(self.reach) - 1
        stops = np.empty((1, 0), np.uint16)
        last = np.zeros(1, np.int64)
        for left in range(self.nodes - 1, -1, -1):
            lowest = np.maximum(np.minimum(last + 1, tasks), self.first[left])
            choices = self.reach[last] - lowest + 1
            rows = np.repeat(np.arange(len(last)), choices)
            nth = np.arange(len(rows)) - np.repeat(np.cumsum(choices) - choices, choices)
            last = lowest[rows] + nth
            stops = np.column_stack([stops[rows], last.astype(np.uint16)])
        return stops


def heaviest_part(load: npt.ArrayLike, stops: Stops | Indices) -> Costs:
    """The load of the heaviest part of each partitioning."""
    total = _sums(np.asarray(load, np.float64))
    heaviest: Costs = np.diff(total[stops], axis=1, prepend=0.0).max(axis=1)
    return heaviest


def cut_at(stops: Stops, tasks: int) -> Bits:
    """Is there a cut before each of the tasks 1 to m-1? One row a partitioning."""
    bits = np.zeros((len(stops), tasks + 1), np.bool_)
    bits[np.arange(len(stops))[:, None], stops] = True
    return bits[:, 1:tasks]


def state_moved(origin: npt.ArrayLike, stops: Stops, size: npt.ArrayLike) -> Costs:
    """The least state that moves from one partitioning to each of others, under the best matching.

    A set of tasks can stay where it is if both partitionings group it alike. So between one task
    that stays and the next there is a cut of both partitionings or of neither, and one pass over
    the tasks finds the heaviest such set: what is known of a task is only which of the two had a
    cut since the last task that stays.

    >>> state_moved([2, 4], np.array([[2, 4], [1, 4], [4, 4]], np.uint16), [1, 1, 1, 1]).tolist()
    [0.0, 1.0, 2.0]
    """
    sizes = np.asarray(size, np.float64)
    old = cut_at(np.asarray(origin, np.uint16)[None], len(sizes))[0]
    new = cut_at(stops, len(sizes)).T
    # The ends count as cuts of both. By what was cut since: neither, old, new, both.
    neither, before, after, both = (np.full(len(stops), np.inf) for _ in range(4))
    both[:] = 0
    for task, weight in enumerate(sizes):
        neither = np.minimum(neither, both)  # the task stays
        before, after, both = before + weight, after + weight, both + weight  # it moves
        if task == len(sizes) - 1:
            break
        cut = new[task]
        if old[task]:
            before, both = np.minimum(neither, before), np.minimum(after, both)
            neither, after = np.full_like(neither, np.inf), np.full_like(after, np.inf)
            both = np.where(cut, np.minimum(before, both), both)
            before = np.where(cut, np.inf, before)
        else:
            after = np.where(cut, np.minimum(neither, after), after)
            both = np.where(cut, np.minimum(before, both), both)
            neither, before = np.where(cut, np.inf, neither), np.where(cut, np.inf, before)
    moved: Costs = np.minimum(np.minimum(neither, both), np.minimum(before, after))
    return moved


def _sums(weights: Weights) -> Weights:
    """The sums of all weights before each task, and of all."""
    return np.concatenate([[0.0], np.cumsum(weights)])


def _reach(total: Weights, limit: float) -> Indices:
    reach: Indices = np.searchsorted(total, total + limit, "right") - 1
    return reach


def _first(reach: Indices, nodes: int) -> Indices:
    first = np.empty(nodes + 1, np.int64)
    first[0] = len(reach) - 1
    for parts in range(1, nodes + 1):
        first[parts] = np.searchsorted(reach, first[parts - 1])  # the earliest that reaches so far
    return first


def _check(load: Weights, nodes: int, tau: float) -> None:
    if nodes < 1:
        raise ConfigError(f"tasks cannot be shared among {nodes} nodes; at least one is needed")
    if not 0 < len(load) <= MAX_TASKS:
        raise ConfigError(f"there must be 1 to {MAX_TASKS} tasks, not {len(load)}; coarsen them")
    if not tau >= 0:
        raise ConfigError(f"tau is the share above the average load, at least 0, not {tau}")
    if not (np.isfinite(load) & (load >= 0)).all():
        raise ConfigError("every load must be a number and not negative")
