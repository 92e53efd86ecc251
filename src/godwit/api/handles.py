"""The handles of what was asked of a running query."""

import time
from dataclasses import dataclass, field
from typing import ClassVar

from godwit.driver.driver import Driver
from godwit.inspect.sizes import seconds_left
from godwit.migration.strategies import left
from godwit.model.ids import ExecutorId
from godwit.model.requests import MigrateRequest, ScheduleRequest
from godwit.model.routing import Routing
from godwit.model.text import plural
from godwit.placement.handover import HandoverState


class Awaited:
    """Something that has an outcome, sooner or later."""

    __slots__ = ()
    _unfinished: ClassVar[tuple[str, ...]] = ("open",)
    _driver: Driver

    @property
    def outcome(self) -> str:
        raise NotImplementedError

    def wait(self, timeout: float | None = None) -> str:
        """Wait until it is over, the query ends or `timeout` seconds have passed."""
        self._driver.monitor.wait_for(lambda: self.outcome not in self._unfinished, timeout)
        return self.outcome


@dataclass(frozen=True, slots=True, repr=False)
class Migration(Awaited):
    """An accepted migration of one operator, or of several by the same request.

    It is durable: if the query ends first, it is *open* and goes on when the query starts again,
    unless that start gives another number of workers, or so few bins that some had to move, which
    overrules it.

    >>> migration = query.migrate(3, strategy="all-at-once")
    >>> migration.wait()
    'done'
    >>> query.routing().workers
    3
    """

    _driver: Driver
    _requests: tuple[MigrateRequest, ...]

    def __repr__(self) -> str:
        names = ", ".join(f"'{name}'" for name in self.operators)
        return (
            f"<Migration {self.id} of {names}: to {plural(self.target.workers, 'worker')}, "
            f"{self._requests[0].strategy}, {self.outcome}>"
        )

    @property
    def id(self) -> int:
        return self._requests[0].id

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators whose bins move."""
        return tuple(request.operator for request in self._requests)

    @property
    def target(self) -> Routing:
        """The routing that it was asked to move to; of several operators, that of the first."""
        return self._requests[0].target

    @property
    def outcome(self) -> str:
        """'open', or once its last epoch is published how it ended: 'done', 'aborted', 'rolled
        back', 'superseded' or 'overruled'. Of several operators it is 'done' if it is in all."""
        return str(self._driver.requests.outcome(self.id) or "open")

    @property
    def progress(self) -> "MigrationProgress":
        """How many of its bins are at its target, and what is left of it, or of the way back."""
        parts = [self._progress(name) for name in self.operators]
        seconds = [part.seconds_left for part in parts if part.outcome == "open"]
        known = [one for one in seconds if one is not None]
        return MigrationProgress(
            sum(part.arrived for part in parts),
            sum(part.bins for part in parts),
            self.outcome,
            sum(part.bytes_left for part in parts),
            max(known) if known and len(known) == len(seconds) else None,
        )

    def _progress(self, operator: str) -> "MigrationProgress":
        timeline = self._driver.timelines[operator]
        migration = timeline.migration
        if migration is None or migration.id != self.id:
            ended = self._driver.timelines.ended(self.id).get(operator)
            arrived, bins = (ended.arrived, ended.bins) if ended else (0, 0)
            return MigrationProgress(arrived, bins, "ended")
        total = len(left(migration.origin, migration.target))
        rest = left(timeline.routing, migration.goal)
        sizes = self._driver.published.sizes(operator, timeline.routing.bins)
        return MigrationProgress(
            total - len(left(timeline.routing, migration.target)),
            total,
            "open",
            round(sizes[rest].sum()),
            seconds_left(migration, timeline.routing, self._driver.journal.pace(), time.time()),
        )

    def abort(self, *, rollback: bool = False) -> None:
        """End it after the steps that have begun; with `rollback`, move its bins back. Of several
        operators, in all where it is open."""
        self._driver.requests.abort(None, self.id, rollback=rollback)


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """Of a migration: bins that have arrived, bins in all, its outcome so far, and an estimate of
    the bytes and seconds that are left.

    >>> migration = query.migrate(2, strategy="all-at-once")
    >>> outcome = migration.wait()
    >>> progress = migration.progress
    >>> progress.outcome, progress.arrived == progress.bins
    ('done', True)
    """

    arrived: int
    bins: int
    outcome: str
    bytes_left: int = 0
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Handover(Awaited):
    """An accepted handover of a worker to another executor.

    It is of this run of the query: executors, and what they hold, end with their application.

    >>> import godwit as gw
    >>> try:
    ...     handover = query.handover(0, "2")
    ... except gw.RefusedError as error:  # this query runs on one machine
    ...     print(str(error).partition(":")[0])
    this query's workers are not pinned to executors
    """

    _unfinished: ClassVar = ("building", "switched")
    _driver: Driver
    id: int

    def __repr__(self) -> str:
        return f"<{self._now() or f'Handover {self.id}: forgotten'}>"

    @property
    def outcome(self) -> str:
        """'building' while the target fetches the worker's state, 'switched' from the epoch on in
        which the worker runs there, 'done' when such an epoch is published; or 'failed'."""
        now = self._now()
        return "forgotten" if now is None else str(now.stage)

    @property
    def reason(self) -> str:
        """Why it failed, if it has."""
        now = self._now()
        return now.reason if now else ""

    def _now(self) -> HandoverState | None:
        return self._driver.placements.state.find(self.id)


@dataclass(frozen=True, slots=True)
class Draining(Awaited):
    """An executor that gives its workers away.

    >>> import godwit as gw
    >>> try:
    ...     draining = query.drain("2")
    ... except gw.RefusedError as error:  # this query runs on one machine
    ...     print(str(error).partition(":")[0])
    this query's workers are not pinned to executors
    """

    _driver: Driver = field(repr=False)
    executor: ExecutorId

    @property
    def outcome(self) -> str:
        """'open', 'done' when an epoch is published in which no worker ran there, or 'failed' when
        nobody could take them."""
        state = self._driver.placements.state
        if state.is_drained(self.executor):
            return "done"
        return "open" if self.executor in state.drained else "failed"


@dataclass(frozen=True, slots=True, repr=False)
class Scheduled(Awaited):
    """Accepted updates of one operator or of all, durable like a migration, which take effect at
    their epochs.

    >>> import godwit as gw
    >>> scheduled = query.schedule([gw.Update(query.epoch + 2, bin=0, worker=1)])
    >>> scheduled.wait()
    'done'
    """

    _driver: Driver
    _request: ScheduleRequest

    def __repr__(self) -> str:
        return (
            f"<Scheduled {plural(len(self._request.updates), 'update')}: up to epoch {self.epoch}, "
            f"{self.outcome}>"
        )

    @property
    def epoch(self) -> int:
        """The epoch of the last update."""
        return self._request.last

    @property
    def outcome(self) -> str:
        """'open', 'done' when the epoch of the last update is published, or 'superseded', which one
        operator of several is enough for."""
        if self._driver.timelines.is_dropped(self._request.id):
            return "superseded"
        return "done" if self._driver.published.has(self.epoch) else "open"
