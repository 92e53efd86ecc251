"""The events of a worker and epoch, in the order in which an event machine's function gets them."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.errors import GodwitError, OperatorError
from godwit.model.keys import Groups, flat
from godwit.model.time import END
from godwit.operators import user_function
from godwit.operators.base import Hashes
from godwit.operators.cells.base import Cells
from godwit.operators.conversion import MisfitError, elements, row_class, rows, to_python
from godwit.operators.definition import INPUT
from godwit.state.timed import AT, KEY_HASH, moments, timed_spec, waiting

if TYPE_CHECKING:
    from godwit.operators.event_machine import EventMachine

NOTICES = "_notices"

_USAGE = "the function is called with events and notify, and returns an iterable of tuples, or None"
_MICROSECOND = timedelta(microseconds=1)
_MOST_NOTICES = 10_000  # due at once, for each event of a key, that bring time no further

Function = Callable[[Iterator["Event"], "Notificator"], Iterable[tuple[Any, ...]] | None]
Order = tuple[int, int, int, int, int]  # phase, moment, notices after records, hash, number


class Event(NamedTuple):
    """A record, or a notice that is due: `kind` is "record" ("left" or "right" with two inputs) or
    "notice".

    `value` is a named tuple of the record's columns that are not in the key, or of those that the
    notice was scheduled with; `state` is the state of the key, to be read and changed.

    >>> import godwit as gw
    >>> from godwit.testing import Simulation
    >>> def remind(events, notify):
    ...     for event in events:
    ...         if event.kind == "record":
    ...             notify(event.key, event.time + timedelta(minutes=5))
    ...         yield event.key, event.kind
    >>> reminders = gw.stream("user string, at timestamp").unary(
    ...     "reminders",
    ...     key="user",
    ...     function=remind,
    ...     state="n long",
    ...     output="user string, kind string",
    ...     time="at",
    ...     notices="",
    ... )
    >>> simulation = Simulation(reminders.to(gw.files("reminders")))
    >>> simulation.feed([{"user": "ann", "at": datetime(2026, 1, 1)}])
    >>> simulation.finish()
    >>> [row["kind"] for row in simulation.outputs()]
    ['record', 'notice']
    """

    kind: str
    time: datetime
    key: Any
    value: Any
    state: Any


@dataclass(frozen=True, slots=True)
class Side:
    """One of the inputs: what its events are called, and its columns by the name they have."""

    kind: str
    columns: Mapping[str, str]  # the name in the input: the name for the function


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What is there when an epoch begins: records and notices, in this order, by row."""

    hashes: Hashes
    keys: pa.Table
    events: list[tuple[str, datetime, Any]]  # kind, time and value
    sequence: npt.NDArray[np.int64]  # the rows in the order of their delivery
    orders: list[Order]  # in that sequence

    @classmethod
    def of(
        cls, machine: "EventMachine", hashes: Hashes, records: pa.Table, notices: pa.Table | None
    ) -> Self:
        key = machine.key.names
        times = moments(records.column(machine.time))
        events = _events(machine, records)
        keys, at, kinds = [records.select(key)], [times + machine.strict], [np.zeros_like(times)]
        if notices is not None and notices.num_rows:
            assert machine.notices is not None
            keys.append(notices.select(key))
            at.append(moments(notices.column(AT)))
            kinds.append(np.ones(notices.num_rows, np.int64))
            hashes = np.concatenate(
                (hashes, flat(notices.column(KEY_HASH)).to_numpy().view(np.uint64))
            )
            events += _due(machine, machine.notices.names, notices)
        moment, kind = np.concatenate(at), np.concatenate(kinds)
        phase = np.zeros_like(kind) if machine.strict else kind
        sequence = np.lexsort((hashes, kind, moment, phase))
        columns = [column[sequence].tolist() for column in (phase, moment, kind, hashes)]
        orders = list(zip(*columns, range(len(sequence)), strict=True))
        return cls(hashes, pa.concat_tables(keys), events, sequence, orders)


