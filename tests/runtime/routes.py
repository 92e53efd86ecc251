"""Routing over epochs in plain Python: what requests and restarts should do."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from godwit.model.routing import Routing


class ImpossibleError(Exception):
    """There is no such bin or worker, or a worker would be retired that owns a bin."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Owners of bins by epoch, and the number of workers from the first of these epochs on."""

    owners: dict[int, dict[int, int]]
    bins: int
    workers: int | None


class Routes:
    """The routings of all epochs up to `begun`, and what is wished for those to come."""

    def __init__(self, workers: int, bins: int) -> None:
        self.begun = -1
        self.now = even(bins, workers)
        self.by_epoch: dict[int, Routing] = {}
        self._wishes: list[Wish] = []

    def begin(self, epoch: int) -> None:
        self.now = self.by_epoch[epoch] = _granted(self._wishes, self.now, epoch)
        self.begun = epoch

    def is_possible(self, wish: Wish) -> bool:
        """Whether it is for epochs to come, and they can have it with all that was wished."""
        if not wish.owners or min(wish.owners) <= self.begun:
            return False
        return self._are_possible([*self._wishes, wish])

    def add(self, wish: Wish) -> None:
        self._wishes.append(wish)

    def restart(self, workers: int | None, bins: int | None) -> None:
        """Other bins or workers than those of the last epoch make a routing without wishes.

        Before the first epoch both are given, and wishes stay if they are possible.
        """
        before = self.by_epoch.get(self.begun) or even(bins or 0, workers or 0)
        self.now = before
        if bins is not None and bins != before.bins:
            first_parts = np.arange(bins) * before.bins // bins
            self.now = Routing(before.owners[first_parts], before.workers)
        if workers is not None and workers != before.workers:
            self.now = even(self.now.bins, workers)
        self._wishes = [wish for wish in self._wishes if wish.bins == self.now.bins]
        if self.now != before or not self._are_possible(self._wishes):
            self._wishes = []

    def restore(self, epoch: int) -> None:
        """Later epochs have not begun; nor was anything wished for them."""
        self.begun, self.now, self._wishes = epoch, self.by_epoch[epoch], []
        self.by_epoch = {e: routing for e, routing in self.by_epoch.items() if e <= epoch}

    def _are_possible(self, wishes: Sequence[Wish]) -> bool:
        last = max((max(wish.owners) for wish in wishes), default=self.begun)
        routing = self.now
        try:
            for epoch in range(self.begun + 1, last + 1):
                routing = _granted(wishes, routing, epoch)
        except ImpossibleError:
            return False
        return True


def even(bins: int, workers: int) -> Routing:
    return Routing(np.array([bin * workers // bins for bin in range(bins)]), workers)


def _granted(wishes: Sequence[Wish], routing: Routing, epoch: int) -> Routing:
    """The routing of an epoch, given that of the epoch before."""
    for wish in wishes:
        if epoch in wish.owners:
            workers = wish.workers or routing.workers
            owners = routing.owners.tolist()
            for bin, worker in wish.owners[epoch].items():
                if not (0 <= bin < len(owners) and 0 <= worker < workers):
                    raise ImpossibleError
                owners[bin] = worker
            if max(owners) >= workers:
                raise ImpossibleError
            routing = Routing(np.array(owners), workers)
    return routing
