"""How a migration is cut into steps."""

from godwit.strategies.steps import (
    AllAtOnce,
    Batched,
    Fluid,
    Matched,
    Paced,
    Strategy,
    all_at_once,
    batched,
    fluid,
    matched,
    paced,
    parse,
    steps,
)

__all__ = [
    "AllAtOnce",
    "Batched",
    "Fluid",
    "Matched",
    "Paced",
    "Strategy",
    "all_at_once",
    "batched",
    "fluid",
    "matched",
    "paced",
    "parse",
    "steps",
]
