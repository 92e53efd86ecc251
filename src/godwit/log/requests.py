"""The control requests of a checkpoint, durable under ids that grow and are never reused."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from godwit.errors import DamagedFileError
from godwit.log.layout import CONTROL, UNDONE, request_name
from godwit.log.records import decode_as, encode
from godwit.model.ids import Epoch
from godwit.model.requests import Request, ScheduleRequest, parts_of, request_from_json
from godwit.storage.store import Store

R = TypeVar("R", bound=Request)


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request that no epoch has taken in yet; those about executors name no operators."""

    id: int
    kind: str
    operators: tuple[str, ...]

    def __str__(self) -> str:
        return f"request {self.id} ({self.kind}) waits for the query's next epoch"


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request that was taken in and refused: why, and in which epoch, if that is retained.

    What has become of its file may be unknown; `asked` is when, in seconds since 1970.
    """

    id: int
    kind: str | None
    operators: tuple[str, ...]
    asked: float | None
    epoch: Epoch | None
    reason: str

    def __str__(self) -> str:
        kind = f" ({self.kind})" if self.kind else ""
        epoch = "" if self.epoch is None else f" in epoch {self.epoch}"
        return f"request {self.id}{kind} was refused{epoch}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _RequestHead:
    """What kind of request it is, of which operators, and when it was made, if it tells.

    Requests that a newer version knows have these as well.
    """

    kind: str
    operators: tuple[str, ...] = ()
    asked: float | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        parts = data.get("parts") or [data]
        operators = tuple(part["operator"] for part in parts if part.get("operator"))
        return cls(parts[0]["kind"], operators, parts[0].get("time"))


_UNREADABLE = _RequestHead("cannot be read")


class RequestLog:
    """The requests, in the order in which they were made. Any process may add to them."""

    def __init__(self, files: Store) -> None:
        self._files = files
        self._last: dict[int, Epoch | None] = {}

    def add(self, request: R, after: int = 0) -> R:
        """Make a request durable under the next free id above `after`: the newest that an intent
        has taken in, whose file may be gone."""
        while True:
            with suppress(FileExistsError):
                return self._create(request, self.ids(), after)

    def claim(self, request: R, after: int) -> R:
        """`add` as the next one after those up to `after`; FileExistsError if another is first."""
        ids = self.ids()
        if newer := [number for number in ids if number > after]:
            raise FileExistsError(request_name(newer[0]))
        return self._create(request, ids, after)

    def _create(self, request: R, ids: Sequence[int], after: int) -> R:
        """FileExistsError if another takes the id first."""
        number = max([*ids, *self._undone(), after]) + 1
        numbered = replace(request, id=number)
        self._files.create(request_name(number), encode("request", numbered.to_json()))
        if number in self._undone():  # another's, taken in and put aside since we looked
            self._files.delete(request_name(number))
            raise FileExistsError(request_name(number))
        return numbered

    def ids(self) -> list[int]:
        """The ids of the requests, in the order in which they were made."""
        return self._files.numbers(CONTROL)

    def requests(self, after: int = 0) -> list[Request]:
        """The requests with ids above `after`, in the order in which they were made."""
        return [self.request(number) for number in self.ids() if number > after]

    def request(self, number: int) -> Request:
        name = request_name(number)
        data = self._files.read(name)
        return decode_as(self._files.address(name), data, "request", request_from_json)

    def waiting(self, after: int) -> list[WaitingRequest]:
        """Those with ids above `after`, as far as anybody can tell beside a query that runs on."""
        found = []
        for number in self.ids():
            with suppress(FileNotFoundError):  # it was put aside
                if number > after:
                    found.append(self._waiting(number))
        return found

    def refused(self, number: int, epoch: Epoch | None, reason: str) -> RefusedRequest:
        """One that was refused in an epoch; its file may be deleted meanwhile."""
        try:
            head = self._head(number)
        except FileNotFoundError:
            return RefusedRequest(number, None, (), None, epoch, reason)
        return RefusedRequest(number, head.kind, head.operators, head.asked, epoch, reason)

    def _waiting(self, number: int) -> WaitingRequest:
        head = self._head(number)
        return WaitingRequest(number, head.kind, head.operators)

    def _head(self, number: int) -> _RequestHead:
        name = request_name(number)
        data = self._files.read(name)
        try:
            return decode_as(self._files.address(name), data, "request", _RequestHead.from_json)
        except DamagedFileError:
            return _UNREADABLE

    def last(self, number: int) -> Epoch | None:
        """The last epoch that a schedule is about; remembered, as requests can be large.

        None for other requests: what became of those is in the intents.
        """
        if number not in self._last:
            parts = parts_of(self.request(number))
            ends = [part.last for part in parts if isinstance(part, ScheduleRequest)]
            self._last[number] = max(ends, default=None)
        return self._last[number]

    def _undone(self) -> list[int]:
        """The ids of the requests that were put aside."""
        rollbacks = self._files.names(UNDONE)
        return [id for one in rollbacks for id in self._files.numbers(f"{UNDONE}/{one}/{CONTROL}")]
