"""Taking requests in and deciding routings: the courses of all operators, kept in the log."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from godwit.errors import ConfigError, DamagedFileError, RefusedError
from godwit.log.intent import Intent
from godwit.log.journal import Journal
from godwit.log.layout import request_name, undone_name
from godwit.model.requests import Drain, HandOver, Migrate, OfOperator, Schedule
from godwit.model.routing import Routing
from godwit.model.time import END
from godwit.protocol.course import Course
from godwit.protocol.migration import Ended, Migration
from godwit.runtime.places import Places
from godwit.strategies.steps import Ready

log = logging.getLogger("godwit")

REFUSALS = 20  # that are remembered at least, so that those who asked find the answer
SOURCES = 200  # requests that came as data and are remembered, so that they are not taken in twice


class Courses:
    """The courses of a query's operators, and the requests that were taken into them.

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
        places: Places,
    ) -> None:
        self._journal = journal
        self._places = places
        self.dropped: set[int] = set()  # schedules that this process has put aside
        intent = journal.intent(begun)
        self._taken = self._decided = intent.control if intent else 0  # up to this request
        self._refused = dict(intent.refused) if intent else {}
        self._sources = dict.fromkeys(intent.sources if intent else ())
        self._courses = {
            name: Course(name, begun, first) if intent is None else self._read(name, intent)
            for name in operators
        }
        self.ends = {ended.id: ended for c in self._courses.values() for ended in c.past}
        self.take_in()

    def restart(self, workers: int | None, bins: int | None) -> None:
        for course in tuple(self._courses.values()):
            self._change(course.restart(workers, bins))
        self._remember()

    def __getitem__(self, operator: str) -> Course:
        if operator not in self._courses:
            raise RefusedError(
                f"unknown operator '{operator}'; this query has {', '.join(self._courses)}"
            )
        return self._courses[operator]

    @property
    def are_open(self) -> bool:
        """Does something wait for epochs to come?"""
        return any(course.is_open for course in self._courses.values())

    def take_in(self) -> None:
        """Take in the requests that have come since."""
        for request in self._journal.control.requests(after=self._taken):
            self._taken = request.id
            if isinstance(request, Schedule) and request.source is not None:
                self._sources[_origin(request)] = None
            try:
                if isinstance(request, HandOver | Drain):
                    self._places.take(request)
                else:
                    self._change(self[request.operator].take(request))
            except (RefusedError, ConfigError) as error:
                self._refused[str(request.id)] = str(error)
                log.warning("request %d was refused: %s", request.id, error)
                if isinstance(request, Schedule):
                    self._put_aside(request)
        self._remember()

    def ask(self, operator: str, make: Callable[[Course], OfOperator]) -> OfOperator:
        """Take in the request that `make` makes, durably; or raise RefusedError.

        It is made and judged with all that was asked before it taken in.
        """
        while True:
            self.take_in()
            request = make(self[operator])
            self[operator].take(request)
            self._journal.check()
            try:
                request = self._journal.control.claim(request, self._taken)
            except FileExistsError:
                continue  # another process was first: its request comes before this one
            self.take_in()
            return request

    def add(self, request: Schedule) -> None:
        """Make a request that came as data durable, unless it is there already; it is judged when
        it is taken in, like those of other processes."""
        self.take_in()
        if _origin(request) not in self._sources:
            self._journal.check()
            self._journal.control.add(request, self._taken)
            self.take_in()

    def begin(self, epoch: int, ready: Mapping[str, Ready]) -> "Decision":
        """What the next epoch is to be; `decided` makes it so."""
        self.take_in()
        now = time.time()
        new = sum(int(id) > self._decided for id in self._refused)
        return Decision(
            {
                name: course.begin(epoch, now, ready.get(name))
                for name, course in self._courses.items()
            },
            self._taken,
            dict(list(self._refused.items())[-max(REFUSALS, new) :]),
            tuple(self._sources)[-SOURCES:],
        )

    def decided(self, decision: "Decision") -> None:
        """The intent of the decision is written."""
        self._courses = decision.courses
        self._decided = decision.control
        self._refused = decision.refused
        self._sources = dict.fromkeys(decision.sources)
        self._remember()

    def _change(self, course: Course) -> None:
        """With a course after a request; updates that it drops must not come back."""
        before = self._courses[course.operator]
        self._courses[course.operator] = course
        for request in before.scheduled:
            if request not in course.scheduled:
                self._put_aside(request)

    def _remember(self) -> None:
        for course in self._courses.values():
            for ended in course.past:
                if ended.id not in self.ends:
                    log.info("%s", ended)
                self.ends[ended.id] = ended

    def _read(self, name: str, intent: Intent) -> Course:
        """The course of an operator as of an intent, with the schedules that are not over."""
        entry = intent.migrations.get(name, {"open": None, "past": []})
        routing = intent.routings[name]
        scheduled = [
            request
            for number in self._journal.control.ids()
            if number <= intent.control
            and isinstance(request := self._journal.control.request(number), Schedule)
            and request.last > intent.epoch
            and (request.operator, request.bins) == (name, routing.bins)
        ]
        return Course(
            name,
            intent.epoch,
            routing,
            tuple(scheduled),
            self._open(entry["open"]) if entry["open"] else None,
            tuple(map(Ended.from_json, entry["past"])),
            intent.epoch if intent.watermarks.get(name) == END else None,
        )

    def _open(self, entry: dict[str, Any]) -> Migration:
        path = str(self._journal.files.root / request_name(entry["id"]))
        try:
            request = self._journal.control.request(entry["id"])
        except FileNotFoundError:
            raise DamagedFileError(path, "is missing, but its migration is open") from None
        if not isinstance(request, Migrate):
            raise DamagedFileError(path, "is not the request of a migration, which is open")
        return Migration.from_json(entry, request)

    def _put_aside(self, request: Schedule) -> None:
        self.dropped.add(request.id)
        name = request_name(request.id)
        self._journal.move(name, undone_name(self._journal.generation, name))


def _origin(request: Schedule) -> str:
    """What tells a request that came as data from others: an id counts once for each operator."""
    return f"{request.operator}:{request.source}"


class Decision:
    """The courses in an epoch that is about to be decided."""

    def __init__(
        self,
        courses: Mapping[str, Course],
        control: int,
        refused: dict[str, str],
        sources: tuple[str, ...],
    ) -> None:
        self.courses = dict(courses)
        self.control = control
        self.refused = refused
        self.sources = sources

    @property
    def routings(self) -> dict[str, Routing]:
        return {name: course.routing for name, course in self.courses.items()}

    @property
    def migrations(self) -> dict[str, Any]:
        return {
            name: {
                "open": course.migration.to_json() if course.migration else None,
                "past": [ended.to_json() for ended in course.past],
            }
            for name, course in self.courses.items()
            if course.migration or course.past
        }
