"""Which rows of two sides match: rows of one key whose times are within bounds of one another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from godwit.model.keys import Mask, Rows, changes
from godwit.state.timed import Moments

Bounds = tuple[int, int]
"""How far, in microseconds, the time of a match is after that of a row: at least and at most."""


@dataclass(frozen=True, slots=True)
class SideRows:
    """Rows of one side; those of one group stand side by side, in the order of their times.

    `positions` tell rows of one key and time apart. `matched` says which rows have matched before.
    """

    groups: Rows
    times: Moments
    positions: Rows
    matched: Mask
    columns: Sequence[pa.Array]

    def __len__(self) -> int:
        return len(self.groups)

    def where(self, mask: Mask) -> "SideRows":
        return SideRows(
            self.groups[mask],
            self.times[mask],
            self.positions[mask],
            self.matched[mask],
            [column.filter(pa.array(mask)) for column in self.columns],
        )

    def take(self, places: Rows) -> list[pa.Array]:
        """The columns of some rows."""
        return [column.take(pa.array(places)) for column in self.columns]


@dataclass(frozen=True, slots=True)
class Matches:
    """For each row of one side the rows of the other that match it: from a place up to another."""

    starts: Rows
    stops: Rows
    among: int  # so many rows the other side has

    @classmethod
    def of(cls, rows: SideRows, among: SideRows, groups: int, bounds: Bounds | None) -> "Matches":
        """Those of `rows` among others, of which there are so many groups; without bounds, all
        rows of the same group.

        >>> def side(groups, times):
        ...     count = len(groups)
        ...     numbers = np.arange(count), np.zeros(count, np.bool_)
        ...     return SideRows(np.array(groups), np.array(times), *numbers, [])
        >>> left, right = side([0, 1], [5, 5]), side([0, 0, 0, 2], [3, 4, 7, 5])
        >>> found = Matches.of(left, right, 3, bounds=(-1, 2))
        >>> found.any().tolist(), found.others().tolist()
        ([True, False], [False, True, True, False])
        >>> [places.tolist() for places in found.pairs()]
        [[0, 0], [1, 2]]
        """
        first = np.flatnonzero(changes(among.groups))
        starts, stops = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        starts[among.groups[first]] = first
        stops[among.groups[first]] = np.append(first, len(among))[1:]
        low, high = starts[rows.groups], stops[rows.groups]
        if bounds is not None:
            least, most = (rows.times + bound for bound in bounds)
            low = _not_before(among.times, low, high, least)
            high = _not_before(among.times, low, high, most + 1)
        return cls(low, high, len(among))

    def any(self) -> Mask:
        """Which rows match something."""
        return self.stops > self.starts

    def others(self) -> Mask:
        """Which rows of the other side match something."""
        edges = np.bincount(self.starts, minlength=self.among + 1)
        edges -= np.bincount(self.stops, minlength=self.among + 1)
        return np.cumsum(edges)[: self.among] > 0

    def pairs(self) -> tuple[Rows, Rows]:
        """Each row with each of its matches: the places of both."""
        counts = self.stops - self.starts
        before = np.cumsum(counts) - counts
        rows = np.repeat(np.arange(len(counts)), counts)
        return rows, np.repeat(self.starts - before, counts) + np.arange(len(rows))


def _not_before(times: Moments, low: Rows, high: Rows, sought: Moments) -> Rows:
    """In each range of ascending times, the first place that is not before the time sought.

    >>> times = np.array([1, 3, 5, 2, 2])
    >>> low, high = np.array([0, 0, 3, 2]), np.array([3, 3, 5, 2])
    >>> _not_before(times, low, high, np.array([3, 9, 2, 1])).tolist()
    [1, 3, 3, 2]
    """
    low, high = low.copy(), high.copy()
    open = np.flatnonzero(low < high)
    while len(open):
        middle = (low[open] + high[open]) >> 1
        before = times[middle] < sought[open]
        low[open[before]] = middle[before] + 1
        high[open[~before]] = middle[~before]
        open = open[low[open] < high[open]]
    return low
