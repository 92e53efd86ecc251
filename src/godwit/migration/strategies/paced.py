"""Bins whose files their destination has fetched ahead."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError
from godwit.migration.strategies.base import NOTHING, Estimate, Known, Ready, Strategy
from godwit.migration.strategies.bins import Bins, left, segments_of, sought
from godwit.model.ids import WorkerId
from godwit.model.routing import SEGMENTS, Routing

UNREADY_EPOCHS: Final = 8  # epochs without a step, after which bins move that are not ready


@dataclass(frozen=True, slots=True)
class Paced(Strategy):
    """Bins whose files their destination has fetched, which it does ahead of the step.

    `budget` is what fetching may cost an epoch, beyond one file a worker: a time (`50ms`), or a
    share of the time that the slowest worker needed in the epoch before (`20%`).
    """

    name: ClassVar = "paced"
    usage: ClassVar = "paced[:BUDGET]"
    about: ClassVar = "bins that were fetched ahead, in 20% of an epoch's work or in 50%, 50ms, ..."
    budget: str = "20%"

    def __post_init__(self) -> None:
        text = str(self.budget).replace(" ", "").removeprefix("+")
        if not re.fullmatch(r"\d+(\.\d+)?(%|ms|s)", text):
            raise ConfigError(
                f"a budget is a share such as 20% or a time such as 50ms, not '{text}'"
            )
        object.__setattr__(self, "budget", text)

    @classmethod
    def parse(cls, argument: str) -> Self:
        return cls(argument) if argument else cls()

    def __str__(self) -> str:
        return f"{self.name}:{self.budget}"

    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        bins = left(routing, target)
        if ready is None:
            return bins
        if waited is not None and waited >= UNREADY_EPOCHS:
            one = max(1, SEGMENTS // target.bins)  # segments of a bin
            ready = {worker: segments[:one] for worker, segments in sought(routing, target).items()}
        chosen: Bins = bins[_are_ready(target, bins, ready)]
        return chosen

    def estimate(self, known: Known) -> Estimate:
        """As fast as so far; before that, as long as destinations fetch, and a step at the end.

        A file is fetched as a whole, and at least one in an epoch. What is written meanwhile is not
        counted, nor what an executor has of other workers that it runs.
        """
        rest = len(known.bins)
        if not rest:
            return Estimate(0, 0.0)
        if known.arrived:
            return Estimate(None, known.elapsed * rest / known.arrived)
        if known.fetching is None:
            return Estimate(None, None)
        seconds = self.fetch_seconds(known.fetching.work)
        bytes = max(known.fetching.rate * seconds, 1.0)
        ahead = max(
            (math.ceil(min(len(one), sum(one) / bytes)) for one in known.fetching.lacking),
            default=0,
        )
        paced = Estimate.of(ahead + 1, known)
        longer = None if paced.seconds is None else paced.seconds + ahead * seconds
        return Estimate(paced.epochs, longer)

    def fetch_seconds(self, work: float) -> float:
        """
        >>> Paced("+20 %").fetch_seconds(2.0), Paced("50 ms").fetch_seconds(2.0)
        (0.4, 0.05)
        """
        number = float(self.budget.rstrip("%ms"))
        if self.budget.endswith("%"):
            return work * number / 100
        return number / 1000 if self.budget.endswith("ms") else number


def paced(budget: str = "20%") -> Strategy:
    """What destinations have fetched ahead, within a budget an epoch: `"+20 %"` or `"50 ms"`.

    >>> str(paced("50 ms"))
    'paced:50ms'
    """
    return Paced(budget)


def _are_ready(
    target: Routing, bins: Bins, ready: Mapping[WorkerId, Collection[int]]
) -> npt.NDArray[np.bool_]:
    """Does the destination of each bin have the files of all its segments?"""
    has = np.zeros((target.workers, SEGMENTS), np.bool_)
    for worker, segments in ready.items():
        if worker < target.workers:
            has[worker, list(segments)] = True
    mine = has[target.owners[bins][:, None], segments_of(target.bins, bins)]
    return np.asarray(mine.all(axis=1))