class Notificator:
    """Schedules notices for the keys of an epoch's events."""

    def __init__(self, run: "EventLoop") -> None:
        self._run = run

    @property
    def ended(self) -> bool:
        """Has the stream ended? Then every notice is due at once."""
        return self._run.ended

    def __call__(self, key: Any, time: datetime, /, *values: Any) -> None:
        """Let the function see an event of kind "notice" when the watermark reaches `time`."""
        self._run.schedule(key, time, values)


class EventLoop:
    """The call of the function for one worker and epoch."""

    def __init__(
        self,
        machine: "EventMachine",
        epoch: int,
        groups: Groups,
        cells: Sequence[Cells],
        until: int | None,
    ) -> None:
        self._machine = machine
        self._epoch = epoch
        self._groups = groups
        self._cells = cells
        self._until = until
        self._keys = list(elements(groups.keys, "Key"))
        self._group_of = {key: group for group, key in enumerate(self._keys)}
        self._current = 0  # the group of the event that the function has
        self._done = False
        self._later: list[tuple[int, int]] = []  # group and moment
        self._payloads: list[tuple[Any, ...]] = []
        self._fresh: list[tuple[Order, datetime, Any]] = []  # a heap of notices that are due now
        self._numbers = count(1 << 62)  # after those that waited for the same moment
        zone = machine.input.field(machine.time).type.tz
        self._origin = datetime.fromisoformat("1970-01-01" + ("T00:00Z" if zone else "T00:00"))
        # The latest time of the event that the function has and of the notices that led to it.
        self._latest = datetime.min.replace(tzinfo=self._origin.tzinfo)
        self._idle = Counter[int]()  # by group, notices that brought time no further
        if machine.notices is not None:
            self._notice = row_class("Notice", tuple(machine.notices.names))._make

    def outputs(self, arrivals: Arrivals) -> pa.Table:
        """Let the function see all events, and take down the changes of state."""
        machine = self._machine
        size = len(self._keys)
        self._sizes = np.diff(self._groups.starts, append=len(arrivals.hashes)).tolist()
        self._states = list(
            user_function.states(self._cells, machine.forms, machine.single, 0, size)
        )
        produced: list[Any] = []
        try:
            result = machine.function(self._events(arrivals), Notificator(self))
            if result is not None:
                user_function.emitter(machine.output, produced)(result)
        except GodwitError:  # of the engine, met while the function read its state
            raise
        except Exception as error:
            raise self._failed(
                self._current, user_function.cause(error, __file__, _USAGE)
            ) from error
        if not self._done:
            raise self._failed(
                self._current, "the function ended after this event; it must take all events"
            )
        try:
            for cells in self._cells:
                cells.close()
        except MisfitError as error:
            raise self._failed(error.index, str(error)) from None
        try:
            return user_function.table(produced, machine.output)
        except MisfitError as error:
            raise self._failed(self._current, f"output: {error}") from None

    def schedule(self, key: Any, time: datetime, values: tuple[Any, ...]) -> None:
        machine = self._machine
        if machine.notices is None:
            raise TypeError("to schedule notices, give the operator notices='their columns'")
        group = self._group_of.get(key)
        if group is None:
            raise KeyError(f"{key!r} is not the key of an event of this epoch")
        if len(values) != len(machine.notices):
            wanted = ", ".join(machine.notices.names) or "nothing else"
            raise TypeError(f"a notice takes a key, a time and {wanted}; it was given {values!r}")
        if not isinstance(time, datetime) or (time.tzinfo is None) is not (
            self._origin.tzinfo is None
        ):
            raise TypeError(f"{time!r} is no time like those of column '{machine.time}'")
        moment = (time - self._origin) // _MICROSECOND
        if self._until is not None and moment <= self._until:
            self._check_fresh(group, time)
            hash = int(self._groups.hashes[group])
            order = (int(not machine.strict), moment, 1, hash, next(self._numbers))
            heapq.heappush(
                self._fresh, (order, time, (group, self._notice(values), max(time, self._latest)))
            )
            return
        self._later.append((group, moment))
        self._payloads.append(values)

    def _check_fresh(self, group: int, time: datetime) -> None:
        """A notice that is due at once must still find the function, and come to an end."""
        if self._done:
            raise ValueError(
                "this notice is due now, but the function has taken all events; "
                "notify while you iterate over them"
            )
        if not self.ended and time > self._latest:
            return
        self._idle[group] += 1
        if self._idle[group] <= _MOST_NOTICES * self._sizes[group]:
            return
        if self.ended:
            raise ValueError(
                "the stream has ended, and notices ask for notices without an end; "
                "ask for none when notify.ended"
            )
        raise ValueError(
            "notices ask for notices without an end, and none for a later time than its own"
        )

    @property
    def ended(self) -> bool:
        return self._until == END

    def scheduled(self) -> pa.Table:
        """The notices that wait from now on."""
        machine = self._machine
        assert machine.notices is not None
        spec = timed_spec(NOTICES, machine.key, machine.notices)
        group, at = np.array(self._later, np.int64).reshape(-1, 2).T
        try:
            values = user_function.table(self._payloads, machine.notices)
        except MisfitError as error:
            raise self._failed(int(group[error.index]), f"notice: {error}") from None
        keys = self._groups.keys.take(pa.array(group))
        return waiting(spec, self._epoch, self._groups.hashes[group], at, keys, values)

    def _events(self, arrivals: Arrivals) -> Iterator[Event]:
        groups = self._groups.of_records(len(arrivals.hashes))
        sequence = arrivals.sequence
        for row, group, order in zip(
            sequence.tolist(), groups[sequence].tolist(), arrivals.orders, strict=True
        ):
            while self._fresh and self._fresh[0][0] < order:
                yield self._pop()
            kind, time, value = arrivals.events[row]
            self._current, self._latest = group, time
            yield Event(kind, time, self._keys[group], value, self._states[group])
        while self._fresh:
            yield self._pop()
        self._done = True

    def _pop(self) -> Event:
        _, time, (self._current, value, self._latest) = heapq.heappop(self._fresh)
        group = self._current
        return Event("notice", time, self._keys[group], value, self._states[group])

    def _failed(self, group: int, cause: str) -> OperatorError:
        return OperatorError(self._machine.name, repr(self._keys[group]), cause, epoch=self._epoch)


