"""The life of placements, without I/O: what is seen at an epoch, and what follows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from godwit.errors import RefusedError
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.placement.handover import HandoverStage, HandoverState, Homes
from godwit.placement.replica_packing import place_replicas
from godwit.placement.slots import Placement, Replicas, by_worker

LAG: Final = 2  # epochs; a replica that lacks no more than what these wrote is up to date
PAST_HANDOVERS: Final = 20  # handovers that are remembered
STALLED_EPOCHS: Final = 100  # epochs that a handover goes on without coming nearer to its end


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """What an intent says of a placement: with the handovers, open ones first, and the executors
    that are `drained`."""

    placement: Placement
    handovers: tuple[HandoverState, ...] = ()
    drained: tuple[ExecutorId, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            **self.placement.to_json(),
            "handovers": [handover.to_json() for handover in self.handovers],
            "drained": self.drained,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        handovers = tuple(map(HandoverState.from_json, data["handovers"]))
        return cls(Placement.from_json(data), handovers, tuple(data["drained"]))


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known when an epoch is decided, or when an executor was lost in it.

    `executors` are those that live, with their hosts, `held` is what they say of replicas, `sizes`
    the bytes of each worker's state. `origins` are the workers from which a new one gets bins, and
    how many.
    """

    epoch: Epoch
    executors: Mapping[ExecutorId, str]
    held: Replicas
    sizes: Sequence[float]
    origins: Mapping[WorkerId, Mapping[WorkerId, int]] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        return len(self.sizes)

    def freshness(self, executor: ExecutorId, worker: WorkerId) -> tuple[int, int] | None:
        """Comparable: which epoch an executor has of a worker, if that is known."""
        held = self.held.get(executor, {}).get(worker)
        return None if held is None or held.epoch is None else (held.epoch, -held.lacking)

    def is_fresh(self, executor: ExecutorId, worker: WorkerId) -> bool:
        """Has the executor all of the worker's state but for what the last epochs wrote?"""
        freshness = self.freshness(executor, worker)
        return freshness is not None and freshness[0] >= self.epoch - 1 - LAG


