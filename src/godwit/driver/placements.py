"""The placement of a running query: decided with each epoch, and again when an executor is lost."""

import logging
from collections import Counter
from collections.abc import Mapping

import numpy as np

from godwit.driver.merges import Trees
from godwit.driver.monitor import Monitor
from godwit.errors import RefusedError
from godwit.inspect.sizes import bytes_by_bin
from godwit.model.ids import NO_EXECUTOR, Epoch, ExecutorId, WorkerId
from godwit.model.requests import HandoverRequest, PlacementRequest
from godwit.model.routing import Routing
from godwit.placement.handover import HandoverState
from godwit.placement.placement_state import PlacementRecord, PlacementState, Seen
from godwit.placement.slots import Placement, Replicas
from godwit.state.cache import CacheSpec
from godwit.storage.store import Store
from godwit.worker.keeper import KeeperSpec
from godwit.worker.neighbours import Neighbours
from godwit.worker.peer_key import PeerKey
from godwit.worker.replicas import read_reports

log = logging.getLogger("godwit")

Executors = Mapping[ExecutorId, str]  # those that live, with their hosts
NOWHERE: Executors = {}


class Placements:
    """Where the workers of a query are, as the newest epoch that was decided says.

    Executors belong to one application, so a start begins anew: a handover that was open when its
    driver ended leaves nothing behind. Whoever changes it holds the monitor; any thread may ask for
    its `state`, which is a value.
    """

    def __init__(
        self,
        checkpoint: Store,
        files: Store,
        generation: int,
        cache: CacheSpec,
        copies: int,
        monitor: Monitor,
        key: PeerKey | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._files = files
        self._generation = generation
        self._cache = cache
        self._monitor = monitor
        self._key = key
        self._epoch = Epoch(0)
        self._addresses: dict[ExecutorId, str] = {}
        self._state = PlacementState(copies)
        self._is_told = True  # does the newest intent say where workers are?

    @property
    def state(self) -> PlacementState:
        """The placement, and what is to become of it."""
        with self._monitor:
            return self._state

    @property
    def placement(self) -> Placement | None:
        """Of the newest epoch that has begun; None where workers are not pinned."""
        return self.state.placement

    @property
    def _neighbours(self) -> Neighbours | None:
        """What tasks of the newest epoch that has begun know of keepers, if replicas are kept."""
        with self._monitor:
            placement = self._state.placement
            if placement is None or not any(placement.replicas):
                return None
            return Neighbours.of(self._epoch, placement, self._key, self._addresses)

    @property
    def keeper(self) -> KeeperSpec | None:
        """What keeps the replicas of the newest epoch that has begun, if it has any."""
        neighbours = self._neighbours
        if neighbours is None:
            return None
        where = self._checkpoint, self._generation, self._cache
        return KeeperSpec(*where, NO_EXECUTOR, neighbours)

    @property
    def are_open(self) -> bool:
        """Does a handover that somebody asked for wait for epochs?"""
        state = self.state
        asked = any(not handover.automatic for handover in state.handovers)
        moving = set(state.placement.homes if state.placement else ())
        return asked or bool(state.drained & moving)

    def can_settle(self, epoch: Epoch) -> bool:
        """Would `epoch`, the next one, bring a handover further, or tell where workers went?"""
        with self._monitor:
            state, is_told = self._state, self._is_told
        if not is_told:
            return True
        return bool(state.handovers) and state.can_go_on(epoch, self.replicas())

    def have_changed(self, executors: Executors) -> bool:
        """Are there other executors than when the newest epoch was decided?"""
        return set(self.placement.executors if self.placement else ()) != executors.keys()

    def begin(self, seen: Seen) -> None:
        """Decide where workers run in an epoch; again, if an executor was lost in it."""
        self._become(self._state.begin(seen))
        self._epoch = seen.epoch
        self._is_told = False

    def decided(self, told: PlacementRecord | None) -> None:
        """The epoch has begun; a replay's intent, and what it told, may be of an earlier driver."""
        self._is_told = told == self._state.record()

    def published(self, epoch: Epoch, executors: Mapping[WorkerId, ExecutorId]) -> None:
        """An epoch is published, in which workers ran on `executors`."""
        self._become(self._state.published(epoch, executors))

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

    def ask(self, worker: WorkerId, executor: ExecutorId) -> HandoverState:
        """Accept a handover, or raise RefusedError."""
        self._become(self._state.ask(worker, executor))
        return self._state.handovers[-1]

    def drain(self, executor: ExecutorId) -> None:
        """Accept that an executor is to have no workers and replicas, or raise RefusedError."""
        self._become(self._state.drain(executor))

    def replicas(self) -> Replicas:
        """What executors say of the replicas that they keep."""
        reports = read_reports(self._files, self._generation)
        with self._monitor:
            self._addresses = {one: report.address for one, report in reports.items()}
        return {one: report.workers for one, report in reports.items()}

    def _become(self, state: PlacementState) -> None:
        known = {handover.id for handover in self._state.past}
        for handover in state.past:
            if handover.id not in known:
                log.info("%s", handover)
        self._state = state


def bytes_by_worker(trees: Trees, routings: Mapping[str, Routing]) -> list[float]:
    """The bytes of each worker's state over all operators, estimated."""
    total = np.zeros(max(routing.workers for routing in routings.values()))
    for name, routing in routings.items():
        sizes = bytes_by_bin(trees[name].values(), routing.bins)
        total[: routing.workers] += np.bincount(routing.owners, sizes, routing.workers)
    return total.tolist()


def new_workers_origins(
    before: Mapping[str, Routing], goals: Mapping[str, Routing]
) -> dict[WorkerId, Counter[WorkerId]]:
    """The workers from which those get bins that were none before, and how many."""
    found: dict[WorkerId, Counter[WorkerId]] = {}
    for name, goal in goals.items():
        had = before[name].with_bins(goal.bins)
        for worker in map(WorkerId, range(had.workers, goal.workers)):
            origins = had.owners[goal.owners == worker].tolist()
            found.setdefault(worker, Counter()).update(map(WorkerId, origins))
    return found
