"""How a migration is cut into steps."""

from godwit.strategies.steps import (
    AllAtOnce,
    Batched,
    Fluid,
    Matched,
    Strategy,
    all_at_once,
    batched,
    fluid,
    matched,
    parse,
    steps,
)

__all__ = [
    "AllAtOnce",
    "Batched",
    "Fluid",
    "Matched",
    "Strategy",
    "all_at_once",
    "batched",
    "fluid",
    "matched",
    "parse",
    "steps",
]
