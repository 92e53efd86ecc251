"""Which files of `gw.files` count in a store without rename: a log of deliveries.

Each entry is created at the next number, if that is free. So of two drivers one is first, and the
other one reads what came before its own.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

from godwit.errors import DamagedFileError
from godwit.model.files import FileRef
from godwit.model.ids import Epoch
from godwit.storage.store import Store

DELIVERIES: Final = "_godwit"  # Spark's readers ignore names that begin with an underscore
TOGETHER: Final = 16


@dataclass(frozen=True, slots=True)
class Delivery:
    """An epoch that was delivered: its files, and those of the deliveries from `since` on.

    Numbers count from 1. Every 16th entry has the files of 16 deliveries, every 256th those of 256,
    and so on: a reader needs few of many entries. `schema` is that of all epochs up to this one, as
    Spark writes it. A delivery is never changed nor deleted, but by people.
    """

    epoch: Epoch
    commit: str
    checkpoint: str
    schema: dict[str, Any]
    files: tuple[FileRef, ...]
    number: int = 0
    since: int = 0

    @property
    def query(self) -> str:
        return self.commit.partition("/")[0]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"files": [ref.to_json() for ref in self.files]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data | {"files": tuple(map(FileRef.from_json, data["files"]))})


@dataclass
class DeliveryLog:
    """The deliveries below a location."""

    store: Store  # where the files are
    _known: dict[int, Delivery] = field(default_factory=dict, init=False, repr=False)

    def newest(self) -> Delivery | None:
        """The newest delivery that there is now."""
        numbers = self.store.numbers(DELIVERIES)
        self._known = {}
        return self._read(numbers[-1]) if numbers else None

    def append(self, before: Delivery | None, new: Delivery) -> Delivery:
        """Add a delivery right behind another one, or behind none: FileExistsError if there is one
        already, and nothing has changed."""
        number = before.number + 1 if before else 1
        since = number + 1 - span(number)
        earlier = (ref for one in self._back(before, since) for ref in one.files)
        written = replace(new, files=(*new.files, *earlier), number=number, since=since)
        self.store.create(_name(number), json.dumps(written.to_json()).encode())
        self._known = {n: one for n, one in self._known.items() if n < since} | {number: written}
        return written

    def files(self, newest: Delivery | None) -> list[FileRef]:
        """The files of all deliveries up to one."""
        return [ref for one in self._back(newest, 1) for ref in one.files]

    def _back(self, newest: Delivery | None, since: int) -> Iterator[Delivery]:
        """The entries that have the files of all deliveries from a number on, the newest first."""
        while newest is not None and newest.number >= since:
            yield newest
            newest = self._read(newest.since - 1) if newest.since > since else None

    def _read(self, number: int) -> Delivery:
        if number not in self._known:
            name = _name(number)
            try:
                found = Delivery.from_json(json.loads(self.store.read(name)))
            except FileNotFoundError:
                raise _damaged(self.store.address(name), "the file is missing") from None
            except (ValueError, LookupError, TypeError) as error:
                raise _damaged(self.store.address(name), "is no delivery of gw.files") from error
            self._known[number] = found
        return self._known[number]


def span(number: int) -> int:
    """How many deliveries an entry has the files of: itself and those right before it.

    >>> span(15), span(16), span(17), span(256), span(512), span(528)
    (1, 16, 1, 256, 256, 16)
    """
    found = 1
    while number % (found * TOGETHER) == 0:
        found *= TOGETHER
    return found


def _name(number: int) -> str:
    return f"{DELIVERIES}/{number}.json"


def _damaged(path: str, reason: str) -> DamagedFileError:
    return DamagedFileError(path, f"{reason}; restore the output from a backup, or name another")
