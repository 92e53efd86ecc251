"""What is asked of a query while it runs, and what becomes of it."""

import threading
from collections.abc import Callable, Iterable

from godwit.driver.merges import Trees
from godwit.driver.placements import Placements
from godwit.driver.timelines import Timelines
from godwit.errors import RefusedError
from godwit.inspect.report import ReplicaReport
from godwit.inspect.sizes import Sizes, bytes_by_bin
from godwit.log.journal import Journal
from godwit.log.manifest import Manifest
from godwit.migration.migration import EndedMigration, MigrationPhase
from godwit.migration.strategies import Paced, Strategy
from godwit.migration.timeline import Timeline
from godwit.model.requests import (
    AbortRequest,
    FinishRequest,
    MigrateRequest,
    OnTimeout,
    OperatorRequest,
    ScheduleRequest,
    Updates,
    Wish,
)
from godwit.model.routing import Routing, Update
from godwit.operators.base import Operator
from godwit.placement.handover import HandoverState
from godwit.placement.slots import Placement, Replicas

INITIAL = -1  # the epoch that loads a state given at the start


class Control:
    """The part of a driver that others than the query's own thread call.

    Whatever it shares with the life of epochs is read and changed under `_changed`, which wakes
    those who wait.
    """

    def __init__(
        self,
        operators: dict[str, Operator],
        journal: Journal,
        timelines: Timelines,
        places: Placements,
        last: Manifest | None,
        trees: Trees,
        clock: Callable[[], float],
    ) -> None:
        self.operators = operators
        self._journal = journal
        self._timelines = timelines
        self._placements = places
        self._last = last
        self._trees = trees
        self._clock = clock
        self._changed = threading.Condition()
        self._closed = self._unhurried = False

    def tick(self) -> None:
        """Ask for another epoch."""
        self._journal.tick()

    def timeline(self, operator: str) -> Timeline:
        """What is decided for an operator: its routing in the newest epoch that has begun (or in
        the first, if none has), and what is to come."""
        with self._changed:
            return self._timelines[operator]

    def routing(self, operator: str) -> Routing:
        """The routing of the newest epoch that has begun (or of the first, if none has)."""
        return self.timeline(operator).routing

    def schedule(
        self, operator: str, updates: Iterable[Update], workers: int | None = None
    ) -> ScheduleRequest:
        """Accept updates for epochs that have not begun, durably; or refuse them all."""
        packed = Updates.of(updates)
        first = packed[0].epoch if packed else 0
        request = self._ask(
            operator,
            lambda timeline: ScheduleRequest(
                0, operator, first, packed, timeline.routing.bins, workers
            ),
        )
        assert isinstance(request, ScheduleRequest)
        return request

    def wish(self, epoch: int, wishes: Iterable[Wish]) -> None:
        """Take updates that `epoch` read as data as requests, each once; they are for later epochs.

        Those that name no operator are for all. Like requests of other processes they are judged
        when they are taken in: the intent of the next epoch says which were refused.
        """
        with self._changed:
            for wish in wishes:
                updates = [Update(epoch + 1 if e is None else e, b, w) for e, b, w in wish.updates]
                packed = Updates.of(updates)
                first = packed[0].epoch if packed else epoch + 1
                for name in [wish.operator] if wish.operator else self.operators:
                    known = name in self.operators
                    bins = self._timelines[name].routing.bins if known else 1
                    self._timelines.add(
                        ScheduleRequest(0, name, first, packed, bins, wish.workers, wish.id)
                    )

    def migrate(
        self,
        operator: str,
        target: Routing,
        *,
        strategy: Strategy | None = None,
        deadline: float | None = None,
        on_timeout: OnTimeout = "finish",
        supersede: bool = False,
    ) -> MigrateRequest:
        """Accept a migration to `target`, durably, or refuse it; `deadline` is in seconds."""
        now = self._clock()
        request = self._ask(
            operator,
            lambda timeline: MigrateRequest(
                0,
                operator,
                timeline.routing,
                target,
                str(strategy or Paced()),
                now,
                None if deadline is None else now + deadline,
                on_timeout,
                supersede,
            ),
        )
        assert isinstance(request, MigrateRequest)
        return request

    def abort(self, operator: str, migration: int, *, rollback: bool = False) -> None:
        """End an open migration after the steps that have begun, or move its bins back."""
        self._ask(operator, lambda _: AbortRequest(0, operator, migration, rollback))

    def handover(self, worker: int, executor: str) -> HandoverState:
        """Accept that a worker is to run on another executor, or refuse it."""
        with self._changed:
            handover = self._placements.ask(worker, executor)
        self.tick()
        return handover

    def drain(self, executor: str) -> None:
        """Accept that an executor is to have no workers and replicas any more, or refuse it."""
        with self._changed:
            self._placements.drain(executor)
        self.tick()

    def handover_now(self, number: int) -> HandoverState | None:
        """A handover as it is now, unless it is long past."""
        with self._changed:
            return self._placements.state.find(number)

    def draining(self, executor: str) -> str:
        """What has become of the wish to drain an executor: 'open', 'done' or 'failed'."""
        with self._changed:
            state = self._placements.state
            if state.is_drained(executor):
                return "done"
            return "open" if executor in state.drained else "failed"

    @property
    def placement(self) -> Placement | None:
        """Of the newest epoch that has begun; None where workers are not pinned."""
        with self._changed:
            return self._placements.placement

    @property
    def handovers(self) -> tuple[HandoverState, ...]:
        """Those that are open."""
        with self._changed:
            return self._placements.state.handovers

    def replicas(self) -> Replicas:
        """What executors say of the replicas that they keep."""
        return self._placements.progress()

    def replica_reports(self) -> list[ReplicaReport]:
        """How far the replicas are, as of the newest published epoch."""
        placement, last = self.placement, self._last
        if placement is None or last is None:
            return []
        return ReplicaReport.all(last.epoch, placement, self.replicas())

    def let_end(self) -> None:
        """Run no more epochs for requests alone: what is open goes on at the next start."""
        self._timed()
        self._unhurried = True

    def finish(self) -> int:
        """End the stream: let all timers fire in the next epoch, whose number this returns."""
        timed = self._timed()
        for name in timed:
            self._ask(name, lambda timeline: FinishRequest(0, timeline.operator))
        with self._changed:
            return max(self._timelines[name].finish or 0 for name in timed)

    def _timed(self) -> list[str]:
        timed = [name for name, operator in self.operators.items() if operator.delay is not None]
        if not timed:
            raise RefusedError("no operator of this query has event time: there is nothing to end")
        return timed

    def sizes(self, operator: str) -> Sizes:
        """The bytes of state of each bin, estimated."""
        with self._changed:
            bins = self._timelines[operator].routing.bins
            return bytes_by_bin(self._trees[operator].values(), bins)

    def pace(self) -> float | None:
        """The median time from one of the last epochs to the next, in seconds."""
        return self._journal.pace()

    def outcome(self, migration: int) -> MigrationPhase | None:
        """How a migration ended, once its last epoch is published; None as long as it is open."""
        with self._changed:
            ended = self._timelines.ends.get(migration)
            return ended.phase if ended and self._is_published(ended.epoch) else None

    def ended(self, migration: int) -> EndedMigration | None:
        """What has become of a migration, if it has ended."""
        with self._changed:
            return self._timelines.ends.get(migration)

    def is_dropped(self, schedule: int) -> bool:
        """Was a schedule given up before its last update?"""
        with self._changed:
            return schedule in self._timelines.dropped

    def open_request(self, operator: str) -> MigrateRequest | None:
        """The request of an operator's open migration."""
        migration = self.timeline(operator).migration
        request = self._journal.requests.request(migration.id) if migration else None
        assert request is None or isinstance(request, MigrateRequest)
        return request

    def wait(self, epoch: int, timeout: float | None = None) -> bool:
        """Wait until `epoch` is published; False if the query ends or `timeout` passes before."""
        return self.wait_for(lambda: self._is_published(epoch), timeout)

    def wait_for(self, happened: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until something has `happened`; False if it has not by the end of the query."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or happened(), timeout)
            return happened()

    def wake(self) -> None:
        """Something has happened: let those who wait look."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """The query has ended: wake those who wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_published(self, epoch: int) -> bool:
        """Before the first epoch there is nothing to publish."""
        return epoch <= INITIAL or (self._last is not None and self._last.epoch >= epoch)

    def _ask(self, operator: str, make: Callable[[Timeline], OperatorRequest]) -> OperatorRequest:
        with self._changed:
            request = self._timelines.ask(operator, make)
            self._changed.notify_all()
        self.tick()
        return request
