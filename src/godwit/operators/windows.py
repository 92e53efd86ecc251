"""Windows: which there are, and functions that collect the records of one until it closes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from godwit.errors import ConfigError
from godwit.model.time import Duration, micros
from godwit.operators.conversion import row_class

START: Final = "window_start"
END: Final = "window_end"
TIME: Final = "window_time"  # the last moment of a window: the event time of what comes of it

Apply = Callable[[Any, Any, Sequence[Any]], Iterable[tuple[Any, ...]] | None]


class Span(NamedTuple):
    """The time of a window: from its start up to, but without, its end.

    >>> span = Span(datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 13))
    >>> span.time.isoformat()
    '2026-01-01T12:59:59.999999'
    """

    start: datetime
    end: datetime

    @property
    def time(self) -> datetime:
        """Its last moment: the event time of what comes of it."""
        return self.end - timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one length that begin every `slide`; both in microseconds.

    They are aligned to 1970-01-01, and [start, end): a record on a border is in the later window.

    >>> sliding("10 s", "5 s")
    Sliding(length=10000000, slide=5000000)
    """

    length: int
    slide: int

    def __post_init__(self) -> None:
        if not 0 < self.slide <= self.length:
            raise ConfigError("a window must slide by more than nothing and at most its length")

    def __str__(self) -> str:
        return f"{self.length} us every {self.slide} us"


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that end when a key has had no record for `gap` microseconds; or, if that is the name
    of a column, none before the times that its records have there.

    >>> session("1 s")
    Session(gap=1000000)
    """

    gap: int | str

    def __str__(self) -> str:
        if isinstance(self.gap, str):
            return f"sessions until {self.gap}"
        return f"sessions with gaps of {self.gap} us"

    def __post_init__(self) -> None:
        if isinstance(self.gap, int) and self.gap <= 0:
            raise ConfigError("the gap between sessions must be longer than nothing")


@dataclass(frozen=True, slots=True)
class Counted:
    """Windows of so many records of a key, in the order in which they come.

    >>> counted(2).records
    2
    """

    records: int

    def __post_init__(self) -> None:
        if self.records < 1:
            raise ConfigError(f"a window has at least one record, not {self.records}")


Window = Sliding | Session | Counted


def tumbling(length: Duration) -> Sliding:
    """One window after the other.

    >>> str(tumbling("10 seconds"))
    '10000000 us every 10000000 us'
    """
    return Sliding(micros(length), micros(length))


def sliding(length: Duration, slide: Duration) -> Sliding:
    """Windows that overlap.

    >>> str(sliding("10 seconds", "1 second"))
    '10000000 us every 1000000 us'
    """
    return Sliding(micros(length), micros(slide))


def session(gap: Duration | None = None, *, until: str | None = None) -> Session:
    """A window for as long as records of a key come.

    With `session(until="closes")` a record keeps it open until the time in that column, which is
    after its own; a record without one is in no window.

    >>> str(session("1 second")), str(session(until="closes"))
    ('sessions with gaps of 1000000 us', 'sessions until closes')
    """
    if gap is not None and until is None:
        return Session(micros(gap))
    if until is None or gap is not None:
        raise ConfigError("a session has either a gap or the column of a time, `until`")
    return Session(until)


def counted(records: int) -> Counted:
    """A window for every so many records of a key.

    >>> counted(100)
    Counted(records=100)
    """
    return Counted(records)


@dataclass(frozen=True, slots=True)
class ApplySliding:
    """For `unary`, keyed by key and window: keeps the records of a window until its end."""

    apply: Apply
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def __call__(self, events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
        for kind, _, key, value, state in events:
            *own, start, end = key
            if kind != "notice":
                if not state.open.exists:
                    state.open.yes = True
                    notify(key, end)
                state.records.append(_element(value))
                continue
            records = _records(state.records, self.columns)
            mine = own[0] if len(own) == 1 else row_class("Key", self.key)._make(own)
            yield from self.apply(mine, Span(start, end), records) or ()
            state.records.clear()
            state.open.clear()


@dataclass(frozen=True, slots=True)
class ApplySession:
    """For `unary`: keeps the records of a key until the sessions that they make up end.

    A key has one notice that counts, for the first moment at which a session of it can end.
    """

    apply: Apply
    columns: tuple[str, ...]
    gap: timedelta | int  # or the place of the time until which a record keeps its session open
    time: int  # the place of the time among the columns

    def __call__(self, events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
        for kind, time, key, value, state in events:
            if kind != "notice":
                state.records.append(_element(value))
                self._await(key, self._end(value), state, notify)
            elif state.next.notice == time:
                state.next.clear()
                yield from self._close(key, time, state, notify)

    def _await(self, key: Any, end: datetime, state: Any, notify: Any) -> None:
        if state.next.notice is None or end < state.next.notice:
            state.next.notice = end
            notify(key, end)

    def _close(self, key: Any, now: datetime, state: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
        open: list[Any] = []
        closed = False
        for records, end in self._sessions(_records(state.records, self.columns)):
            if end <= now:
                closed = True
                yield from self.apply(key, Span(records[0][self.time], end), records) or ()
            else:
                self._await(key, end, state, notify)
                open += records
        if closed:
            state.records.clear()
            for record in open:
                state.records.append(_element(record))

    def _sessions(self, records: list[Any]) -> Iterator[tuple[list[Any], datetime]]:
        """The records by time, cut where none keeps the session open; each with its end."""
        records.sort(key=lambda record: record[self.time])
        start, end = 0, self._end(records[0])
        for i, record in enumerate(records):
            if record[self.time] >= end:
                yield records[start:i], end
                start = i
            end = max(end, self._end(record))
        yield records[start:], end

    def _end(self, record: Any) -> datetime:
        """Until when a record keeps its session open."""
        end = record[self.gap] if isinstance(self.gap, int) else record[self.time] + self.gap
        assert isinstance(end, datetime)
        return end


@dataclass(frozen=True, slots=True)
class ApplyCounted:
    """For `state_machine`: keeps the records of a key until there are enough."""

    apply: Apply
    columns: tuple[str, ...]
    count: int

    def __call__(self, key: Any, value: Any, state: Any) -> Iterable[tuple[Any, ...]] | None:
        state.open.records = (state.open.records or 0) + 1
        state.records.append(_element(value))
        if state.open.records < self.count:
            return None
        records = _records(state.records, self.columns)
        state.records.clear()
        state.open.clear()
        return self.apply(key, None, records)


def _element(record: Any) -> Any:
    """A record as an element of a list, which is a value if it has one column."""
    return record[0] if len(record) == 1 else tuple(record)


def _records(elements: Iterable[Any], columns: tuple[str, ...]) -> list[Any]:
    """The opposite of `_element`, as named tuples."""
    make = row_class("Record", columns)._make
    if len(columns) == 1:
        return [make((element,)) for element in elements]
    return list(map(make, elements))
