"""From one routing to another, step by step: which bins change worker in the next epoch.

A strategy looks at where the bins are and where they shall be, and at nothing else. So a migration
goes on after a restart from these two routings, whatever happened before.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from godwit.errors import ConfigError
from godwit.model.routing import Move, Routing

Bins = npt.NDArray[np.int64]


class Strategy(Protocol):
    """Chooses the bins of a step; `str` of it is what `parse` reads."""

    def step(self, routing: Routing, target: Routing, waited: int | None) -> Bins:
        """The bins to move in this epoch; not for ever none, as long as some have to move.

        `waited` is how many epochs without a step have passed since the last one (None: there was
        none yet).
        """
        ...


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """All bins in one epoch: the shortest migration, and the longest epoch."""

    def step(self, routing: Routing, target: Routing, waited: int | None) -> Bins:
        return left(routing, target)

    def __str__(self) -> str:
        return "all-at-once"


@dataclass(frozen=True, slots=True)
class Batched:
    """So many bins an epoch, in the order of their numbers."""

    bins: int

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise ConfigError(f"a step must move at least one bin, not {self.bins}")

    def step(self, routing: Routing, target: Routing, waited: int | None) -> Bins:
        return left(routing, target)[: self.bins]

    def __str__(self) -> str:
        return f"batched:{self.bins}"


@dataclass(frozen=True, slots=True)
class Fluid:
    """One bin an epoch: the shortest epochs, and the longest migration."""

    def step(self, routing: Routing, target: Routing, waited: int | None) -> Bins:
        return left(routing, target)[:1]

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

    def step(self, routing: Routing, target: Routing, waited: int | None) -> Bins:
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


def all_at_once() -> AllAtOnce:
    """All bins in one epoch."""
    return AllAtOnce()


def batched(bins: int) -> Batched:
    """`bins` bins an epoch."""
    return Batched(bins)


def fluid() -> Fluid:
    """One bin an epoch."""
    return Fluid()


def matched(gap: int = 0) -> Matched:
    """One bin an epoch for each pair of a maximum matching of sources and destinations."""
    return Matched(gap)


def parse(text: str) -> Strategy:
    """The strategy that a text names.

    >>> parse("batched:64"), parse("matched"), str(parse("all-at-once"))
    (Batched(bins=64), Matched(gap=0), 'all-at-once')
    """
    name, _, number = text.partition(":")
    makers = {"all-at-once": AllAtOnce, "batched": Batched, "fluid": Fluid, "matched": Matched}
    try:
        strategy: Strategy = makers[name](*([int(number)] if number else []))
    except (KeyError, ValueError, TypeError):
        raise ConfigError(
            f"unknown strategy '{text}'; use all-at-once, fluid, batched:BINS or matched[:GAP]"
        ) from None
    return strategy


def left(routing: Routing, target: Routing) -> Bins:
    """The bins that are not yet where they shall be."""
    bins: Bins = np.flatnonzero(routing.owners != target.owners)
    return bins


def steps(strategy: Strategy, routing: Routing, target: Routing) -> Iterator[list[Move]]:
    """The moves of one epoch after the other, none in the epochs of a gap; then it is at `target`.

    >>> routing, target = Routing(np.array([0, 0, 1]).repeat([1, 1, 2]), 3), Routing.even(4, 3)
    >>> [[(move.bin, move.target) for move in step] for step in steps(matched(), routing, target)]
    [[(3, 2)]]
    """
    waited: int | None = None
    while len(left(routing, target)):
        bins = strategy.step(routing, target, waited)
        waited = 0 if len(bins) else (waited or 0) + 1
        yield [Move(b, int(routing.owners[b]), int(target.owners[b])) for b in bins.tolist()]
        routing = routing.toward(target, bins)
