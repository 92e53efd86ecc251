"""The cheapest next assignment: optimal single-step migration (Ding et al., Definition 3.2).

The tasks are cut into as many intervals as there shall be nodes, none of them above the limit of
load. At best a node keeps the tasks that are both in its old and in its new interval; matches of
old and new intervals that keep anything never cross, so a scan from left to right finds the best.
It knows, for every number k of intervals and every task x, the most state that stays if the first
k intervals have the tasks before x, in two cases (the paper's Lemma 3.3): whether the node that
had the tasks on both sides of x may have been matched already, or not.

What a match keeps is a difference of two prefix sums, one for each end of the new interval. So the
best begin for all its ends at once is a maximum over a range, from a table of maxima over powers
of two: n' rounds of O(m log m + p) for m tasks and n' nodes, where p counts the pairs of an old
interval and an end of a new one that can meet it. The paper's SSM takes O(m^2 n').
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from godwit.errors import InfeasibleError
from godwit.planner.assignment import (
    NOBODY,
    Assignment,
    Floats,
    Interval,
    Ints,
    Part,
    hand_out,
    measure,
)
from godwit.planner.inputs import (
    check_intervals,
    check_nodes,
    check_tau,
    check_weights,
    limit_of,
)

MAYBE, FREE, LESS = 0, 1, 2  # the rows of a layer: see `Scan`


def single_step(
    intervals: Iterable[Sequence[int]],
    nodes: int,
    load: npt.ArrayLike,
    size: npt.ArrayLike,
    tau: float,
) -> Assignment:
    """The assignment to `nodes` nodes that moves the least state and keeps the balance.

    `intervals` has the tasks of every current node as `(start, stop)`, in any order. No node gets
    more than `1 + tau` times the mean load. Current nodes keep their ids, new ones follow on them.
    With fewer nodes than there are, those that are removed are part of what is optimised.
    Raises `InfeasibleError` if there is no such assignment.

    >>> found = single_step([(0, 3), (3, 6)], 3, [1] * 6, [5, 5, 5, 1, 1, 1], tau=0.2)
    >>> found.intervals, found.cost
    (((0, 2), (4, 6), (2, 4)), 6.0)
    """
    loads, sizes = check_weights(load, size)
    before = check_intervals(intervals, len(loads))
    nodes, tau = check_nodes(nodes), check_tau(tau)
    scan = Scan.of(before, loads, sizes, limit_of(loads, nodes, tau))
    layers = scan.layers(nodes)
    if layers[nodes, MAYBE, -1] == -np.inf:
        raise infeasible(loads, nodes, tau)
    return measure(before, hand_out(before, scan.parts(layers)), loads, sizes)


def infeasible(load: Floats, nodes: int, tau: float) -> InfeasibleError:
    """Why there are no intervals within the limit, and with which tau there are."""
    task, enough = int(load.argmax()), smallest_tau(load, nodes)
    return InfeasibleError(
        f"no intervals of {len(load)} tasks keep {nodes} nodes within tau = {tau:g}, "
        f"a load of {(1 + tau) * load.sum() / nodes:g} a node. The heaviest task, {task}, has "
        f"{load[task]:g}. The smallest tau that can be kept is {math.ceil(enough * 1e6) / 1e6:g}",
        task=task,
        load=float(load[task]),
        tau=enough,
    )


def smallest_tau(load: Floats, nodes: int) -> float:
    """The smallest tau that some `nodes` intervals keep, exactly but for rounding.

    >>> smallest_tau(np.array([1.0, 1.0, 4.0]), 2)
    0.33333333333333326
    """
    total = float(load.sum())
    if total == 0:
        return 0.0
    before = sums(load)
    low, high = max(total / nodes, float(load.max())), float(before[-1])
    limit = low
    while low < high:  # the answer is from low to high, and high can be kept
        heaviest, needed = _filled(before, nodes, limit)
        if heaviest is None:
            low = needed
        else:
            high = heaviest
        limit = min((low + high) / 2, math.nextafter(high, 0))
    return max(0.0, high * nodes / total - 1)


def sums(weights: Floats) -> Floats:
    """The sum of all weights before a position, for every position.

    >>> sums(np.array([1.0, 2.0])).tolist()
    [0.0, 1.0, 3.0]
    """
    return np.concatenate([[0.0], weights.cumsum()])


def _filled(before: Floats, nodes: int, limit: float) -> tuple[float | None, float]:
    """The heaviest of intervals that are filled up one by one, or None if tasks are left over.

    And the load of the lightest of these intervals with one task more: no limit below helps.
    """
    start, heaviest, needed = 0, 0.0, math.inf
    for _ in range(nodes):
        stop = int(np.searchsorted(before - before[start], limit, side="right")) - 1
        heaviest = max(heaviest, float(before[stop] - before[start]))
        if stop == len(before) - 1:
            return heaviest, needed
        needed = min(needed, float(before[stop + 1] - before[start]))
        start = stop
    return None, needed


@dataclass(frozen=True, slots=True)
class Scan:
    """All ways by which the last of k intervals can be added, as queries for range maxima.

    A layer has three rows over the positions 0 to m: what stays at most if the node at a position
    may be matched already (`MAYBE`), if it is not (`FREE`; the same between two old intervals), and
    the latter less the size of all tasks before (`LESS`). A query asks for the maximum of a row
    from one start of the new interval to another, adds `plus`, and offers the sum to the end of the
    interval, in row `MAYBE` or `FREE`. The queries are in the order of ends and of these rows,
    those of row r and end e from `bounds[2 * e + r]` on.
    """

    sizes: Floats  # of all tasks before a position
    row: Ints
    first: Ints
    last: Ints
    plus: Floats
    place: Ints  # the old interval that is matched, or NOBODY
    bounds: Ints
    maxima: "_Maxima"

    @classmethod
    def of(cls, before: Sequence[Interval], load: Floats, size: Floats, limit: float) -> "Scan":
        loads, sizes = sums(load), sums(size)
        ends = np.arange(len(loads))
        low = np.minimum(loads.searchsorted(loads - limit), ends)  # the first start of each end
        old = np.array(sorted(one for one in before if one[0] < one[1]), np.int64).reshape(-1, 2)
        begins = np.append(old[:, 0], ends[-1])
        home = begins[begins.searchsorted(ends, side="right") - 1]

        # Pairs of an old interval and an end of a new one that begins before the old one ends.
        counts = low.searchsorted(old[:, 1]) - old[:, 0] - 1
        place = np.repeat(np.arange(len(old)), counts)
        end = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts - old[:, 0] - 1, counts)
        start, stop = old[place, 0], old[place, 1]
        kept = sizes[np.minimum(end, stop)]
        target = 2 * end + np.where(end < stop, MAYBE, FREE)

        nobody, nothing = np.full(len(ends), NOBODY), np.zeros(len(ends))
        maybe, free = 2 * ends + MAYBE, 2 * ends + FREE
        queries = [
            # row, first and last begin, what else stays, who is matched, target
            (MAYBE, low, ends, nothing, nobody, maybe),
            (MAYBE, low, home, nothing, nobody, free),
            (FREE, np.maximum(low, home), ends, nothing, nobody, free),
            (MAYBE, low[end], start, kept - sizes[start], place, target),
            (LESS, np.maximum(low[end], start), np.minimum(end, stop - 1), kept, place, target),
        ]
        row = np.repeat([query[0] for query in queries], [len(query[1]) for query in queries])
        first, last, plus, who, targets = (
            np.concatenate([query[i] for query in queries]) for i in range(1, 6)
        )
        asked = np.flatnonzero(first <= last)
        order = asked[targets[asked].argsort(kind="stable")]
        row, first, last = row[order], first[order], last[order]
        bounds = targets[order].searchsorted(np.arange(2 * len(ends) + 1))
        maxima = _Maxima.of(len(ends), row, first, last)
        return cls(sizes, row, first, last, plus[order], who[order], bounds, maxima)

    def layers(self, nodes: int) -> Floats:
        """What stays at most, by number of intervals, row and position."""
        width = len(self.sizes)
        layers = np.full((nodes + 1, 3, width), -np.inf)
        layers[0, :, 0] = 0.0
        for layer, following in pairwise(layers):  # the second is made from the first
            offers = self.maxima.of_ranges(layer, slice(None)) + self.plus
            following[:LESS] = np.maximum.reduceat(offers, self.bounds[:-1]).reshape(width, 2).T
            np.maximum(following[MAYBE], following[FREE], out=following[MAYBE])
            np.subtract(following[FREE], self.sizes, out=following[LESS])
        return layers

    def parts(self, layers: Floats) -> list[Part]:
        """Intervals that keep as much as `layers` says, found from the last to the first."""
        end, row = len(self.sizes) - 1, MAYBE
        parts = []
        for layer in layers[-2::-1]:
            start, stop = self.bounds[2 * end + row], self.bounds[2 * end + 2]  # both, or FREE
            offers = self.maxima.of_ranges(layer, slice(start, stop)) + self.plus[start:stop]
            query = start + int(offers.argmax())
            first, last = int(self.first[query]), int(self.last[query])
            begin = first + int(layer[self.row[query], first : last + 1].argmax())
            parts.append(Part(begin, end, int(self.place[query])))
            end, row = begin, min(int(self.row[query]), FREE)
        return parts[::-1]


@dataclass(frozen=True, slots=True)
class _Maxima:
    """The maxima of given ranges of a layer, by a table of those of 1, 2, 4 ... positions."""

    table: Floats  # of the layer that was asked for last
    from_first: Ints
    to_last: Ints

    @classmethod
    def of(cls, width: int, row: Ints, first: Ints, last: Ints) -> "_Maxima":
        length = last - first + 1
        level = np.frexp(length)[1] - 1
        table = np.full((int(level.max()) + 1, 3, width), -np.inf)
        from_first = (level * 3 + row) * width + first
        return cls(table, from_first, from_first + length - (1 << level))

    def of_ranges(self, layer: Floats, some: slice) -> Floats:
        self.table[0] = layer
        for level, (shorter, longer) in enumerate(pairwise(self.table)):
            half = 1 << level
            np.maximum(shorter[:, :-half], shorter[:, half:], out=longer[:, :-half])
        flat = self.table.reshape(-1)
        return np.maximum(flat.take(self.from_first[some]), flat.take(self.to_last[some]))