def _events(machine: "EventMachine", records: pa.Table) -> list[tuple[str, datetime, Any]]:
    """Kind, time and value of each record, as the function sees them."""
    times = list(elements(records.select([machine.time]), "Time"))
    if machine.inputs == 1:
        (side,) = machine.sides
        values: Iterable[Any] = rows(records.select(list(side.columns)), "Value")
        return [(side.kind, *one) for one in zip(times, values, strict=True)]
    found: list[Any] = [None] * records.num_rows
    numbers = flat(records.column(INPUT)).to_numpy()
    for number, side in enumerate(machine.sides):
        places = np.flatnonzero(numbers == number)
        mine = records.take(pa.array(places)).select(list(side.columns))
        named = mine.rename_columns(list(side.columns.values()))
        for place, value in zip(places.tolist(), rows(named, "Value"), strict=True):
            found[place] = (side.kind, times[place], value)
    return found


def _due(
    machine: "EventMachine", names: list[str], notices: pa.Table
) -> Iterator[tuple[str, datetime, Any]]:
    """Kind, time and value of each notice, as the function sees them."""
    times = to_python(notices.column(AT).cast(machine.input.field(machine.time).type))
    columns = [to_python(notices.column(name)) for name in names]
    values = zip(*columns, strict=True) if columns else [()] * len(times)
    return zip(repeat("notice"), times, map(row_class("Notice", tuple(names))._make, values))
