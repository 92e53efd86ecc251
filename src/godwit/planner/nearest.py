"""For every partitioning the one to migrate to: least state moved plus a price of the target.

`state_moved` reads two partitionings task by task and remembers, of what it has read, only which
of the two had a cut since the last task that stays. So for a target of which the first tasks are
decided and an origin of which the last tasks are given, the best way to complete the target is the
same whatever the origin was before. The minimum over all targets is therefore found for all origins
at once, from the last task to the first, over pairs (beginning of a target, end of an origin)
instead of pairs (target, origin): beginnings and ends are shared by many. Nothing is left out, so
the minimum is exact, for any loads, sizes and prices.
"""

from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np

from godwit.planner.partitionings import Bits, Costs, Indices, Stops, Weights, cut_at

MAX_CELLS = 8_000_000  # pairs of a beginning and an end at a time, at 32 bytes each

# Which of origin and target had a cut since the last task that stays: bit 0 and bit 1 of a number.
NEITHER, ORIGIN, TARGET, BOTH = range(4)


@dataclass(frozen=True, slots=True)
class Targets:
    """The beginnings of partitionings as a tree, with a level for each task.

    `children[p][b]` has for each beginning up to task p the one that goes on with a cut after it
    (b = 1) or without (b = 0), -1 if no partitioning does. The last level are the partitionings.
    """

    children: tuple[Indices, ...]

    @classmethod
    def of(cls, stops: Stops, tasks: int) -> Self:
        """The tree of partitionings that are in lexicographic order."""
        bits = cut_at(stops, tasks)
        numbers = _prefixes(bits)
        children = []
        for task in range(tasks - 1):
            longer = np.full((2, numbers[task][-1] + 1), -1)
            longer[bits[:, task].astype(np.intp), numbers[task]] = numbers[task + 1]
            children.append(longer)
        return cls(tuple(children))


@dataclass(frozen=True, slots=True)
class Origins:
    """The ends of partitionings as a tree, with a level for each task.

    For each end after task p: does it begin with a cut (`cut[p]`), and which end after task p+1
    goes on from there (`rest[p]`)? Level 0 are the partitionings.
    """

    cut: tuple[Bits, ...]
    rest: tuple[Indices, ...]

    @classmethod
    def of(cls, stops: Stops, tasks: int) -> Self:
        """The tree of partitionings that are in the order of `from_the_end`."""
        bits = cut_at(stops, tasks)
        numbers = _prefixes(bits[:, ::-1])[::-1]
        cuts, rests = [], []
        for task in range(tasks - 1):
            cut = np.zeros(numbers[task][-1] + 1, np.bool_)
            rest = np.zeros(len(cut), np.int64)
            cut[numbers[task]] = bits[:, task]
            rest[numbers[task]] = numbers[task + 1]
            cuts.append(cut)
            rests.append(rest)
        return cls(tuple(cuts), tuple(rests))


def from_the_end(stops: Stops, tasks: int) -> Indices:
    """The order in which partitionings with a common end are neighbours."""
    packed = np.packbits(cut_at(stops, tasks)[:, ::-1], axis=1)
    return np.lexsort(packed.T[::-1]) if packed.size else np.arange(len(stops))


def nearest(stops: Stops, targets: Targets, size: Weights, price: Costs) -> tuple[Costs, Indices]:
    """For each origin the target of least state moved plus price: what moves, and which it is.

    The origins are in the order of `from_the_end`. Many are taken in parts, to bound the memory.
    """
    origins = Origins.of(stops, len(size))
    if len(stops) > 1 and _cells(origins, targets) > MAX_CELLS:
        half = len(stops) // 2
        parts = [nearest(each, targets, size, price) for each in (stops[:half], stops[half:])]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    return _nearest(origins, targets, size, price)


def _cells(origins: Origins, targets: Targets) -> int:
    pairs = zip(origins.rest, targets.children, strict=True)
    return sum(len(rest) * children.shape[1] for rest, children in pairs)


