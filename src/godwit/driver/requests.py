"""What others than the query's own thread ask of it while it runs, and what becomes of it."""

from collections.abc import Callable, Iterable, Mapping

from godwit.driver.demand import Demand
from godwit.driver.monitor import Monitor
from godwit.driver.placements import Placements
from godwit.driver.published import Published
from godwit.driver.timelines import Timelines
from godwit.errors import RefusedError
from godwit.log.journal import Journal
from godwit.migration.migration import MigrationPhase
from godwit.migration.strategies import Paced, Strategy
from godwit.migration.timeline import Timeline
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.model.requests import (
    AbortRequest,
    FinishRequest,
    MigrateRequest,
    OnTimeout,
    OperatorRequest,
    ScheduleRequest,
    SplitRequest,
    StreamedUpdates,
    Updates,
)
from godwit.model.routing import Routing, Update
from godwit.operators.base import Operator
from godwit.placement.handover import HandoverState


class Requests:
    """Requests of any thread: each is accepted or refused before the call returns.

    What is accepted about operators is durable, and takes effect in epochs that have not begun. A
    request is judged with all taken in that was asked before it, here or by other processes.
    """

    def __init__(
        self,
        operators: Mapping[str, Operator],
        journal: Journal,
        monitor: Monitor,
        timelines: Timelines,
        placements: Placements,
        published: Published,
        demand: Demand,
        clock: Callable[[], float],
    ) -> None:
        self._operators = operators
        self._journal = journal
        self._monitor = monitor
        self._timelines = timelines
        self._placements = placements
        self._published = published
        self._demand = demand
        self._clock = clock

    def schedule(
        self, operator: str, updates: Iterable[Update], workers: int | None = None
    ) -> ScheduleRequest:
        """Accept updates for epochs that have not begun, durably; or refuse them all."""
        packed = Updates.of(updates)
        first = Epoch(packed[0].epoch if packed else 0)
        request = self._ask(
            operator,
            lambda timeline: ScheduleRequest(
                0, operator, first, packed, timeline.routing.bins, workers
            ),
        )
        assert isinstance(request, ScheduleRequest)
        return request

    def add_streamed(self, epoch: Epoch, streamed: Iterable[StreamedUpdates]) -> None:
        """Take updates that `epoch` read as data as requests, each once; they are for later epochs.

        Those that name no operator are for all. Like requests of other processes they are judged
        when they are taken in: the intent of the next epoch says which were refused.
        """
        with self._monitor:
            for one in streamed:
                updates = [Update(epoch + 1 if e is None else e, b, w) for e, b, w in one.updates]
                packed = Updates.of(updates)
                first = Epoch(packed[0].epoch if packed else epoch + 1)
                for name in [one.operator] if one.operator else self._operators:
                    known = name in self._operators
                    bins = self._timelines[name].routing.bins if known else 1
                    self._timelines.add(
                        ScheduleRequest(0, name, first, packed, bins, one.workers, one.id)
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

    def split(self, operator: str, bins: int) -> None:
        """Split bins into so many, or merge them, durably; or refuse it."""
        self._ask(operator, lambda _: SplitRequest(0, operator, bins))

    def open_migration(self, operator: str) -> MigrateRequest | None:
        """The request of an operator's open migration."""
        migration = self._timelines[operator].migration
        request = self._journal.requests.request(migration.id) if migration else None
        assert request is None or isinstance(request, MigrateRequest)
        return request

    def outcome(self, migration: int) -> MigrationPhase | None:
        """How a migration ended, once its last epoch is published; None as long as it is open."""
        with self._monitor:
            ended = self._timelines.ended(migration)
            return ended.phase if ended and self._published.has(ended.epoch) else None

    def handover(self, worker: WorkerId, executor: ExecutorId) -> HandoverState:
        """Accept that a worker is to run on another executor, or refuse it."""
        with self._monitor:
            handover = self._placements.ask(worker, executor)
        self._demand.tick()
        return handover

    def drain(self, executor: ExecutorId) -> None:
        """Accept that an executor is to have no workers and replicas any more, or refuse it."""
        with self._monitor:
            self._placements.drain(executor)
        self._demand.tick()

    def let_end(self) -> None:
        """Run no more epochs for requests alone, as the stream is to end; or refuse it."""
        self._timed()
        self._demand.ignore_requests()

    def finish(self) -> Epoch:
        """End the stream: let all timers fire in the next epoch, whose number this returns."""
        timed = self._timed()
        for name in timed:
            self._ask(name, lambda timeline: FinishRequest(0, timeline.operator))
        with self._monitor:
            return max(self._timelines[name].finish or Epoch(0) for name in timed)

    def _timed(self) -> list[str]:
        timed = [name for name, operator in self._operators.items() if operator.delay is not None]
        if not timed:
            raise RefusedError("no operator of this query has event time: there is nothing to end")
        return timed

    def _ask(self, operator: str, make: Callable[[Timeline], OperatorRequest]) -> OperatorRequest:
        with self._monitor:
            request = self._timelines.ask(operator, make)
            self._monitor.wake()
        self._demand.tick()
        return request
