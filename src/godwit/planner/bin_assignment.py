"""Which worker has which bin, bin by bin, and what it costs to get there."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError
from godwit.model.routing import Routing
from godwit.model.text import plural
from godwit.planner.assignment import Floats

Owners = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class BinAssignment:
    """The worker of every bin, and what it takes to get there.

    `cost` is the size of the state that moves, `gain` of the state that stays, and `moves` the
    number of bins that move; `max_load` is the load of the most loaded worker. No placement that
    keeps the same limits costs less than `bound`.
    """

    owners: Owners
    cost: float
    gain: float
    moves: int
    max_load: float
    bound: float = 0.0

    @property
    def gap(self) -> float:
        """How much more than the best one it may cost, as a share of its cost."""
        return (self.cost - self.bound) / self.cost if self.cost > self.bound else 0.0

    def routing(self, workers: int) -> Routing:
        """As a routing over so many workers."""
        return Routing(self.owners, workers)


def measured(
    before: Owners, after: Owners, load: Floats, size: Floats, bound: float = 0.0
) -> BinAssignment:
    """The placement `after`, with what it costs to get there from `before`."""
    moved = before != after
    loads = np.bincount(after, load) if len(after) else np.zeros(1)
    return BinAssignment(
        after,
        cost=float(size[moved].sum()),
        gain=float(size[~moved].sum()),
        moves=int(moved.sum()),
        max_load=float(loads.max()),
        bound=bound,
    )


def check_owners(owners: npt.ArrayLike, bins: int) -> Owners:
    """The worker of every bin, as given, if it is one a bin."""
    array = np.asarray(owners)
    if array.ndim != 1 or len(array) != bins:
        wanted = f"give one worker for {plural(bins, 'bin')}"
        raise ConfigError(f"owners has the shape {array.shape}; {wanted}")
    if bins and not np.issubdtype(array.dtype, np.integer):
        raise ConfigError(f"workers must be integers, not of type {array.dtype}")
    if bins and array.min() < 0:
        raise ConfigError(f"bin {array.argmin()} has worker {array.min()}; workers count from 0")
    return array.astype(np.int32)


def check_workers(name: str, workers: Iterable[int]) -> frozenset[int]:
    found = frozenset(map(int, workers))
    if found and min(found) < 0:
        raise ConfigError(f"{name} names worker {min(found)}; workers count from 0")
    return found