def _nearest(
    origins: Origins, targets: Targets, size: Weights, price: Costs
) -> tuple[Costs, Indices]:
    layers = _layers(origins, targets, size, price)
    count = layers[0].shape[1]
    beginning, end = np.zeros(count, np.int64), np.arange(count)
    since, moved = np.full(count, BOTH), np.zeros(count)  # the first task begins at a cut of both
    for task, (cut, rest) in enumerate(zip(origins.cut, origins.rest, strict=True)):
        opened = cut[end].astype(np.int64) * ORIGIN
        end = rest[end]
        best = np.full(count, np.inf)
        step = beginning.copy(), since.copy(), moved.copy()
        for stays, child in product((True, False), (0, 1)):
            now = (NEITHER if stays else since) | opened | child * TARGET
            to = targets.children[task][child][beginning]
            allowed = (to >= 0) & ((since == NEITHER) | (since == BOTH) | (not stays))
            weight = 0.0 if stays else size[task]
            value = np.where(allowed, layers[task + 1][now, end, to] + weight, np.inf)
            better = value < best
            for chosen, found in zip((best, *step), (value, to, now, moved + weight), strict=True):
                np.copyto(chosen, found, where=better)
        beginning, since, moved = step
    moved += np.where((since == ORIGIN) | (since == TARGET), size[-1], 0.0)
    return moved, beginning


def _layers(origins: Origins, targets: Targets, size: Weights, price: Costs) -> list[Costs]:
    """By task: the least cost from it on, by cuts since, end of origin and beginning of target.

    A task stays only if both or neither had a cut since; that it moves costs its size. Where
    neither had a cut, moving it gains nothing.
    """
    layer = np.empty((4, 1, len(price)))
    layer[[NEITHER, BOTH]] = price
    layer[[ORIGIN, TARGET]] = price + size[-1]
    layers = [layer]
    for task in range(len(size) - 2, -1, -1):
        choice = _best_cut(layer, *targets.children[task])
        cut, rest = origins.cut[task], origins.rest[task]
        # A cut of the origin turns neither into origin, and target into both.
        ends = len(choice[0])
        rows = [since * ends + rest for since in range(4)]
        for without in (NEITHER, TARGET):
            rows[without] = np.where(cut, rows[without | ORIGIN], rows[without])
        layer = choice.reshape(4 * ends, -1)[np.concatenate(rows)].reshape(4, len(rest), -1)
        layer[ORIGIN:] += size[task]
        np.minimum(layer[BOTH], layer[NEITHER], out=layer[BOTH])
        layers.append(layer)
    return layers[::-1]


def _best_cut(layer: Costs, without: Indices, cut: Indices) -> Costs:
    """The better of going on without a cut of the target and with one, which turns on its bit."""
    best: Costs = layer.take(np.maximum(without, 0), axis=2)
    only = np.flatnonzero(without < 0)
    best[:, :, only] = np.inf
    either = np.flatnonzero(cut >= 0)
    cuts = layer[TARGET:].take(cut[either], axis=2)
    for half in (best[:TARGET], best[TARGET:]):
        if len(either) == len(cut):
            np.minimum(half, cuts, out=half)
        else:
            half[:, :, either] = np.minimum(half[:, :, either], cuts)
    return best


def _prefixes(bits: Bits) -> list[Indices]:
    """By length: the number of the beginning of each row, counted in the order of the rows.

    >>> [number.tolist() for number in _prefixes(np.array([[1, 0], [1, 1], [0, 1]], np.bool_))]
    [[0, 0, 0], [0, 0, 1], [0, 1, 2]]
    """
    differs = np.pad(bits[1:] != bits[:-1], ((0, 0), (0, 1)), constant_values=True)
    first = differs.argmax(axis=1)
    return [np.append(0, np.cumsum(first < length)) for length in range(bits.shape[1] + 1)]
