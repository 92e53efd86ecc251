"""All assignments of tiny instances, one by one: what planners are compared with."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Interval = tuple[int, int]
SLACK = 1 + 1e-9
LOADS: list[list[float]] = [[1], [0, 1], [0, 0, 9], [1, 2, 3], [0, 1, 2, 20], [0.1, 0.2, 0.7]]
SIZES: list[list[float]] = [[1], [0, 1], [0], [1, 2, 4, 8], [0, 3, 5, 50]]


@dataclass(frozen=True)
class Instance:
    intervals: list[Interval]
    nodes: int
    load: list[float]
    size: list[float]
    tau: float

    @property
    def arguments(self) -> tuple[list[Interval], int, list[float], list[float], float]:
        return self.intervals, self.nodes, self.load, self.size, self.tau


def instance(rng: random.Random, tasks: int = 6, nodes: int = 4) -> Instance:
    """A small one, with zeros, empty nodes, nodes without order and tasks that weigh too much."""
    m, n = rng.randint(1, tasks), rng.randint(1, nodes)
    cuts = [0, *sorted(rng.randint(0, m) for _ in range(n - 1)), m]
    intervals = list(itertools.pairwise(cuts))
    rng.shuffle(intervals)
    loads: list[float] = rng.choice(LOADS)
    sizes: list[float] = rng.choice(SIZES)
    return Instance(
        intervals,
        rng.randint(1, nodes),
        [rng.choice(loads) for _ in range(m)],
        [rng.choice(sizes) for _ in range(m)],
        rng.choice([0, 0.1, 0.2, 0.5, 1, 2, 5]),
    )


def partitionings(load: Sequence[float], nodes: int, tau: float) -> Iterator[list[Interval]]:
    """All ways to cut the tasks into intervals, empty ones too, within the limit."""
    limit = (1 + tau) * sum(load) / nodes * SLACK
    for cuts in itertools.combinations_with_replacement(range(len(load) + 1), nodes - 1):
        parts = list(itertools.pairwise([0, *cuts, len(load)]))
        if all(sum(load[start:stop]) <= limit for start, stop in parts):
            yield parts


def most_kept(
    intervals: Sequence[Interval], parts: Sequence[Interval], size: Sequence[float]
) -> float:
    """The most state that stays, of all ways to give the parts to nodes."""
    nodes = [*intervals, *[(0, 0)] * len(parts)]
    return max(
        sum(_common(nodes[node], part, size) for part, node in zip(parts, who, strict=True))
        for who in givings(len(intervals), len(parts))
    )


def givings(n: int, nodes: int) -> Iterator[tuple[int, ...]]:
    """All ways to give parts to nodes: none of the current ones is removed without need."""
    for who in itertools.permutations(range(max(n, nodes)), nodes):
        if nodes < n or set(range(n)) <= set(who):
            yield who


def _common(old: Interval, new: Interval, size: Sequence[float]) -> float:
    start, stop = max(old[0], new[0]), min(old[1], new[1])
    return sum(size[start:stop]) if start < stop else 0