@dataclass(frozen=True, slots=True)
class PlacementState:
    """The placement of a query's workers, what is to become of it, and how many replicas they have.

    A worker stays where it is until its executor is lost, or until a handover has brought its state
    elsewhere. One that lost its executor goes to the one with the newest replica of its state; it
    never waits. Replicas of which nothing is known are never used.
    """

    copies: int
    placement: Placement | None = None
    handovers: tuple[HandoverState, ...] = ()  # open ones, at most one a worker
    past: tuple[HandoverState, ...] = ()
    drained: frozenset[ExecutorId] = field(default_factory=frozenset)
    settling: bool = False  # executors or workers came or went, and workers may not be even
    version: int = 0  # of the last placement that there was
    _last: int = 0  # the id of the last handover

    def ask(self, worker: WorkerId, target: ExecutorId) -> Self:
        """Accept a handover of a worker, in the place of one that is being built; or refuse it."""
        placement = self._known()
        if not 0 <= worker < len(placement.slots):
            raise RefusedError(f"there is no worker {worker}; there are {len(placement.slots)}")
        self._check(target)
        if placement.homes[worker] == target:
            raise RefusedError(f"worker {worker} is on executor {target} already")
        if target in self.drained:
            raise RefusedError(f"executor {target} is drained: it gets no workers")
        state = replace(self._superseded(worker), settling=False)
        return state._opened(worker, target, placement.homes[worker])

    def drain(self, executor: ExecutorId) -> Self:
        """Let an executor have neither workers nor replicas, as soon as others have them."""
        placement = self._known()
        self._check(executor)
        if not set(placement.executors) - self.drained - {executor}:
            raise RefusedError(f"executor {executor} is the last one that is not drained")
        return replace(self, drained=self.drained | {executor})

    def begin(self, seen: Seen) -> Self:
        """Decide the placement of an epoch; again in the same epoch, if an executor was lost."""
        if not seen.executors:
            state = self
            for handover in self.handovers:
                state = state._closed(handover.failed("there are no executors"))
            return replace(state, placement=None)
        drained = self.drained & seen.executors.keys()
        if len(drained) == len(seen.executors):
            drained = frozenset()
        homes = self._survivors(seen)
        known = self.placement
        same = known and (len(known.slots), {*known.executors}) == (seen.workers, {*seen.executors})
        settling = self.settling or not same
        state = replace(self, drained=drained, settling=settling)._advanced(seen, homes)
        state = replace(state, settling=state.settling or not same)
        workers = [*map(WorkerId, range(seen.workers))]
        for worker in workers:
            if worker not in homes:
                homes[worker] = state._refuge(seen, worker, homes)
        order = [homes[worker] for worker in workers]
        state = state._relieved(seen, order)
        return state._placed(seen, order, state._replicas(seen, order))

    def published(self, epoch: Epoch, executors: Homes) -> Self:
        """An epoch is published, in which workers ran at `executors`."""
        state = self
        for handover in self.handovers:
            if not (now := handover.published(epoch, executors)).is_open:
                state = state._closed(now)
        return state

    def record(self) -> "PlacementRecord | None":
        """What an intent says of it, if workers are pinned."""
        if self.placement is None:
            return None
        handovers = tuple(handover.record() for handover in (*self.handovers, *self.past))
        return PlacementRecord(self.placement, handovers, tuple(sorted(self.drained)))

    def find(self, number: int) -> HandoverState | None:
        """The handover of this id, unless it is long past."""
        return next((h for h in (*self.handovers, *self.past) if h.id == number), None)

    def can_go_on(self, epoch: Epoch, held: Replicas) -> bool:
        """Would a handover come nearer to its end in this epoch, by what executors have now?"""
        executors = dict.fromkeys(self.placement.executors if self.placement else (), "")
        seen = Seen(epoch, executors, held, ())
        return any(
            handover.stage is HandoverStage.SWITCHED
            or seen.is_fresh(handover.target, handover.worker)
            for handover in self.handovers
        )

    def is_drained(self, executor: ExecutorId) -> bool:
        """Has an executor no workers, nor any that have just left and may come back?

        Copies that lay there may not be complete elsewhere yet.
        """
        homes = self.placement.homes if self.placement else ()
        leaving = {h.origin for h in self.handovers if h.stage is HandoverStage.SWITCHED}
        return executor not in {*homes, *leaving}

    # -- parts ---------------------------------------------------------------------------------

    def _survivors(self, seen: Seen) -> dict[WorkerId, ExecutorId]:
        """The workers whose executors live, with these."""
        before = self.placement.homes if self.placement else ()
        known = by_worker(before[: seen.workers])
        return {worker: home for worker, home in known if home in seen.executors}

    def _advanced(self, seen: Seen, homes: dict[WorkerId, ExecutorId]) -> Self:
        """Handovers go on: they fail, or the worker's home becomes the target."""
        state = self
        for handover in self.handovers:
            worker, target = handover.worker, handover.target
            if worker >= seen.workers:
                state = state._closed(handover.failed(f"worker {worker} was retired"))
            elif target not in seen.executors:
                state = state._closed(handover.failed(f"executor {target} was lost"))
            elif handover.stalled > STALLED_EPOCHS:
                state = state._given_up(handover)
            elif handover.stage is HandoverStage.SWITCHED:
                homes[worker] = target
                state = state._with(handover.waited(None))
            elif target in self.drained:
                state = state._closed(handover.failed(f"executor {target} is drained"))
            elif seen.is_fresh(target, worker) or self._flees(seen, handover, homes):
                homes[worker] = target
                switched = replace(handover, stage=HandoverStage.SWITCHED, epoch=seen.epoch)
                state = state._with(switched)
            elif worker not in homes:
                state = state._closed(handover.failed("the executor that it ran on was lost"))
            else:
                held = seen.held.get(target, {}).get(worker)
                state = state._with(handover.waited(held.lacking if held else None))
        return state

    def _given_up(self, handover: HandoverState) -> Self:
        """One that does not end: nobody tries it again before executors or workers come or go, and
        the executor that it was to relieve is not drained any more."""
        state = self._closed(
            handover.failed(
                f"executor {handover.target} does not get its state: it has no room for it "
                "(cache_bytes), or no keeper"
                if handover.stage is HandoverStage.BUILDING
                else f"Spark does not run it on executor {handover.target} (spark.locality.wait)"
            )
        )
        return replace(state, drained=self.drained - {handover.origin}, settling=False)

    def _flees(self, seen: Seen, handover: HandoverState, homes: Homes) -> bool:
        """Has the worker lost its executor, and is the target the best refuge?"""
        worker = handover.worker
        return worker not in homes and self._refuge(seen, worker, homes) == handover.target

    def _refuge(self, seen: Seen, worker: WorkerId, homes: Homes) -> ExecutorId:
        """Where a worker without a home goes: to the newest replica, or where there are fewest; a
        new one among these to where most of its bins are to come from, or have a replica."""
        workers, origins = Counter(homes.values()), seen.origins.get(worker, {})

        def merit(executor: ExecutorId) -> tuple[tuple[bool, tuple[int, int]], bool, int, int]:
            newest = seen.freshness(executor, worker)
            known = newest is not None, newest or (0, 0)
            here = sum(
                bins
                for origin, bins in origins.items()
                if homes.get(origin) == executor or seen.is_fresh(executor, origin)
            )
            return known, executor not in self.drained, -workers[executor], here

        return max(sorted(seen.executors), key=merit)

    def _relieved(self, seen: Seen, homes: Sequence[ExecutorId]) -> Self:
        """Open the handovers that nobody asks for: from drained executors, and, after executors or
        workers came or went, from those that have more than their share of workers."""
        state = self
        able = [executor for executor in seen.executors if executor not in self.drained]
        share = -(-seen.workers // len(able))
        goals = dict(by_worker(homes)) | {h.worker: h.target for h in self.handovers}
        for worker in goals.keys() - {handover.worker for handover in self.handovers}:
            home, count = homes[worker], Counter(goals.values())
            if home in self.drained:
                targets = able
            elif self.settling and count[home] > share:
                targets = [one for one in able if count[one] < share]
            else:
                continue
            if targets:
                goals[worker] = min(
                    targets, key=lambda one: (count[one], not seen.is_fresh(one, worker), one)
                )
                state = state._opened(worker, goals[worker], home, automatic=True)
        open_ones = any(h.automatic for h in state.handovers)
        return replace(state, settling=self.settling and open_ones)

    def _replicas(self, seen: Seen, homes: Sequence[ExecutorId]) -> list[tuple[ExecutorId, ...]]:
        """Copies for all, where handovers lead to, and where they were until the new ones are
        there."""
        before = _had(self.placement) if self.placement else []
        chosen = self._chosen(seen, homes, before)
        targets = {handover.worker: handover.target for handover in self.handovers}
        replicas = []
        for worker, home in by_worker(homes):
            wanted = [*chosen[worker]]
            target = targets.get(worker, home)
            if target != home and target not in wanted:
                wanted.append(target)
            if not all(seen.is_fresh(executor, worker) for executor in chosen[worker]):
                known = before[worker] if worker < len(before) else ()
                wanted += [
                    executor
                    for executor in known
                    if executor in seen.executors
                    and executor not in (home, *wanted)
                    and seen.is_fresh(executor, worker)
                ]
            replicas.append(tuple(wanted))
        return replicas

    def _chosen(
        self, seen: Seen, homes: Sequence[ExecutorId], before: Sequence[tuple[ExecutorId, ...]]
    ) -> list[tuple[ExecutorId, ...]]:
        """They stay as long as executors and workers do, however sizes change."""
        able = {e: host for e, host in seen.executors.items() if e not in self.drained}
        known = self.placement
        now = tuple(homes), tuple(sorted(seen.executors))
        if known and now == (known.homes, known.executors):
            chosen = [replicas[: self.copies] for replicas in known.replicas]
            if all(executor in able for replicas in chosen for executor in replicas):
                return chosen
        return place_replicas(homes, seen.sizes, able, self.copies, before)

    def _placed(
        self, seen: Seen, homes: Sequence[ExecutorId], replicas: Iterable[tuple[ExecutorId, ...]]
    ) -> Self:
        placement = Placement.of(self.version, sorted(seen.executors), homes, replicas)
        if placement != self.placement:
            placement = replace(placement, version=self.version + 1)
        return replace(self, placement=placement, version=placement.version)

    def _known(self) -> Placement:
        if self.placement is None:
            raise RefusedError(
                "this query's workers are not pinned to executors: that needs a cluster, and Spark "
                "started with spark.shuffle.reduceLocality.enabled=false"
            )
        return self.placement

    def _check(self, executor: ExecutorId) -> None:
        executors = self._known().executors
        if executor not in executors:
            raise RefusedError(
                f"there is no executor {executor!r}; there are {', '.join(executors)}"
            )

    def _superseded(self, worker: WorkerId) -> Self:
        known = next((h for h in self.handovers if h.worker == worker), None)
        return self if known is None else self._closed(known.failed("superseded"))

    def _opened(
        self, worker: WorkerId, target: ExecutorId, origin: ExecutorId, *, automatic: bool = False
    ) -> Self:
        handover = HandoverState(self._last + 1, worker, target, automatic=automatic, origin=origin)
        return replace(self, handovers=(*self.handovers, handover), _last=handover.id)

    def _with(self, handover: HandoverState) -> Self:
        changed = tuple(handover if h.id == handover.id else h for h in self.handovers)
        return replace(self, handovers=changed)

    def _closed(self, handover: HandoverState) -> Self:
        rest = tuple(h for h in self.handovers if h.id != handover.id)
        return replace(self, handovers=rest, past=(*self.past, handover)[-PAST_HANDOVERS:])


def _had(placement: Placement) -> list[tuple[ExecutorId, ...]]:
    """Which executors have files of each worker: those with replicas, and its own."""
    return [
        (*replicas, home)
        for replicas, home in zip(placement.replicas, placement.homes, strict=True)
    ]
