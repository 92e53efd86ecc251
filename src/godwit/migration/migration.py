"""The life of a migration, from its acceptance to one of its ends.

============  ==========================  =======  ===================  ==========  =========
in phase      an epoch begins             abort    abort, rolling back  superseded  restarted
                                                                                    otherwise
============  ==========================  =======  ===================  ==========  =========
moving        a step; the last: done      aborted  returning            superseded  overruled
moving, late  all at once: done; or       aborted  returning            superseded  overruled
              a step back: returning
returning     a step back;                aborted  refused              superseded  overruled
              the last: rolled back
any end       nothing                     refused  refused              nothing     nothing
============  ==========================  =======  ===================  ==========  =========

*Late* is a migration whose deadline has passed; what happens then was declared with it. *Restarted
otherwise* is a start of the query with another number of workers, or with bins that can merge only
if some move; any other restart changes nothing, since all that a migration is can be read from the
intent of the newest epoch. Bins that split or merge leave it in its phase: where it comes from,
where it leads and where it is are then told in other bins, and every hash keeps its worker in each.
"""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self

import numpy as np

from godwit.errors import RefusedError
from godwit.migration.strategies import NOTHING, AllAtOnce, Ready, Strategy, left, parse
from godwit.model.ids import Epoch
from godwit.model.requests import MigrateRequest, OnTimeout
from godwit.model.routing import Routing
from godwit.model.text import plural


class MigrationPhase(StrEnum):
    """Where a migration is in its life."""

    MOVING = "moving"
    RETURNING = "returning"
    DONE = "done"
    ABORTED = "aborted"
    ROLLED_BACK = "rolled back"
    SUPERSEDED = "superseded"
    OVERRULED = "overruled"


OPEN = (MigrationPhase.MOVING, MigrationPhase.RETURNING)


@dataclass(frozen=True, slots=True)
class MigrationState:
    """One operator on its way from `origin` to `target`; times are seconds since 1970.

    `stepped` is the epoch of its last step, or its first epoch if there was no step yet; `ended` is
    the last epoch that began before its end. It is `rebased` if its origin is not the one that it
    was asked for: the migration that it supersedes had gone on.
    """

    id: int
    operator: str
    origin: Routing
    target: Routing
    strategy: Strategy
    accepted: float
    deadline: float | None = None
    on_timeout: OnTimeout = "finish"
    phase: MigrationPhase = MigrationPhase.MOVING
    stepped: Epoch | None = None
    ended: Epoch | None = None
    rebased: bool = False

    @property
    def is_open(self) -> bool:
        return self.phase in OPEN

    @property
    def goal(self) -> Routing:
        """Where it is moving to now."""
        return self.origin if self.phase is MigrationPhase.RETURNING else self.target

    def begin(
        self, epoch: Epoch, routing: Routing, now: float, ready: Ready = NOTHING
    ) -> tuple[Self, Routing]:
        """An epoch begins: the migration after its step, and the routing of the epoch."""
        if not self.is_open:
            return self, routing
        strategy = self.strategy
        late = self.deadline is not None and now >= self.deadline
        if late and self.phase is MigrationPhase.MOVING:
            if self.on_timeout == "rollback":
                return replace(self, phase=MigrationPhase.RETURNING).begin(
                    epoch, routing, now, ready
                )
            strategy = AllAtOnce()
        waited = None if self.stepped is None else epoch - self.stepped - 1
        bins = strategy.step(routing, self.goal, waited, ready)
        stepped = epoch if len(bins) or self.stepped is None else self.stepped
        routing = routing.toward(self.goal, bins)
        if len(left(routing, self.goal)):
            return replace(self, stepped=stepped), routing
        end = (
            MigrationPhase.ROLLED_BACK
            if self.phase is MigrationPhase.RETURNING
            else MigrationPhase.DONE
        )
        return replace(self, stepped=stepped, phase=end, ended=epoch), routing

    def abort(self, epoch: Epoch, rollback: bool) -> Self:
        """Stop after the steps that have begun, or move back what was moved."""
        if not self.is_open:
            raise RefusedError(f"migration {self.id} has ended: it is {self.phase}")
        if not rollback:
            return replace(self, phase=MigrationPhase.ABORTED, ended=epoch)
        if self.phase is MigrationPhase.RETURNING:
            raise RefusedError(f"migration {self.id} is moving back already")
        return replace(self, phase=MigrationPhase.RETURNING)

    def supersede(self, epoch: Epoch) -> Self:
        """Another migration takes over from here."""
        return replace(self, phase=MigrationPhase.SUPERSEDED, ended=epoch) if self.is_open else self

    def overrule(self, epoch: Epoch) -> Self:
        """The query was started with another number of workers, or bins that had to move."""
        return replace(self, phase=MigrationPhase.OVERRULED, ended=epoch) if self.is_open else self

    def with_bins(self, bins: int) -> Self:
        """The same, after bins were split or merged."""
        return replace(self, origin=self.origin.with_bins(bins), target=self.target.with_bins(bins))

    @classmethod
    def of(cls, request: MigrateRequest, origin: Routing) -> Self:
        """The migration that a request asks for, before its first step from `origin`."""
        return cls(
            request.id,
            request.operator,
            origin,
            request.target,
            parse(request.strategy),
            accepted=request.time,
            deadline=request.deadline,
            on_timeout=request.on_timeout,
            rebased=origin != request.origin,
        )

    def summary(self, routing: Routing) -> "EndedMigration":
        """What remains of it when it has ended with this routing."""
        assert self.ended is not None
        bins = left(self.origin, self.target)
        return EndedMigration(
            id=self.id,
            operator=self.operator,
            strategy=str(self.strategy),
            workers=(self.origin.workers, self.target.workers),
            bins=len(bins),
            arrived=int(np.sum(routing.owners[bins] == self.target.owners[bins])),
            accepted=self.accepted,
            phase=self.phase,
            epoch=self.ended,
        )

    def record(self) -> "OpenMigration":
        """What has become of the request; the rest is the request itself."""
        return OpenMigration(
            self.id, self.phase, self.stepped, self.origin if self.rebased else None
        )


