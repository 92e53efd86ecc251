"""Which bins, and which segments of state files, are left on the way to a target."""

import numpy as np
import numpy.typing as npt

from godwit.model.ids import WorkerId
from godwit.model.routing import SEGMENTS, Routing

Bins = npt.NDArray[np.int64]


def left(routing: Routing, target: Routing) -> Bins:
    """The bins that are not yet where they shall be."""
    bins: Bins = np.flatnonzero(routing.owners != target.owners)
    return bins


def in_turn(routing: Routing, target: Routing) -> Bins:
    """The bins left, in an order of which any beginning has of each destination its share.

    So destinations, who read what moves, read about equally long in every step, and none waits for
    another: the phases of Roediger et al. (ICDE 2014), for sources that do nothing. Each takes its
    bins in the order of their numbers, since those of a segment are in the same files.

    >>> in_turn(Routing.even(8, 1), Routing(np.array([0, 1, 1, 1, 1, 0, 2, 2]), 3)).tolist()
    [1, 6, 2, 3, 7, 4]
    """
    bins = left(routing, target)
    targets = target.owners[bins]
    counts = np.bincount(targets, minlength=target.workers)
    order = np.argsort(targets, kind="stable")
    rank = np.arange(len(bins)) - np.repeat(np.cumsum(counts) - counts, counts)
    share = (rank + 0.5) / counts[targets[order]]
    chosen: Bins = bins[order[np.lexsort((bins[order], share))]]
    return chosen


def sought(routing: Routing, target: Routing) -> dict[WorkerId, list[int]]:
    """By destination: the segments of which it has still to get bins, in the order of their steps.

    >>> sought(Routing.even(128, 1), Routing.even(128, 2))[1][:3]
    [32, 33, 34]
    """
    bins = left(routing, target)
    seeks = np.zeros((target.workers, SEGMENTS), np.bool_)
    seeks[target.owners[bins][:, None], segments_of(target.bins, bins)] = True
    workers = np.flatnonzero(seeks.any(axis=1)).tolist()
    return {WorkerId(one): np.flatnonzero(seeks[one]).tolist() for one in workers}


def segments_of(count: int, bins: Bins) -> Bins:
    """The segments of each of `bins`, of so many bins in all: one row a bin."""
    wide = np.arange(max(1, SEGMENTS // count))
    found: Bins = (bins * SEGMENTS // count)[:, None] + wide
    return found
