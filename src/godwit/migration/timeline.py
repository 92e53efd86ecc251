"""Which routing an operator has in each epoch to come: requests taken in, epochs begun.

All requests end here, whoever made them and by whatever way, in the order of their ids. What is
taken in is never lost: the state after an epoch has begun is written down with its intent.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self, get_args

import numpy as np

from godwit.errors import ConfigError, RefusedError
from godwit.migration.migration import EndedMigration, MigrationState
from godwit.migration.strategies import NOTHING, Ready, sought
from godwit.model.ids import Epoch, WorkerId
from godwit.model.requests import (
    AbortRequest,
    FinishRequest,
    MigrateRequest,
    OnTimeout,
    OperatorRequest,
    ScheduleRequest,
    SplitRequest,
)
from godwit.model.routing import Routing, check_bins
from godwit.model.text import plural

PAST_MIGRATIONS = 20  # ended migrations that an operator remembers
HORIZON = 1000  # epochs that updates may be ahead: an idle query runs them all, empty


@dataclass(frozen=True, slots=True)
class Timeline:
    """One operator: `routing` is that of epoch `begun`, `migration` an open one.

    All are told in the bins of the epoch to come: who had a hash in epoch `begun` has it in
    `routing`, however bins were split and merged since. While a migration is open nothing is
    scheduled, and the other way round. `past` are the migrations that ended last, the newest at
    the end. A stream that has ended ends no more.
    """

    operator: str
    begun: Epoch
    routing: Routing
    scheduled: tuple[ScheduleRequest, ...] = ()
    migration: MigrationState | None = None
    past: tuple[EndedMigration, ...] = ()
    finish: Epoch | None = None  # the epoch from which on its stream has ended

    @property
    def is_open(self) -> bool:
        """Does something wait for epochs to come?"""
        finishing = self.finish is not None and not self.is_finished
        return bool(self.scheduled) or self.migration is not None or finishing

    @property
    def is_finished(self) -> bool:
        """Has its stream ended with the epoch that has begun?"""
        return self.finish is not None and self.finish <= self.begun

    @property
    def goal(self) -> Routing:
        """Where an open migration leads to, or where it is."""
        return self.routing if self.migration is None else self.migration.goal

    @property
    def way(self) -> tuple[int, Routing, Routing] | None:
        """Of an open migration: its id, where it is and where it leads to. Operators with the same
        take the same steps, as long as no other request parts them."""
        if self.migration is None:
            return None
        return self.migration.id, self.routing, self.migration.goal

    def sought(self) -> dict[WorkerId, list[int]]:
        """By worker: the segments that it fetches ahead of the steps of an open migration."""
        if self.migration is None or self.migration.strategy.fetch_seconds(0.0) is None:
            return {}
        return sought(self.routing, self.migration.goal)

    def take(self, request: OperatorRequest) -> Self:
        """With a request taken in; raises RefusedError, and then nothing has changed."""
        match request:
            case ScheduleRequest():
                return self._schedule(request)
            case MigrateRequest():
                return self._migrate(request)
            case AbortRequest():
                return self._abort(request)
            case SplitRequest():
                return self._split(request.bins)
            case FinishRequest():
                next_epoch = Epoch(self.begun + 1)
                return self if self.finish is not None else replace(self, finish=next_epoch)

    def begin(self, epoch: Epoch, now: float, ready: Ready = NOTHING) -> Self:
        """With the routing of `epoch`, which begins at the time `now`; one that has begun before is
        decided, and changes nothing."""
        if epoch <= self.begun:
            return self
        routing = _apply(self.routing, self.scheduled, epoch)
        later = tuple(request for request in self.scheduled if request.last > epoch)
        begun = replace(self, begun=epoch, routing=routing, scheduled=later)
        if self.migration is None:
            return begun
        migration, routing = self.migration.begin(epoch, routing, now, ready)
        return replace(begun, routing=routing)._with(migration)

    def restart(self, workers: int | None, bins: int | None) -> Self:
        """The query starts again. Bins that can merge only if some move, or a number of workers
        that nothing open leads to, overrule all requests. Else bins are split and merged as in a
        running query; without one of both numbers, what is there stays as it is."""
        bins = bins or self.routing.bins
        if workers in (None, self._workers_to_come):
            with suppress(RefusedError):
                return self._split(bins)
        routing = self.routing.with_bins(bins)
        has_moved = self.migration is not None and self.migration.origin != self.routing
        if workers is not None and (has_moved or workers != routing.workers):
            routing = Routing.even(bins, workers)
        overruled = (
            self if self.migration is None else self._with(self.migration.overrule(self.begun))
        )
        return replace(overruled, routing=routing, scheduled=())

    @property
    def _workers_to_come(self) -> int:
        """How many there are when all that is open has taken effect."""
        if self.migration is not None:
            return self.migration.goal.workers
        named = [request.workers for request in self.scheduled if request.workers is not None]
        return [self.routing.workers, *named][-1]

    def _with(self, migration: MigrationState) -> Self:
        """With the migration after an event: still open, or with those of the past."""
        if migration.is_open:
            return replace(self, migration=migration)
        ended = migration.summary(self.routing)
        return replace(self, migration=None, past=(*self.past, ended)[-PAST_MIGRATIONS:])

    def _schedule(self, request: ScheduleRequest) -> Self:
        if not request.updates:
            raise RefusedError("the request holds no update")
        first = request.updates[0].epoch
        if first <= self.begun:
            raise RefusedError(
                f"epoch {first} has begun; the earliest epoch for an update is {self.begun + 1}"
            )
        if request.last > self.begun + HORIZON:
            raise RefusedError(
                f"epoch {request.last} is too far ahead; the latest epoch for an update is "
                f"{self.begun + HORIZON}"
            )
        self._check_bins(request.bins)
        if self.migration is not None:
            raise RefusedError(f"{self._opened()}; wait for its end or abort it")
        scheduled = (*self.scheduled, request)
        _foresee(self.routing, scheduled, self.begun)
        return replace(self, scheduled=scheduled)

    def _migrate(self, request: MigrateRequest) -> Self:
        self._check_bins(request.target.bins)
        if self.scheduled and not request.supersede:
            last = max(schedule.last for schedule in self.scheduled)
            raise RefusedError(
                f"updates of operator '{self.operator}' are scheduled up to epoch {last}; "
                "migrate when they have taken effect, or supersede them with --supersede, in a "
                "program with supersede=True"
            )
        if self.migration is not None and not request.supersede:
            raise RefusedError(
                f"{self._opened()}; wait for its end ('godwit apply --queue' does), abort it, or "
                "supersede it with --supersede, in a program with supersede=True"
            )
        if request.origin != self.routing and not request.supersede:
            raise RefusedError(
                f"the plan was made for another routing than operator '{self.operator}' has now; "
                "plan again"
            )
        if request.on_timeout not in get_args(OnTimeout):
            raise RefusedError(
                f"on timeout a migration can finish or rollback, not '{request.on_timeout}'"
            )
        if request.deadline is not None and not request.time <= request.deadline < math.inf:
            raise RefusedError("a deadline is some seconds ahead")
        try:
            migration = MigrationState.of(request, self.routing)
        except ConfigError as error:  # an unknown strategy
            raise RefusedError(str(error)) from None
        if self.migration is not None:
            self = self._with(self.migration.supersede(self.begun))
        return replace(self, migration=migration, scheduled=())

    def _abort(self, request: AbortRequest) -> Self:
        migration = self.migration
        if migration is None or migration.id != request.migration:
            ends = {ended.id: ended.phase for ended in self.past}
            state = f"is {ends[request.migration]}" if request.migration in ends else "is unknown"
            raise RefusedError(
                f"migration {request.migration} of operator '{self.operator}' {state}; "
                "only an open one can be aborted"
            )
        return self._with(migration.abort(self.begun, request.rollback))

    def _split(self, bins: int) -> Self:
        check_bins(bins)
        if bins < self.routing.bins:
            self._check_merge(bins)
        return replace(
            self,
            routing=self.routing.with_bins(bins),
            scheduled=tuple(request.with_bins(bins) for request in self.scheduled),
            migration=self.migration.with_bins(bins) if self.migration else None,
        )

    def _check_merge(self, bins: int) -> None:
        """Raise RefusedError unless bins that become one have one worker, now and to come."""
        if self.scheduled:
            last = max(schedule.last for schedule in self.scheduled)
            raise RefusedError(
                f"updates of operator '{self.operator}' are scheduled up to epoch {last}; "
                "merge bins when they have taken effect"
            )
        told = [(self.routing, "are at workers", "migrate them to one of both first")]
        if self.migration is not None:
            wait = "wait for its end"
            told += [
                (self.migration.target, f"migration {self.migration.id} brings to workers", wait),
                (self.migration.origin, f"migration {self.migration.id} found at workers", wait),
            ]
        fewest = max(routing.fewest_bins for routing, *_ in told)
        for routing, why, what in told:
            parts = routing.owners.reshape(bins, -1)
            mixed = np.flatnonzero((parts != parts[:, :1]).any(axis=1))
            if len(mixed):
                first = int(mixed[0]) * parts.shape[1]
                other = first + int((parts[mixed[0]] != parts[mixed[0], 0]).argmax())
                raise RefusedError(
                    f"operator '{self.operator}' cannot have {plural(bins, 'bin')}: bins {first} "
                    f"and {other} of {self.routing.bins:,} would be one, which {why} "
                    f"{routing.owners[first]} and {routing.owners[other]}; ask for at least "
                    f"{plural(fewest, 'bin')}, or {what}"
                )

    def _opened(self) -> str:
        assert self.migration is not None
        return f"migration {self.migration.id} of operator '{self.operator}' is open"

    def _check_bins(self, bins: int) -> None:
        if bins != self.routing.bins:
            raise RefusedError(
                f"the target has {plural(bins, 'bin')}, operator '{self.operator}' has "
                f"{self.routing.bins:,}"
            )


def _foresee(routing: Routing, requests: Sequence[ScheduleRequest], begun: Epoch) -> None:
    """Raise RefusedError unless all updates for epochs after `begun` can be applied in turn."""
    epochs = {Epoch(int(epoch)) for r in requests for epoch in np.unique(r.updates.epochs)}
    for epoch in sorted(epochs):
        if epoch > begun:
            routing = _apply(routing, requests, epoch)


def _apply(routing: Routing, requests: Iterable[ScheduleRequest], epoch: Epoch) -> Routing:
    """`routing` with the updates for `epoch`, request by request."""
    for request in requests:
        if owners := request.updates.owners(epoch):
            workers = routing.workers if request.workers is None else request.workers
            routing = routing.assign(owners, workers)
    return routing
