"""From one routing to another, step by step: which bins change worker in the next epoch.

A strategy looks at where the bins are and where they shall be, and perhaps at what destinations
have fetched of them. So a migration goes on after a restart from these two routings, whatever
happened before.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError
from godwit.model.routing import SEGMENTS, Move, Routing

UNREADY_EPOCHS: Final = 8  # epochs without a step, after which bins move that are not ready

Bins = npt.NDArray[np.int64]
Ready = Mapping[int, Collection[int]] | None  # by worker: the segments of which it has all files

NOTHING: Final[Ready] = MappingProxyType({})


class Strategy(Protocol):
    """Chooses the bins of a step; `str` of it is what `parse` reads.

    >>> batched(2).step(Routing.even(8, 1), Routing.even(8, 2), None).tolist()
    [4, 5]
    """

    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        """The bins to move in this epoch; not for ever none, as long as some have to move.

        `waited` is how many epochs without a step have passed since the last one, or since the
        first epoch of the migration (None: this is the first). `ready` is None in the first epoch
        after a start, when nobody has any file, neither the sources nor the destinations.
        """
        ...


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """All bins in one epoch: the shortest migration, and the longest epoch."""

    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        return left(routing, target)

    def __str__(self) -> str:
        return "all-at-once"


@dataclass(frozen=True, slots=True)
class Batched:
    """So many bins an epoch, of which all destinations get their share."""

    bins: int

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise ConfigError(f"a step must move at least one bin, not {self.bins}")

    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        return in_turn(routing, target)[: self.bins]

    def __str__(self) -> str:
        return f"batched:{self.bins}"


@dataclass(frozen=True, slots=True)
class Fluid:
    """One bin an epoch: the shortest epochs, and the longest migration."""

    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        return in_turn(routing, target)[:1]

    def __str__(self) -> str:
        return "fluid"


@dataclass(frozen=True, slots=True)
class Matched:
    """As many bins as can move with no worker giving or taking more than one of them.

    That is a maximum matching of sources and destinations. `gap` epochs without a step follow on
    each step, in which the query catches up.
    """

    gap: int = 0

    def __post_init__(self) -> None:
        if self.gap < 0:
            raise ConfigError(f"the gap between steps cannot be {self.gap} epochs")

    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        # Imported here, since every process of every worker would wait for it otherwise.
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import maximum_bipartite_matching

        bins = left(routing, target)
        if waited is not None and waited < self.gap:
            return bins[:0]
        size = max(routing.workers, target.workers)
        sources, targets = routing.owners[bins].astype(np.int64), target.owners[bins]
        edges, first = np.unique(sources * size + targets, return_index=True)
        ones = np.ones(len(edges), np.int8)
        graph = csr_matrix((ones, (edges // size, edges % size)), shape=(size, size))
        partner = maximum_bipartite_matching(graph, perm_type="column")
        chosen: Bins = np.sort(bins[first[partner[edges // size] == edges % size]])
        return chosen

    def __str__(self) -> str:
        return f"matched:{self.gap}" if self.gap else "matched"


@dataclass(frozen=True, slots=True)
class Paced:
    """Bins whose files their destination has fetched, which it does ahead of the step.

    `budget` is what fetching may cost an epoch, beyond one file a worker: a time (`50ms`), or a
    share of the time that the slowest worker needed in the epoch before (`20%`).
    """

    budget: str = "20%"

    def __post_init__(self) -> None:
        text = str(self.budget).replace(" ", "").removeprefix("+")
        if not re.fullmatch(r"\d+(\.\d+)?(%|ms|s)", text):
            raise ConfigError(
                f"a budget is a share such as 20% or a time such as 50ms, not '{text}'"
            )
        object.__setattr__(self, "budget", text)

    def seconds(self, work: float) -> float:
        """The time for fetching in an epoch that follows on one with so much work.

        >>> Paced("+20 %").seconds(2.0), Paced("50 ms").seconds(2.0)
        (0.4, 0.05)
        """
        number = float(self.budget.rstrip("%ms"))
        if self.budget.endswith("%"):
            return work * number / 100
        return number / 1000 if self.budget.endswith("ms") else number

    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        bins = left(routing, target)
        if ready is None:
            return bins
        if waited is not None and waited >= UNREADY_EPOCHS:
            one = max(1, SEGMENTS // target.bins)  # segments of a bin
            ready = {worker: segments[:one] for worker, segments in sought(routing, target).items()}
        chosen: Bins = bins[_are_ready(target, bins, ready)]
        return chosen

    def __str__(self) -> str:
        return f"paced:{self.budget}"


def all_at_once() -> Strategy:
    """All bins in one epoch.

    >>> str(all_at_once())
    'all-at-once'
    """
    return AllAtOnce()


def batched(bins: int) -> Strategy:
    """`bins` bins an epoch.

    >>> str(batched(64))
    'batched:64'
    """
    return Batched(bins)


def fluid() -> Strategy:
    """One bin an epoch.

    >>> str(fluid())
    'fluid'
    """
    return Fluid()


def matched(gap: int = 0) -> Strategy:
    """One bin an epoch for each pair of a maximum matching of sources and destinations.

    >>> str(matched(gap=2))
    'matched:2'
    """
    return Matched(gap)


def paced(budget: str = "20%") -> Strategy:
    """What destinations have fetched ahead, within a budget an epoch: `"+20 %"` or `"50 ms"`.

    >>> str(paced("50 ms"))
    'paced:50ms'
    """
    return Paced(budget)


def parse(text: str) -> Strategy:
    """The strategy that a text names.

    >>> parse("batched:64"), parse("paced:50ms"), str(parse("all-at-once"))
    (Batched(bins=64), Paced(budget='50ms'), 'all-at-once')
    """
    name, _, argument = text.partition(":")
    makers: dict[str, Callable[..., Strategy]] = {
        "paced": Paced,
        "all-at-once": AllAtOnce,
        "fluid": Fluid,
        "batched": lambda *bins: Batched(*map(int, bins)),
        "matched": lambda *gap: Matched(*map(int, gap)),
    }
    try:
        return makers[name](*([argument] if argument else []))
    except ConfigError:
        raise
    except (KeyError, ValueError, TypeError):
        raise ConfigError(
            f"unknown strategy '{text}'; use paced[:BUDGET], all-at-once, fluid, batched:BINS or "
            "matched[:GAP]"
        ) from None


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


def sought(routing: Routing, target: Routing) -> dict[int, list[int]]:
    """By destination: the segments of which it has still to get bins, in the order of their steps.

    >>> sought(Routing.even(128, 1), Routing.even(128, 2))[1][:3]
    [32, 33, 34]
    """
    bins = left(routing, target)
    seeks = np.zeros((target.workers, SEGMENTS), np.bool_)
    seeks[target.owners[bins][:, None], _segments(target.bins, bins)] = True
    workers = np.flatnonzero(seeks.any(axis=1)).tolist()
    return {worker: np.flatnonzero(seeks[worker]).tolist() for worker in workers}


def _are_ready(
    target: Routing, bins: Bins, ready: Mapping[int, Collection[int]]
) -> npt.NDArray[np.bool_]:
    """Does the destination of each bin have the files of all its segments?"""
    has = np.zeros((target.workers, SEGMENTS), np.bool_)
    for worker, segments in ready.items():
        if worker < target.workers:
            has[worker, list(segments)] = True
    mine = has[target.owners[bins][:, None], _segments(target.bins, bins)]
    return np.asarray(mine.all(axis=1))


def _segments(count: int, bins: Bins) -> Bins:
    """The segments of each of `bins`, of so many bins in all: one row a bin."""
    wide = np.arange(max(1, SEGMENTS // count))
    found: Bins = (bins * SEGMENTS // count)[:, None] + wide
    return found


def steps(strategy: Strategy, routing: Routing, target: Routing) -> Iterator[list[Move]]:
    """The moves of one epoch after the other, none in the epochs of a gap; then it is at `target`.

    >>> routing, target = Routing(np.array([0, 0, 1]).repeat([1, 1, 2]), 3), Routing.even(4, 3)
    >>> [[(move.bin, move.target) for move in step] for step in steps(matched(), routing, target)]
    [[(3, 2)]]
    """
    waited: int | None = None
    while len(left(routing, target)):
        bins = strategy.step(routing, target, waited)
        waited = 0 if len(bins) or waited is None else waited + 1
        yield [Move(b, int(routing.owners[b]), int(target.owners[b])) for b in bins.tolist()]
        routing = routing.toward(target, bins)
