"""Taking requests in and deciding routings: the timelines of all operators, kept in the log."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from godwit.driver.placements import Placements
from godwit.errors import ConfigError, DamagedFileError, RefusedError
from godwit.log.intent import Intent
from godwit.log.journal import Journal
from godwit.log.layout import request_name, undone_name
from godwit.migration.migration import EndedMigration, MigrationState
from godwit.migration.strategies import Ready
from godwit.migration.timeline import Timeline
from godwit.model.requests import (
    DrainRequest,
    HandoverRequest,
    MigrateRequest,
    OperatorRequest,
    ScheduleRequest,
    StopRequest,
)
from godwit.model.routing import Routing
from godwit.model.time import END

log = logging.getLogger("godwit")

REFUSALS = 20  # that are remembered at least, so that those who asked find the answer
SOURCES = 200  # requests that came as data and are remembered, so that they are not taken in twice


class Timelines:
    """The timelines of a query's operators, and the requests that were taken into them.

    All operators have the same `first` routing; `restart` says which workers and bins a later start
    asks for. Requests are taken in by the order of their ids, wherever they come from; those that
    are about executors go to `places`.
    """

    def __init__(
        self,
        journal: Journal,
        operators: Iterable[str],
        first: Routing,
        begun: int,
        places: Placements,
    ) -> None:
        self._journal = journal
        self._placements = places
        self.stops = False  # another process asked this driver to stop
        self.dropped: set[int] = set()  # schedules that this process has put aside
        intent = journal.intent(begun)
        self._taken = self._decided = intent.control if intent else 0  # up to this request
        self._refused = dict(intent.refused) if intent else {}
        self._sources = dict.fromkeys(intent.sources if intent else ())
        self._timelines = {
            name: Timeline(name, begun, first) if intent is None else self._read(name, intent)
            for name in operators
        }
        self.ends = {ended.id: ended for c in self._timelines.values() for ended in c.past}
        self.take_in()

    def restart(self, workers: int | None, bins: int | None) -> None:
        for timeline in tuple(self._timelines.values()):
            self._change(timeline.restart(workers, bins))
        self._remember()

    def __getitem__(self, operator: str) -> Timeline:
        if operator not in self._timelines:
            raise RefusedError(
                f"unknown operator '{operator}'; this query has {', '.join(self._timelines)}"
            )
        return self._timelines[operator]

    @property
    def are_open(self) -> bool:
        """Does something wait for epochs to come?"""
        return any(timeline.is_open for timeline in self._timelines.values())

    def take_in(self) -> None:
        """Take in the requests that have come since."""
        for request in self._journal.requests.requests(after=self._taken):
            self._taken = request.id
            if isinstance(request, ScheduleRequest) and request.source is not None:
                self._sources[_origin(request)] = None
            try:
                if isinstance(request, StopRequest):
                    self._stop(request)
                elif isinstance(request, HandoverRequest | DrainRequest):
                    self._placements.take(request)
                else:
                    self._change(self[request.operator].take(request))
            except (RefusedError, ConfigError) as error:
                self._refused[str(request.id)] = str(error)
                log.warning("request %d was refused: %s", request.id, error)
                if isinstance(request, ScheduleRequest):
                    self._put_aside(request)
        self._remember()

    def ask(self, operator: str, make: Callable[[Timeline], OperatorRequest]) -> OperatorRequest:
        """Take in the request that `make` makes, durably; or raise RefusedError.

        It is made and judged with all that was asked before it taken in.
        """
        while True:
            self.take_in()
            request = make(self[operator])
            self[operator].take(request)
            self._journal.check()
            try:
                request = self._journal.requests.claim(request, self._taken)
            except FileExistsError:
                continue  # another process was first: its request comes before this one
            self.take_in()
            return request

    def add(self, request: ScheduleRequest) -> None:
        """Make a request that came as data durable, unless it is there already; it is judged when
        it is taken in, like those of other processes."""
        self.take_in()
        if _origin(request) not in self._sources:
            self._journal.check()
            self._journal.requests.add(request, self._taken)
            self.take_in()

    def begin(self, epoch: int, ready: Mapping[str, Ready]) -> "Decision":
        """What the next epoch is to be; `decided` makes it so."""
        self.take_in()
        now = time.time()
        new = sum(int(id) > self._decided for id in self._refused)
        return Decision(
            {
                name: timeline.begin(epoch, now, ready.get(name))
                for name, timeline in self._timelines.items()
            },
            self._taken,
            dict(list(self._refused.items())[-max(REFUSALS, new) :]),
            tuple(self._sources)[-SOURCES:],
        )

    def decided(self, decision: "Decision") -> None:
        """The intent of the decision is written."""
        self._timelines = decision.timelines
        self._decided = decision.control
        self._refused = decision.refused
        self._sources = dict.fromkeys(decision.sources)
        self._remember()

    def _change(self, timeline: Timeline) -> None:
        """With a timeline after a request; updates that it drops must not come back."""
        before = self._timelines[timeline.operator]
        self._timelines[timeline.operator] = timeline
        for request in before.scheduled:
            if request not in timeline.scheduled:
                self._put_aside(request)

    def _remember(self) -> None:
        for timeline in self._timelines.values():
            for ended in timeline.past:
                if ended.id not in self.ends:
                    log.info("%s", ended)
                self.ends[ended.id] = ended

    def _read(self, name: str, intent: Intent) -> Timeline:
        """The timeline of an operator as of an intent, with the schedules that are not over."""
        entry = intent.migrations.get(name, {"open": None, "past": []})
        routing = intent.routings[name]
        scheduled = [
            request
            for number in self._journal.requests.ids()
            if number <= intent.control
            and isinstance(request := self._journal.requests.request(number), ScheduleRequest)
            and request.last > intent.epoch
            and (request.operator, request.bins) == (name, routing.bins)
        ]
        return Timeline(
            name,
            intent.epoch,
            routing,
            tuple(scheduled),
            self._open(entry["open"]) if entry["open"] else None,
            tuple(map(EndedMigration.from_json, entry["past"])),
            intent.epoch if intent.watermarks.get(name) == END else None,
        )

    def _open(self, entry: dict[str, Any]) -> MigrationState:
        path = str(self._journal.files.root / request_name(entry["id"]))
        try:
            request = self._journal.requests.request(entry["id"])
        except FileNotFoundError:
            raise DamagedFileError(path, "is missing, but its migration is open") from None
        if not isinstance(request, MigrateRequest):
            raise DamagedFileError(path, "is not the request of a migration, which is open")
        return MigrationState.from_json(entry, request)

    def _stop(self, request: StopRequest) -> None:
        if request.generation != self._journal.generation:
            raise RefusedError(
                f"it was made for driver {request.generation}, which has ended; to stop driver "
                f"{self._journal.generation}, ask again"
            )
        self.stops = True

    def _put_aside(self, request: ScheduleRequest) -> None:
        self.dropped.add(request.id)
        name = request_name(request.id)
        self._journal.move(name, undone_name(self._journal.generation, name))


def _origin(request: ScheduleRequest) -> str:
    """What tells a request that came as data from others: an id counts once for each operator."""
    return f"{request.operator}:{request.source}"


class Decision:
    """The timelines in an epoch that is about to be decided."""

    def __init__(
        self,
        timelines: Mapping[str, Timeline],
        control: int,
        refused: dict[str, str],
        sources: tuple[str, ...],
    ) -> None:
        self.timelines = dict(timelines)
        self.control = control
        self.refused = refused
        self.sources = sources

    @property
    def routings(self) -> dict[str, Routing]:
        return {name: timeline.routing for name, timeline in self.timelines.items()}

    @property
    def migrations(self) -> dict[str, Any]:
        return {
            name: {
                "open": timeline.migration.to_json() if timeline.migration else None,
                "past": [ended.to_json() for ended in timeline.past],
            }
            for name, timeline in self.timelines.items()
            if timeline.migration or timeline.past
        }
