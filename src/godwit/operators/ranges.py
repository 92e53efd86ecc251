"""Merging ranges of rows that stand in the order of their group and place, many ranges at once.

The rows are the leaves of a binary tree over all places: node n of a level covers the nodes 2n and
2n + 1 of the level below. A range is merged from at most two nodes of each level, the parts in the
order of their places. So every row is merged about once and a range costs the logarithm of its
length; and what is merged with what depends on places alone, not on the ranges or on other groups.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.model.keys import Mask, Rows, changes

Places = npt.NDArray[np.int64]
Merge = Callable[[Rows, pa.Table, pa.Table], pa.Table]
"""Merges values row by row, the first before the second; with a leaf of each row's group."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Of one level: group and place, which ascend, and the values of each node that has a leaf."""

    groups: Rows
    places: Places
    values: pa.Table


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of places, of which each has a leaf: [low, high), and the leaves [first, stop)."""

    low: Places
    high: Places
    first: Rows
    stop: Rows


def codes(groups: Rows, *values: Places) -> list[Places]:
    """Numbers for each of several columns that are in the order of (group, value), all together.

    >>> begin, end = codes(np.array([0, 1]), np.array([900, -5]), np.array([910, 8]))
    >>> np.argsort([*begin, *end]).tolist()  # group 0 first
    [0, 2, 1, 3]
    """
    every = np.concatenate(values)
    if not len(every):
        return list(values)
    least, greatest = int(every.min()), int(every.max())
    width, ranks = greatest - least + 1, every - least if greatest - least < 1 << 62 else every
    if width * (int(groups.max()) + 1) > 1 << 62:
        different, ranks = np.unique(every, return_inverse=True)
        width = len(different)
    return list(groups * width + ranks.reshape(len(values), -1))


def positions(groups: Rows, places: Places, of: Rows, wanted: Places) -> Rows:
    """The first row of a group from a wanted place on, or of the next group if there is none.

    >>> groups, places = np.array([0, 0, 1]), np.array([4, 7, 5])
    >>> positions(groups, places, np.array([0, 0, 1]), np.array([5, 8, 0])).tolist()
    [1, 2, 2]
    """
    both, every = np.concatenate((groups, of)), np.concatenate((places, wanted))
    (numbers,) = codes(both, every)
    found: Rows = np.searchsorted(numbers[: len(groups)], numbers[len(groups) :])
    return found


def merge_ranges(leaves: Nodes, ranges: Ranges, merge: Merge) -> pa.Table:
    """The values of each range."""
    level, leaf = leaves, np.arange(len(leaves.groups))
    low, high, first, stop = ranges.low, ranges.high, ranges.first, ranges.stop
    left, right = (_Sums(len(low), leaves.values, merge) for _ in range(2))

    def take(sums: _Sums, which: Mask, nodes: Rows, *, before: bool) -> None:
        chosen = nodes[which]
        values = level.values.take(pa.array(chosen))
        sums.add(np.flatnonzero(which), values, leaf[chosen], before=before)

    while (first < stop).any():
        at = np.minimum(first, len(level.places) - 1)
        odd = (first < stop) & (low % 2 == 1) & (level.places[at] == low)
        take(left, odd, first, before=False)
        first = first + odd
        odd = (first < stop) & (high % 2 == 1) & (level.places[stop - 1] == high - 1)
        take(right, odd, stop - 1, before=True)
        stop = stop - odd
        level, leaf, parents = _parents(level, leaf, merge)
        low, high, first, stop = (low + 1) // 2, high // 2, parents[first], parents[stop]
    rest = np.flatnonzero(right.has)
    left.add(rest, right.values.take(pa.array(rest)), right.leaf[rest])
    return left.values


class _Sums:
    """What nodes have come to, range by range."""

    def __init__(self, count: int, like: pa.Table, merge: Merge) -> None:
        self.has: Mask = np.zeros(count, np.bool_)
        self.leaf: Rows = np.zeros(count, np.int64)
        nothing = [pa.nulls(count, field.type) for field in like.schema]
        self.values = pa.table(nothing, schema=like.schema)
        self._merge = merge

    def add(self, to: Rows, values: pa.Table, leaf: Rows, *, before: bool = False) -> None:
        """One row of values to each of some ranges, behind or before what they have."""
        had = self.has[to]
        old, new = self.values.take(pa.array(to[had])), values.filter(pa.array(had))
        halves = (new, old) if before else (old, new)
        merged = self._merge(leaf[had], *halves) if had.any() else new
        rows = pa.concat_tables([merged, values.filter(pa.array(~had))])
        self.values = put(self.values, rows, np.concatenate((to[had], to[~had])))
        self.has[to], self.leaf[to] = True, leaf


def _parents(level: Nodes, leaf: Rows, merge: Merge) -> tuple[Nodes, Rows, Rows]:
    """The level above, a leaf of each of its nodes, and the parent of each node of this level; the
    number behind the last node stays that."""
    places = level.places // 2
    first = changes(level.groups) | changes(places)
    starts, seconds = np.flatnonzero(first), np.flatnonzero(~first)
    parents = np.append(np.cumsum(first) - 1, len(starts))
    values = level.values
    if len(seconds):
        pairs = (values.take(pa.array(one)) for one in (seconds - 1, seconds))
        merged = merge(leaf[seconds], *pairs)
        values = put(values.take(pa.array(starts)), merged, parents[seconds])
    return Nodes(level.groups[starts], places[starts], values), leaf[starts], parents


def put(values: pa.Table, rows: pa.Table, places: Rows) -> pa.Table:
    """The values with other rows at some places."""
    if not len(places):
        return values
    index = np.arange(values.num_rows)
    index[places] = values.num_rows + np.arange(len(places))
    return pa.concat_tables([values, rows]).combine_chunks().take(pa.array(index))
