"""One bin an epoch."""

from dataclasses import dataclass
from typing import ClassVar

from godwit.migration.strategies.base import NOTHING, Estimate, Known, Ready, Strategy
from godwit.migration.strategies.bins import Bins, in_turn
from godwit.model.routing import Routing


@dataclass(frozen=True, slots=True)
class Fluid(Strategy):
    """One bin an epoch: the shortest epochs, and the longest migration."""

    name: ClassVar = "fluid"
    usage: ClassVar = "fluid"
    about: ClassVar = "one bin an epoch"

    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        return in_turn(routing, target)[:1]

    def estimate(self, known: Known) -> Estimate:
        return Estimate.of(len(known.bins), known)


def fluid() -> Strategy:
    """One bin an epoch.

    >>> str(fluid())
    'fluid'
    """
    return Fluid()
