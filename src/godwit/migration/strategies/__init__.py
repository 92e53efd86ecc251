"""From one routing to another, step by step: which bins change worker in the next epoch.

A strategy looks at where the bins are and where they shall be, and perhaps at what destinations
have fetched of them. So a migration goes on after a restart from these two routings, whatever
happened before. A new one is a file of this package and a line in `STRATEGIES`.
"""

from collections.abc import Iterator
from typing import Final

from godwit.errors import ConfigError
from godwit.migration.strategies.all_at_once import AllAtOnce, all_at_once
from godwit.migration.strategies.base import (
    NOTHING,
    Estimate,
    Fetching,
    Known,
    Ready,
    Strategy,
    common,
)
from godwit.migration.strategies.batched import Batched, batched
from godwit.migration.strategies.bins import Bins, in_turn, left, sought
from godwit.migration.strategies.fluid import Fluid, fluid
from godwit.migration.strategies.matched import Matched, matched
from godwit.migration.strategies.paced import UNREADY_EPOCHS, Paced, paced
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
    "common",
    "fluid",
    "in_turn",
    "left",
    "matched",
    "paced",
    "parse",
    "sought",
    "steps",
]


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
