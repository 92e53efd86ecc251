"""The cheapest way through a known series of numbers of nodes (OMS: Ding et al., Section 4.1).

What counts after a migration is how the tasks are cut, whoever has the parts (Lemma 4.1). A
best-first search (A*) goes from one such partitioning to those of the next migration, which it
builds part by part from the right. What the parts to the left keep at most is known from the scan
of `single_step`. The rest of the series costs at least as much as going from a partitioning to the
number of nodes of any later migration at once: state that ends elsewhere has moved at least once.
What is not below the cost of a series of single steps is not looked at.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy.typing as npt

from godwit.errors import ConfigError
from godwit.planner.assignment import (
    NOBODY,
    Assignment,
    Floats,
    Interval,
    Part,
    hand_out,
    measure,
)
from godwit.planner.inputs import (
    ROUNDING,
    check_intervals,
    check_nodes,
    check_tau,
    check_weights,
    limit_of,
)
from godwit.planner.single import MAYBE, Scan, infeasible, sums

Cuts = tuple[int, ...]  # 0, the start of every other part that has tasks, and m


def sequence(
    intervals: Iterable[Sequence[int]],
    nodes: Sequence[int],
    load: npt.ArrayLike,
    size: npt.ArrayLike,
    tau: float | Sequence[float],
) -> tuple[Assignment, ...]:
    """The assignments after each of the migrations to `nodes[0]`, `nodes[1]`, ... nodes.

    Together they move the least state. `tau` is one for all, or one for each migration. A node
    keeps its id as long as it is there; ids are not used again. The search is exact, and in the
    worst case takes exponential time.

    >>> [one.cost for one in sequence([(0, 13), (13, 20)], [3, 4], [1] * 20, [1] * 20, 0.4)]
    [4.0, 2.0]
    """
    loads, sizes = check_weights(load, size)
    before = check_intervals(intervals, len(loads))
    counts = [check_nodes(count) for count in nodes]
    taus = list(tau) if isinstance(tau, Sequence) else [tau] * len(counts)
    if len(taus) != len(counts):
        raise ConfigError(f"there are {len(counts)} migrations and {len(taus)} values of tau")
    steps = [_Step(n, check_tau(one), loads, sizes) for n, one in zip(counts, taus, strict=True)]
    current: tuple[Interval | None, ...] = tuple(before)
    found: list[Assignment] = []
    for parts in _Search(steps, sizes).run(_cuts(before, len(loads))):
        parts += [Part(len(loads), len(loads))] * (counts[len(found)] - len(parts))
        found.append(measure(current, hand_out(current, parts), loads, sizes))
        current = found[-1].intervals
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Step:
    """One migration of the series."""

    nodes: int
    tau: float
    load: Floats
    size: Floats

    def layers(self, cuts: Cuts) -> tuple[Scan, Floats]:
        limit = limit_of(self.load, self.nodes, self.tau)
        scan = Scan.of(list(pairwise(cuts)), self.load, self.size, limit)
        layers = scan.layers(self.nodes)
        if layers[self.nodes, MAYBE, -1] == -float("inf"):
            raise infeasible(self.load, self.nodes, self.tau)
        return scan, layers


@dataclass(frozen=True, slots=True)
class _Whole:
    """A partitioning that the series can have after `depth` migrations, and how it came about."""

    depth: int
    cuts: Cuts
    cost: float
    parent: "_Whole | None"

    def path(self) -> list[Cuts]:
        return [] if self.parent is None else [*self.parent.path(), self.cuts]


@dataclass(frozen=True, slots=True)
class _Growing:
    """The parts from `cuts[0]` on of a partitioning that follows on `parent`."""

    parent: _Whole
    cuts: Cuts
    most: Floats  # that the parts before can keep, by their number and end


@dataclass(order=True, frozen=True, slots=True)
class _Entry:
    """What to look at next: what may cost least, and of equal ones that which is further."""

    at_least: float
    behind: tuple[int, int]
    number: int
    what: _Whole | _Growing = field(compare=False)
    bounded: bool = field(compare=False, default=False)


class _Search:
    """The queue of one search, and the best series that is known."""

    def __init__(self, steps: Sequence[_Step], size: Floats) -> None:
        self._steps = steps
        self._size = sums(size)
        self._queue: list[_Entry] = []
        self._pushed = 0
        self._known: dict[tuple[int, Cuts], float] = {}

    def run(self, start: Cuts) -> list[list[Part]]:
        """The parts after each migration, matched with those before."""
        best, ceiling = self._greedy(start)
        margin = ROUNDING * float(self._size[-1])
        self._push(0.0, _Whole(0, start, 0.0, None))
        while self._queue and self._queue[0].at_least < ceiling - margin:
            entry = heapq.heappop(self._queue)
            if isinstance(entry.what, _Growing):
                self._grow(entry.what, entry.at_least)
            elif entry.what.depth == len(self._steps):
                best, ceiling = entry.what.path(), entry.what.cost
            elif self._known.get((entry.what.depth, entry.what.cuts)) == entry.what.cost:
                self._open(entry.what, entry.at_least, entry.bounded)
        return [match(old, new, self._size)[1] for old, new in pairwise([start, *best])]

    def _greedy(self, cuts: Cuts) -> tuple[list[Cuts], float]:
        path, cost = [], 0.0
        for step in self._steps:
            scan, layers = step.layers(cuts)
            cost += float(self._size[-1] - layers[step.nodes, MAYBE, -1])
            cuts = _cuts([(part.start, part.stop) for part in scan.parts(layers)], cuts[-1])
            path.append(cuts)
        return path, cost

    def _push(self, at_least: float, what: _Whole | _Growing, *, bounded: bool = False) -> None:
        depth = what.depth if isinstance(what, _Whole) else what.parent.depth
        left = 0 if isinstance(what, _Whole) else what.cuts[0]
        if isinstance(what, _Whole) and not bounded:
            key = (what.depth, what.cuts)
            if self._known.get(key, float("inf")) <= what.cost:
                return
            self._known[key] = what.cost
        self._pushed += 1
        heapq.heappush(self._queue, _Entry(at_least, (-depth, left), self._pushed, what, bounded))

    def _open(self, whole: _Whole, at_least: float, bounded: bool) -> None:
        """Bound what is left of the series; when that has come first again, begin the next step."""
        steps = self._steps[whole.depth :]
        if not bounded:
            left = max(
                float(self._size[-1] - step.layers(whole.cuts)[1][step.nodes, MAYBE, -1])
                for step in steps
            )
            self._push(max(at_least, whole.cost + left), whole, bounded=True)
            return
        scan, layers = steps[0].layers(whole.cuts)
        if len(steps) == 1:
            parts = [(part.start, part.stop) for part in scan.parts(layers)]
            cost = whole.cost + float(self._size[-1] - layers[steps[0].nodes, MAYBE, -1])
            last = _Whole(whole.depth + 1, _cuts(parts, whole.cuts[-1]), cost, whole)
            self._push(max(at_least, cost), last)
        else:
            end = (whole.cuts[-1],)
            self._push(at_least, _Growing(whole, end, layers[:, MAYBE]))

    def _grow(self, growing: _Growing, at_least: float) -> None:
        """Put each possible part before the first one."""
        parent, step = growing.parent, self._steps[growing.parent.depth]
        end = growing.cuts[0]
        left = step.nodes - len(growing.cuts)  # after the part that is put before now
        limit = limit_of(step.load, step.nodes, step.tau)
        weight = 0.0
        for begin in range(end - 1, -1, -1):
            weight += float(step.load[begin])
            if weight > limit:
                break
            before = float(growing.most[left, begin])
            if before == -float("inf"):
                continue
            cuts = (begin, *growing.cuts)
            kept, _ = match(parent.cuts, cuts, self._size)
            cost = parent.cost + float(self._size[-1]) - kept
            if begin == 0:
                self._push(max(at_least, cost), _Whole(parent.depth + 1, cuts, cost, parent))
            else:
                bound = max(at_least, cost - before)
                self._push(bound, _Growing(parent, cuts, growing.most))


def match(old: Cuts, new: Cuts, size: Floats) -> tuple[float, list[Part]]:
    """The most that stays, and the new parts, matched with old ones such that it does.

    Parts that meet do so in a staircase: of two that follow on each other, one side or both go on.
    """
    meets: list[tuple[int, int, float]] = []
    place, end = 0, len(new) - 1
    for part in range(end):
        while old[place + 1] <= new[part]:
            place += 1
        other = place
        while other < len(old) - 1 and old[other] < new[part + 1]:
            start, stop = max(old[other], new[part]), min(old[other + 1], new[part + 1])
            meets.append((other, part, float(size[stop] - size[start])))
            other += 1
    best, before = [0.0], []
    row: dict[int, int] = {}
    column: dict[int, int] = {}
    for at, (other, part, kept) in enumerate(meets):
        before.append(min(row.setdefault(other, at), column.setdefault(part, at)))
        best.append(max(best[-1], best[before[-1]] + kept))
    places = [NOBODY] * end
    at = len(meets)
    while at:
        if best[at] == best[at - 1]:
            at -= 1
        else:
            other, part, _ = meets[at - 1]
            places[part] = other
            at = before[at - 1]
    parts = [Part(*cut, place) for cut, place in zip(pairwise(new), places, strict=True)]
    return best[-1], parts


def _cuts(intervals: Sequence[Interval], tasks: int) -> Cuts:
    return (*sorted(start for start, stop in intervals if start < stop), tasks)
