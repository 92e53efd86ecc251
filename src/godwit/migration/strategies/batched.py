"""Some bins an epoch."""

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from godwit.errors import ConfigError
from godwit.migration.strategies.base import NOTHING, Estimate, Known, Ready, Strategy
from godwit.migration.strategies.bins import Bins, in_turn
from godwit.model.routing import Routing

SUGGESTED_STEPS: Final = 8


@dataclass(frozen=True, slots=True)
class Batched(Strategy):
    """So many bins an epoch, of which all destinations get their share."""

    name: ClassVar = "batched"
    usage: ClassVar = "batched:BINS"
    about: ClassVar = "BINS bins an epoch"
    bins: int

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise ConfigError(f"a step must move at least one bin, not {self.bins}")

    @classmethod
    def parse(cls, argument: str) -> Self:
        if not argument:
            raise ConfigError("batched needs a number of bins, such as batched:8")
        return cls(int(argument))

    @classmethod
    def suggested(cls, bins: int) -> Self | None:
        """A few large steps; what would be one bin a step is `fluid`."""
        batch = -(-bins // SUGGESTED_STEPS)
        return cls(batch) if batch > 1 else None

    def __str__(self) -> str:
        return f"{self.name}:{self.bins}"

    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        return in_turn(routing, target)[: self.bins]

    def estimate(self, known: Known) -> Estimate:
        return Estimate.of(-(-len(known.bins) // self.bins), known)


def batched(bins: int) -> Strategy:
    """`bins` bins an epoch.

    >>> str(batched(64))
    'batched:64'
    """
    return Batched(bins)
