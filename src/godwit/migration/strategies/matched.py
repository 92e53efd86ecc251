"""One bin an epoch for each pair of a source and a destination."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from godwit.errors import ConfigError
from godwit.migration.strategies.base import NOTHING, Estimate, Known, Ready, Strategy
from godwit.migration.strategies.bins import Bins, left
from godwit.model.routing import Routing
from godwit.model.text import plural


@dataclass(frozen=True, slots=True)
class Matched(Strategy):
    """As many bins as can move with no worker giving or taking more than one of them.

    That is a maximum matching of sources and destinations. `gap` epochs without a step follow on
    each step, in which the query catches up.
    """

    name: ClassVar = "matched"
    usage: ClassVar = "matched[:GAP]"
    about: ClassVar = "one bin an epoch for each source and destination, GAP epochs between"
    gap: int = 0

    def __post_init__(self) -> None:
        if self.gap < 0:
            raise ConfigError(f"the gap between steps cannot be {plural(self.gap, 'epoch')}")

    @classmethod
    def parse(cls, argument: str) -> Self:
        return cls(int(argument)) if argument else cls()

    def __str__(self) -> str:
        return f"{self.name}:{self.gap}" if self.gap else self.name

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

    def estimate(self, known: Known) -> Estimate:
        """The worker that gives or takes most bins does so one at a time."""
        ends = (known.routing.owners[known.bins], known.target.owners[known.bins])
        steps = max(int(np.bincount(end).max(initial=0)) for end in ends)
        return Estimate.of((self.gap + 1) * steps, known)


def matched(gap: int = 0) -> Strategy:
    """One bin an epoch for each pair of a maximum matching of sources and destinations.

    >>> str(matched(gap=2))
    'matched:2'
    """
    return Matched(gap)
