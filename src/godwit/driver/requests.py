"""What others than the query's own thread ask of it while it runs, and what becomes of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from godwit.driver.demand import Demand
from godwit.driver.monitor import Monitor
from godwit.driver.placements import Placements
from godwit.driver.published import Published
from godwit.driver.timelines import Timelines
from godwit.errors import RefusedError
from godwit.log.journal import Journal
from godwit.migration.migration import MigrationPhase
from godwit.migration.strategies import Paced, Strategy
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
    parts_of,
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
        self, operator: str | None, updates: Iterable[Update], workers: int | None = None
    ) -> ScheduleRequest:
        """Accept updates for epochs that have not begun, durably; or refuse them all.

        Those of all operators are for the bins of the first: one that has others refuses. Returns
        the request of the first.
        """
        packed = Updates.of(updates)
        first = Epoch(packed[0].epoch if packed else 0)
        names = self._named(operator)

        def make() -> list[OperatorRequest]:
            bins = self._timelines[names[0]].routing.bins
            return [ScheduleRequest(0, name, first, packed, bins, workers) for name in names]

        request = self._ask(make)[0]
        assert isinstance(request, ScheduleRequest)
        return request

    def add_streamed(self, epoch: Epoch, streamed: Iterable[StreamedUpdates]) -> None:
        """Take updates that `epoch` read as data as requests, each once; they are for later epochs.

        Those that name no operator are for all, or for none if one refuses. Like requests of other
        processes they are judged when they are taken in: the intent of the next epoch says which
        were refused.
        """
        with self._monitor:
            for one in streamed:
                updates = [Update(epoch + 1 if e is None else e, b, w) for e, b, w in one.updates]
                packed = Updates.of(updates)
                first = Epoch(packed[0].epoch if packed else epoch + 1)
                names = self._named(one.operator)
                known = names[0] in self._operators
                bins = self._timelines[names[0]].routing.bins if known else 1
                self._timelines.add(
                    [
                        ScheduleRequest(0, name, first, packed, bins, one.workers, one.id)
                        for name in names
                    ]
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
        return self.migrate_together(
            {operator: target},
            strategy=strategy,
            deadline=deadline,
            on_timeout=on_timeout,
            supersede=supersede,
        )[0]

    def migrate_together(
        self,
        targets: Mapping[str, Routing],
        *,
        strategy: Strategy | None = None,
        deadline: float | None = None,
        on_timeout: OnTimeout = "finish",
        supersede: bool = False,
    ) -> tuple[MigrateRequest, ...]:
        """Accept one migration of several operators, each to its target, or refuse it for all."""
        now = self._clock()
        until = None if deadline is None else now + deadline
        text = str(strategy or Paced())

        def make() -> list[OperatorRequest]:
            return [
                MigrateRequest(
                    0,
                    name,
                    self._timelines[name].routing,
                    target,
                    text,
                    now,
                    until,
                    on_timeout,
                    supersede,
                )
                for name, target in targets.items()
            ]

        return tuple(part for part in self._ask(make) if isinstance(part, MigrateRequest))

    def abort(self, operator: str | None, migration: int, *, rollback: bool = False) -> None:
        """End an open migration after the steps that have begun, or move its bins back; without an
        operator, in all where it is open."""

        def make() -> list[OperatorRequest]:
            if operator is None:
                ended = list(self._timelines.ended(migration))
                names = self._timelines.moving(migration) or (ended or self._named(None))[:1]
            else:
                names = [operator]
            return [AbortRequest(0, name, migration, rollback) for name in names]

        self._ask(make)

    def split(self, operator: str | None, bins: int) -> None:
        """Split bins into so many, or merge them, durably; or refuse it."""
        names = self._named(operator)
        self._ask(lambda: [SplitRequest(0, name, bins) for name in names])

    def migration(self, id: int) -> tuple[MigrateRequest, ...]:
        """What a migration is of each operator, given its id; without those that are gone."""
        return tuple(
            part
            for part in parts_of(self._journal.requests.request(id))
            if isinstance(part, MigrateRequest) and part.operator in self._operators
        )

    def outcome(self, migration: int) -> MigrationPhase | None:
        """How a migration ended, once its last epoch is published; None as long as it is open.

        One of several operators is done if it is done in all, and else ended as in the first where
        it is not.
        """
        with self._monitor:
            ends = self._timelines.ended(migration).values()
            is_over = all(self._published.has(ended.epoch) for ended in ends)
            if not ends or not is_over or self._timelines.moving(migration):
                return None
            others = [ended.phase for ended in ends if ended.phase is not MigrationPhase.DONE]
            return [*others, MigrationPhase.DONE][0]

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
        self._ask(lambda: [FinishRequest(0, name) for name in timed])
        with self._monitor:
            return max(self._timelines[name].finish or Epoch(0) for name in timed)

    def _timed(self) -> list[str]:
        timed = [name for name, operator in self._operators.items() if operator.delay is not None]
        if not timed:
            raise RefusedError("no operator of this query has event time: there is nothing to end")
        return timed

    def _named(self, operator: str | None) -> list[str]:
        """The operators that a request is for: all, if it names none."""
        return list(self._operators) if operator is None else [operator]

    def _ask(self, make: Callable[[], Sequence[OperatorRequest]]) -> tuple[OperatorRequest, ...]:
        with self._monitor:
            parts = self._timelines.ask(make)
            self._monitor.wake()
        self._demand.tick()
        return parts
