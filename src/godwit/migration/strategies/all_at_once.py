"""All bins in one epoch."""

from dataclasses import dataclass
from typing import ClassVar

from godwit.migration.strategies.base import NOTHING, Estimate, Known, Ready, Strategy
from godwit.migration.strategies.bins import Bins, left
from godwit.model.routing import Routing


@dataclass(frozen=True, slots=True)
class AllAtOnce(Strategy):
    """All bins in one epoch: the shortest migration, and the longest epoch."""

    name: ClassVar = "all-at-once"
    usage: ClassVar = "all-at-once"
    about: ClassVar = "all bins in one epoch"

    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        return left(routing, target)

    def estimate(self, known: Known) -> Estimate:
        return Estimate.of(min(len(known.bins), 1), known)


def all_at_once() -> Strategy:
    """All bins in one epoch.

    >>> str(all_at_once())
    'all-at-once'
    """
    return AllAtOnce()
