"""From one routing to another, step by step: which bins change worker in the next epoch.

A strategy looks at where the bins are and where they shall be, and perhaps at what destinations
have fetched of them. So a migration goes on after a restart from these two routings, whatever
happened before. A new one is a file in `strategy/` and a line in `STRATEGIES`.
"""

from collections.abc import Iterator
from typing import Final

from godwit.errors import ConfigError
from godwit.migration.strategy.all_at_once import AllAtOnce
from godwit.migration.strategy.base import (
    NOTHING,
    Estimate,
    Fetching,
    Known,
    Ready,
    Strategy,
)
from godwit.migration.strategy.batched import Batched
from godwit.migration.strategy.bins import Bins, in_turn, left, sought
from godwit.migration.strategy.fluid import Fluid
from godwit.migration.strategy.matched import Matched
from godwit.migration.strategy.paced import UNREADY_EPOCHS, Paced
from godwit.model.routing import Move, Routing, moves_of

STRATEGIES: Final[tuple[type[Strategy], ...]] = (AllAtOnce, Fluid, Batched, Matched, Paced)

__all__ = [
    "NOTHING",
    "STRATEGIES",
    "UNREADY_EPOCHS",
    "AllAtOnce",
    "Batched",
    "Bins",
    "Estimate",
    "Fetching",
    "Fluid",
    "Known",
    "Matched",
    "Paced",
    "Ready",
    "Strategy",
    "all_at_once",
    "batched",
    "fluid",
    "in_turn",
    "left",
    "matched",
    "paced",
    "parse",
    "sought",
    "steps",
]


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
    for strategy in STRATEGIES:
        if strategy.name == name:
            try:
                return strategy.parse(argument)
            except ConfigError:
                raise
            except ValueError:
                break
    usages = ", ".join(strategy.usage for strategy in reversed(STRATEGIES))
    raise ConfigError(f"unknown strategy '{text}'; use {usages}")


def steps(strategy: Strategy, routing: Routing, target: Routing) -> Iterator[list[Move]]:
    """The moves of one epoch after the other, none in the epochs of a gap; then it is at `target`.

    >>> import numpy as np
    >>> routing, target = Routing(np.array([0, 0, 1]).repeat([1, 1, 2]), 3), Routing.even(4, 3)
    >>> [[(move.bin, move.target) for move in step] for step in steps(matched(), routing, target)]
    [[(3, 2)]]
    """
    waited: int | None = None
    while len(left(routing, target)):
        bins = strategy.step(routing, target, waited)
        waited = 0 if len(bins) or waited is None else waited + 1
        yield list(moves_of(bins, routing.owners, target.owners))
        routing = routing.toward(target, bins)
