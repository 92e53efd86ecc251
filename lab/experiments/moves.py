"""What moves in most experiments: a quarter of the state of a count."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

import godwit as gw
from lab.workloads.plan import ScheduledMove, WorkloadRun

WORKERS: Final = 4


def quarters(bins: int) -> list[gw.Routing]:
    """Four routings over four workers, from the even one on: each moves a quarter of the bins.

    The first moves one half of the bins of workers 0 and 1 to 3 and 2, the second as many back, the
    third the other halves, and the fourth as many back. No bin moves twice, so no worker finds the
    files of a bin in its cache because it had the bin before.

    >>> [routing.owners.tolist() for routing in quarters(8)]
    [[3, 0, 2, 1, 2, 2, 3, 3], [3, 0, 2, 1, 1, 2, 0, 3], [3, 3, 2, 2, 1, 2, 0, 3], \
[3, 3, 2, 2, 1, 1, 0, 0]]
    """
    even = gw.Routing.even(bins, WORKERS).owners
    half = np.arange(bins) % (bins // WORKERS) < bins // WORKERS // 2
    other = WORKERS - 1 - even
    owners, found = even.copy(), []
    for low, first in ((True, True), (False, True), (True, False), (False, False)):
        moved = ((even < WORKERS // 2) == low) & (half == first)
        owners = np.where(moved, other, owners)
        found.append(gw.Routing(owners, WORKERS))
    return found


def moves(
    strategies: Sequence[str], bins: int, first: float, gap: float
) -> tuple[ScheduledMove, ...]:
    """A quarter of the state moves by each strategy in turn, from `first` on, every `gap` s."""
    targets = quarters(bins)
    return tuple(
        ScheduledMove(first + gap * number, targets[number % len(targets)], strategy)
        for number, strategy in enumerate(strategies)
    )


def one_each(wanted: WorkloadRun, strategies: Sequence[str], at: float) -> dict[str, WorkloadRun]:
    """The same run for each strategy, which moves a quarter of the state `at` seconds."""
    return {name: replace(wanted, moves=moves([name], wanted.bins, at, 0)) for name in strategies}
