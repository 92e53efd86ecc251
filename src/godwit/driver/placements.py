"""The placement of a running query: decided with each epoch, and again when an executor is lost."""

import logging
from collections.abc import Mapping

import numpy as np

from godwit.driver.merges import Trees
from godwit.errors import RefusedError
from godwit.inspect.sizes import bytes_by_bin
from godwit.model.requests import HandoverRequest, PlacementRequest
from godwit.model.routing import Routing
from godwit.placement.handover import HandoverState, PlacementState, Seen
from godwit.placement.slots import Placement, Replicas
from godwit.storage.store import Store
from godwit.worker.replicas import read_progress

log = logging.getLogger("godwit")

Executors = Mapping[str, str]  # those that live, with their hosts
NOWHERE: Executors = {}


class Placements:
    """Where the workers of a query are, as the newest epoch that was decided says.

    Executors belong to one application, so a start begins anew: a handover that was open when its
    driver ended leaves nothing behind.
    """

    def __init__(self, files: Store, generation: int, copies: int) -> None:
        self._files = files
        self._generation = generation
        self.state = PlacementState(copies)

    @property
    def placement(self) -> Placement | None:
        return self.state.placement

    @property
    def are_open(self) -> bool:
        """Does a handover that somebody asked for wait for epochs?"""
        asked = any(not handover.automatic for handover in self.state.handovers)
        moving = set(self.placement.homes if self.placement else ())
        return asked or bool(self.state.drained & moving)

    def have_changed(self, executors: Executors) -> bool:
        """Are there other executors than when the newest epoch was decided?"""
        return set(self.placement.executors if self.placement else ()) != executors.keys()

    def begin(self, seen: Seen) -> None:
        """Decide where workers run in an epoch; again, if an executor was lost in it."""
        self._become(self.state.begin(seen))

    def published(self, epoch: int, places: Mapping[int, str]) -> None:
        self._become(self.state.published(epoch, places))

    def take(self, request: PlacementRequest) -> None:
        """Accept the request of another process, or raise RefusedError."""
        if request.generation != self._generation:
            raise RefusedError(
                f"it was made for the executors of driver {request.generation}, whose application "
                f"has ended; look which ones driver {self._generation} has, and ask again"
            )
        if isinstance(request, HandoverRequest):
            self.ask(request.worker, request.executor)
        else:
            self.drain(request.executor)

    def ask(self, worker: int, executor: str) -> HandoverState:
        """Accept a handover, or raise RefusedError."""
        self._become(self.state.ask(worker, executor))
        return self.state.handovers[-1]

    def drain(self, executor: str) -> None:
        self._become(self.state.drain(executor))

    def progress(self) -> Replicas:
        """What executors say of their replicas."""
        return read_progress(self._files, self._generation)

    def _become(self, state: PlacementState) -> None:
        known = {handover.id for handover in self.state.past}
        for handover in state.past:
            if handover.id not in known:
                log.info("%s", handover)
        self.state = state


def bytes_by_worker(trees: Trees, routings: Mapping[str, Routing]) -> list[float]:
    """The bytes of each worker's state over all operators, estimated."""
    total = np.zeros(max(routing.workers for routing in routings.values()))
    for name, routing in routings.items():
        sizes = bytes_by_bin(trees[name].values(), routing.bins)
        total[: routing.workers] += np.bincount(routing.owners, sizes, routing.workers)
    return total.tolist()
