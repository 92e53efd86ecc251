"""Which node has which tasks: contiguous intervals of them, and what it costs to get there."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError
from godwit.model.routing import Routing

Interval = tuple[int, int]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Assignment:
    """The interval of tasks of every node, and what it takes to get there.

    Intervals are half-open and cover every task exactly once. A node that is kept without a task
    has an empty interval, a removed one has None. `cost` is the size of the state that moves,
    `gain` of the state that stays; `max_load` is the load of the most loaded node.
    """

    intervals: tuple[Interval | None, ...]
    cost: float
    gain: float
    max_load: float

    @property
    def owners(self) -> npt.NDArray[np.int32]:
        """The node of every task.

        >>> Assignment(((2, 3), None, (0, 2)), cost=0, gain=0, max_load=0).owners.tolist()
        [2, 2, 0]
        """
        nodes = [node for node, interval in enumerate(self.intervals) if interval is not None]
        return owners_of([one for one in self.intervals if one is not None], nodes)


@dataclass(frozen=True, slots=True)
class Part:
    """A new interval, and the old one that it is matched with: its place in their order."""

    start: int
    stop: int
    place: int = NOBODY


def hand_out(
    before: Sequence[Interval | None], parts: Sequence[Part]
) -> tuple[Interval | None, ...]:
    """The interval of every node: matched ones at their node, others at whom there is, or new ones.

    Nodes that are left over are removed; those that had been removed before stay so.
    """
    nodes = [node for node, interval in enumerate(before) if interval is not None]
    fresh = range(len(before), len(before) + len(parts) - len(nodes))
    places = sorted((one, node) for node, one in enumerate(before) if one and one[0] < one[1])
    after: list[Interval | None] = [None] * (len(before) + len(fresh))
    for part in parts:
        if part.place != NOBODY:
            after[places[part.place][1]] = (part.start, part.stop)
    free = [node for node in (*nodes, *fresh) if after[node] is None]
    rest = [(part.start, part.stop) for part in parts if part.place == NOBODY]
    rest.sort(key=lambda one: one[0] == one[1])  # the empty ones last
    for node, interval in zip(free, rest, strict=False):
        after[node] = interval
    return tuple(after)


def measure(
    before: Sequence[Interval | None],
    after: Sequence[Interval | None],
    load: Floats,
    size: Floats,
) -> Assignment:
    """The assignment `after`, with what it costs to get there from `before`."""
    stays = np.zeros(len(size), np.bool_)
    for old, new in zip(before, after, strict=False):
        if old and new:
            stays[max(old[0], new[0]) : min(old[1], new[1])] = True  # nothing, if they do not meet
    return Assignment(
        tuple(after),
        cost=float(size[~stays].sum()),
        gain=float(size[stays].sum()),
        max_load=max(float(load[one[0] : one[1]].sum()) for one in after if one),
    )


def owners_of(intervals: Sequence[Interval], nodes: Sequence[int]) -> npt.NDArray[np.int32]:
    """The node of every task, where `nodes[i]` has the tasks of `intervals[i]`."""
    owners = np.empty(max(stop for _, stop in intervals), np.int32)
    for node, (start, stop) in zip(nodes, intervals, strict=True):
        owners[start:stop] = node
    return owners


def intervals_of(routing: Routing) -> list[Interval]:
    """The bins of every worker as an interval; refused where they are none.

    >>> intervals_of(Routing.even(8, 3))
    [(0, 3), (3, 6), (6, 8)]
    """
    return intervals_in(routing.owners, routing.workers)


def intervals_in(owners: npt.NDArray[np.int32], workers: int) -> list[Interval]:
    """The bins of every worker, by their owners, as an interval; refused where they are none."""
    edges = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
    intervals: dict[int, Interval] = {}
    for start, stop in pairwise(edges):
        worker = int(owners[start])
        if worker in intervals:
            raise ConfigError(
                f"the bins of worker {worker} are no interval: it has bins "
                f"{intervals[worker][1] - 1} and {start}, but not those between; "
                "plan with `scattered`, which takes any routing"
            )
        intervals[worker] = (start, stop)
    return [intervals.get(worker, (0, 0)) for worker in range(workers)]