@dataclass(frozen=True, slots=True)
class OpenMigration:
    """What an intent says of an open migration: all that its request does not say."""

    id: int
    phase: MigrationPhase
    stepped: Epoch | None
    origin: Routing | None = None  # if it is not that of the request

    def resume(self, request: MigrateRequest, bins: int) -> MigrationState:
        """The migration, given its request, of an operator that has so many bins by now."""
        migration = MigrationState.of(request, self.origin or request.origin).with_bins(bins)
        return replace(migration, phase=self.phase, stepped=self.stepped)

    def to_json(self) -> dict[str, Any]:
        told = {"id": self.id, "phase": str(self.phase), "stepped": self.stepped}
        return told | ({"origin": self.origin.to_json()} if self.origin else {})

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        origin = Routing.from_json(data["origin"]) if "origin" in data else None
        return cls(data["id"], MigrationPhase(data["phase"]), data["stepped"], origin)


@dataclass(frozen=True, slots=True)
class EndedMigration:
    """A migration of the past: `phase` is its end, `epoch` the last one that began before it.

    `bins` is how many it was to move, of which so many `arrived`; `workers` how many there were
    before and should be after.
    """

    id: int
    operator: str
    strategy: str
    workers: tuple[int, int]
    bins: int
    arrived: int
    accepted: float
    phase: MigrationPhase
    epoch: Epoch

    def __str__(self) -> str:
        return (
            f"migration {self.id} of '{self.operator}' is {self.phase} with epoch {self.epoch}: "
            f"{self.arrived:,} of {plural(self.bins, 'bin')} moved"
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "phase": str(self.phase), "workers": list(self.workers)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(
            **data | {"phase": MigrationPhase(data["phase"]), "workers": tuple(data["workers"])}
        )


@dataclass(frozen=True, slots=True)
class OperatorMigrations:
    """The migrations of one operator that an intent knows: the open one, and the last that ended,
    the newest at the end."""

    open: OpenMigration | None = None
    past: tuple[EndedMigration, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "open": self.open.to_json() if self.open else None,
            "past": [ended.to_json() for ended in self.past],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        opened = OpenMigration.from_json(data["open"]) if data["open"] else None
        return cls(opened, tuple(map(EndedMigration.from_json, data["past"])))
