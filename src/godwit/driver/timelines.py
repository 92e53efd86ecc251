"""Taking requests in and deciding routings: the timelines of all operators, kept in the log."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from godwit.driver.monitor import Monitor
from godwit.driver.placements import Placements
from godwit.errors import ConfigError, DamagedFileError, RefusedError
from godwit.log.intent import Intent
from godwit.log.journal import Journal
from godwit.log.layout import HOME, request_name
from godwit.migration.migration import (
    EndedMigration,
    MigrationState,
    OpenMigration,
    OperatorMigrations,
)
from godwit.migration.strategies import Ready, common
from godwit.migration.timeline import Timeline
from godwit.model.graph import Graph
from godwit.model.ids import Epoch
from godwit.model.requests import (
    AbortRequest,
    DrainRequest,
    HandoverRequest,
    JointRequest,
    OperatorRequest,
    Request,
    ScheduleRequest,
    StartRequest,
    StopRequest,
    jointly,
    migrate_of,
    parts_of,
)
from godwit.model.routing import Routing
from godwit.model.text import plural
from godwit.model.time import END

log = logging.getLogger("godwit")

REFUSALS = 20  # that are remembered at least, so that those who asked find the answer
SOURCES = 200  # ids of requests that came as data and are remembered: each counts once


class Timelines:
    """The timelines of a query's operators, and the requests that were taken into them.

    Requests are taken in by the order of their ids, wherever they come from, each once; what was
    taken in is in the next intent. One of several operators is taken in by all of them or by none.
    Those that are about executors go to `placements`. All operators
    of a new query have the same `first` routing, and one that is added that of those before it.
    What a later start names is a request, too. Whoever changes them holds the
    monitor; any thread may ask for the timeline of an operator, which is a value.
    """

    def __init__(
        self,
        journal: Journal,
        monitor: Monitor,
        graph: Graph,
        first: Routing,
        begun: Epoch,
        placements: Placements,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._monitor = monitor
        self._placements = placements
        self._clock = clock
        self._begun = begun
        self._stops = False  # another process asked this driver to stop
        self._last_epoch: Epoch | None = None
        intent = journal.intent(begun)
        # By operator: the schedules that it has given up. A rollback has put aside those to come.
        there, dropped = set(journal.requests.ids()), intent.dropped if intent else {}
        self._dropped = {name: there.intersection(ids) for name, ids in dropped.items()}
        self._taken = self._decided = intent.taken if intent else 0  # up to this request
        # What the program named last.
        self._workers, self._bins = (
            (intent.asked_workers, intent.asked_bins) if intent else (None, None)
        )
        self._refused = dict(intent.refused) if intent else {}
        self._sources = dict.fromkeys(intent.sources if intent else ())
        self._timelines: dict[str, Timeline] = {}
        for name in graph.inputs:
            if intent is not None and name in intent.routings:
                self._timelines[name] = self._read(name, intent)
            else:  # one that was added goes with those before it
                if intent is not None:  # if it was there before, what was asked of it went with it
                    asked = {part.id for part in self._schedules(name, intent)}
                    self._dropped.setdefault(name, set()).update(asked)
                before = [self._timelines[one].goal for one in graph.before(name)]
                others = list(intent.routings.values()) if intent else []
                self._timelines[name] = Timeline(name, begun, [*before, *others, first][0])
        self._ends: dict[int, dict[str, EndedMigration]] = {}  # by id and operator
        self._remember(quietly=True)
        self._take_in()

    def start(self, workers: int | None, bins: int | None) -> None:
        """The program names these numbers, or none. A number counts until it names another one: in
        between, migrations and splits have the last word. So another one is a request, durable
        before anything that is asked of what it makes; before the first epoch it makes all."""
        if not self._journal.intents():
            self._workers, self._bins = workers, bins
            return
        other_workers = None if workers == self._workers else workers
        other_bins = None if bins == self._bins else bins
        if (other_workers, other_bins) != (None, None):
            self._journal.check()
            self._journal.requests.add(StartRequest(0, other_workers, other_bins), self._taken)
            self._take_in()

    def __getitem__(self, operator: str) -> Timeline:
        """What is decided for an operator: its routing in the newest epoch that has begun (or in
        the first, if none has), and what is to come."""
        with self._monitor:
            if operator not in self._timelines:
                raise RefusedError(
                    f"unknown operator '{operator}'; this query has {', '.join(self._timelines)}"
                )
            return self._timelines[operator]

    @property
    def begun(self) -> Epoch:
        """The newest epoch that has begun."""
        return self._begun

    def ended(self, migration: int) -> Mapping[str, EndedMigration]:
        """What has become of a migration, by operator; nothing of those where it is open."""
        with self._monitor:
            return dict(self._ends.get(migration, {}))

    def moving(self, migration: int) -> list[str]:
        """The operators that a migration is open of."""
        with self._monitor:
            return [
                name
                for name, timeline in self._timelines.items()
                if timeline.migration is not None and timeline.migration.id == migration
            ]

    def is_dropped(self, schedule: int) -> bool:
        """Did an operator give a schedule up before its last update?"""
        with self._monitor:
            return any(schedule in ids for ids in self._dropped.values())

    @property
    def last_epoch(self) -> Epoch | None:
        """The epoch after which the query stops, if it was asked to."""
        with self._monitor:
            return self._last_epoch

    @property
    def are_open(self) -> bool:
        """Does something wait for epochs to come?"""
        stopping = self._stops and self._last_epoch is None
        return stopping or any(timeline.is_open for timeline in self._timelines.values())

    def _take_in(self) -> None:
        """Take in the requests that have come since."""
        for request in self._journal.requests.requests(after=self._taken):
            self._taken = request.id
            self._sources |= dict.fromkeys(_origins(request))
            try:
                if isinstance(request, StopRequest):
                    self._stop(request)
                elif isinstance(request, StartRequest):
                    self._restart(request)
                elif isinstance(request, HandoverRequest | DrainRequest):
                    self._placements.take(request)
                else:
                    for timeline in self._after(request):
                        self._change(timeline)
            except (RefusedError, ConfigError) as error:
                self._refused[request.id] = str(error)
                log.warning("request %d was refused: %s", request.id, error)
                if any(isinstance(part, ScheduleRequest) for part in parts_of(request)):
                    self._journal.put_aside(f"{HOME}/{request_name(request.id)}")
        self._remember()

    def _after(self, request: OperatorRequest | JointRequest) -> list[Timeline]:
        """The timelines after a request, of all operators that it is for; or RefusedError. An abort
        is for those of them where there is something to abort."""
        parts, changed = parts_of(request), list[Timeline]()
        refusals = list[RefusedError | ConfigError]()
        for part in parts:
            try:
                changed.append(self[part.operator].take(part))
            except (RefusedError, ConfigError) as error:
                if len(parts) > 1 and not isinstance(part, AbortRequest):
                    raise RefusedError(
                        f"operator '{part.operator}' refuses, so none of "
                        f"{plural(len(parts), 'operator')} changes: {error}"
                    ) from None
                refusals.append(error)
        if not changed:
            raise refusals[0]
        return changed

    def ask(self, make: Callable[[], Sequence[OperatorRequest]]) -> tuple[OperatorRequest, ...]:
        """Take in what `make` asks of one operator or of several, durably and at once; or raise
        RefusedError, and then nothing has changed.

        It is made and judged with all that was asked before it taken in.
        """
        while True:
            self._take_in()
            request = jointly(make())
            self._after(request)
            self._journal.check()
            try:
                request = self._journal.requests.claim(request, self._taken)
            except FileExistsError:
                continue  # another process was first: its request comes before this one
            self._take_in()
            return parts_of(request)

    def add(self, parts: Sequence[ScheduleRequest]) -> None:
        """Make a request that came as data durable, unless it is there already; it is judged when
        it is taken in, like those of other processes."""
        self._take_in()
        request = jointly(parts)
        if not self._sources.keys() & _origins(request):
            self._journal.check()
            self._journal.requests.add(request, self._taken)
            self._take_in()

    def begin(self, epoch: Epoch, ready: Mapping[str, Ready]) -> "Decision":
        """What the next epoch is to be; `decided` makes it so, unless it is a replay."""
        self._take_in()
        now = self._clock()
        new = sum(id > self._decided for id in self._refused)
        dropped = {
            name: tuple(sorted(id for id in ids if (self._journal.requests.last(id) or 0) > epoch))
            for name, ids in self._dropped.items()
        }
        return Decision(
            epoch,
            {
                name: timeline.begin(epoch, now, self._ready(timeline, ready))
                for name, timeline in self._timelines.items()
            },
            self._taken,
            dict(list(self._refused.items())[-max(REFUSALS, new) :]),
            _newest(self._sources),
            {name: ids for name, ids in dropped.items() if ids},
            self._workers,
            self._bins,
        )

    def _ready(self, timeline: Timeline, ready: Mapping[str, Ready]) -> Ready:
        """What destinations have fetched of all operators that take the same steps: those that one
        migration moves from the same routing to the same one."""
        way = timeline.way
        if way is None:
            return ready.get(timeline.operator)
        return common(
            [ready.get(one.operator) for one in self._timelines.values() if one.way == way]
        )

    def decided(self, decision: "Decision") -> None:
        """The intent of the decision is written; a replay was decided before."""
        if decision.epoch <= self._begun:
            return
        self._begun = decision.epoch
        if self._stops and self._last_epoch is None:
            self._last_epoch = decision.epoch
        self._timelines = dict(decision.timelines)
        self._decided = decision.taken
        self._refused = dict(decision.refused)
        self._sources = dict.fromkeys(decision.sources)
        self._remember()

    def _change(self, timeline: Timeline) -> None:
        """With a timeline after a request; updates that it drops must not come back."""
        before = self._timelines[timeline.operator]
        self._timelines[timeline.operator] = timeline
        kept = {request.id for request in timeline.scheduled}
        gone = {request.id for request in before.scheduled} - kept
        if gone:
            self._dropped.setdefault(timeline.operator, set()).update(gone)

    def _remember(self, *, quietly: bool = False) -> None:
        for timeline in self._timelines.values():
            for ended in timeline.past:
                known = self._ends.setdefault(ended.id, {})
                if timeline.operator not in known and not quietly:
                    log.info("%s", ended)
                known[timeline.operator] = ended

    def _read(self, name: str, intent: Intent) -> Timeline:
        """The timeline of an operator as of an intent, with the schedules that are not over."""
        migrations = intent.migrations.get(name, OperatorMigrations())
        routing = intent.routings[name]
        return Timeline(
            name,
            intent.epoch,
            routing,
            tuple(
                part.with_bins(routing.bins)
                for part in self._schedules(name, intent)
                if part.bins <= routing.bins
            ),
            self._resumed(name, migrations.open, routing.bins) if migrations.open else None,
            migrations.past,
            intent.epoch if intent.watermarks.get(name) == END else None,
        )

    def _schedules(self, name: str, intent: Intent) -> list[ScheduleRequest]:
        """Those of an operator that an intent has taken in and not dropped, and that are not over
        with its epoch."""
        return [
            part
            for number in self._journal.requests.ids()
            if number <= intent.taken and number not in intent.dropped.get(name, ())
            for part in parts_of(self._journal.requests.request(number))
            if isinstance(part, ScheduleRequest)
            and part.operator == name
            and part.last > intent.epoch
        ]

    def _resumed(self, name: str, opened: OpenMigration, bins: int) -> MigrationState:
        path = self._journal.files.address(request_name(opened.id))
        try:
            request = migrate_of(self._journal.requests.request(opened.id), name)
        except FileNotFoundError:
            raise DamagedFileError(path, "is missing, but its migration is open") from None
        if request is None:
            raise DamagedFileError(
                path, f"is not the request of a migration of '{name}', which is open"
            )
        return opened.resume(request, bins)

    def _restart(self, request: StartRequest) -> None:
        self._workers = request.workers or self._workers
        self._bins = request.bins or self._bins
        for timeline in tuple(self._timelines.values()):
            self._change(timeline.restart(request.workers, request.bins))

    def _stop(self, request: StopRequest) -> None:
        if request.generation != self._journal.generation:
            raise RefusedError(
                f"it was made for driver {request.generation}, which has ended; to stop driver "
                f"{self._journal.generation}, ask again"
            )
        self._stops = True


def _origins(request: Request) -> set[str]:
    """What tells a request that came as data from others: an id counts once for each operator, and
    for several only if it is new for all of them."""
    parts = [part for part in parts_of(request) if isinstance(part, ScheduleRequest)]
    return {f"{part.operator}:{part.source}" for part in parts if part.source is not None}


def _newest(sources: Collection[str]) -> tuple[str, ...]:
    """Those of the ids that came last, whatever operators they were for."""
    ids = dict.fromkeys(source.partition(":")[2] for source in reversed([*sources]))
    kept = {*islice(ids, SOURCES)}
    return tuple(source for source in sources if source.partition(":")[2] in kept)


@dataclass(frozen=True, slots=True)
class Decision:
    """What an epoch that is about to be decided takes in: its timelines, and up to which request
    all were `taken`, with those of the last ones that were refused or came as data, and by operator
    those schedules that were dropped; and the numbers that the program named last."""

    epoch: Epoch
    timelines: Mapping[str, Timeline]
    taken: int
    refused: Mapping[int, str]
    sources: tuple[str, ...]
    dropped: Mapping[str, tuple[int, ...]]
    asked_workers: int | None
    asked_bins: int | None

    @property
    def finished(self) -> set[str]:
        """The operators whose stream has ended with this epoch."""
        return {name for name, timeline in self.timelines.items() if timeline.is_finished}

    @property
    def routings(self) -> dict[str, Routing]:
        return {name: timeline.routing for name, timeline in self.timelines.items()}

    @property
    def migrations(self) -> dict[str, OperatorMigrations]:
        return {
            name: OperatorMigrations(
                timeline.migration.record() if timeline.migration else None, timeline.past
            )
            for name, timeline in self.timelines.items()
            if timeline.migration or timeline.past
        }
