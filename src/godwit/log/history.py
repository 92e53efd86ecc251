"""The read side of a checkpoint's log: what was decided, what was published, and by whom."""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, pairwise, takewhile
from os import getpid, kill
from statistics import median
from time import time as now
from typing import Any, Self, TypeVar

from godwit.errors import CheckpointError, DamagedFileError
from godwit.log.addition import Addition
from godwit.log.intent import Intent, IntentHead, WrittenRouting
from godwit.log.layout import (
    FORMAT,
    GENERATIONS,
    HOME,
    INTENTS,
    MANIFESTS,
    addition_name,
    ended_name,
    generation_name,
    intent_name,
    manifest_name,
)
from godwit.log.records import decode_as
from godwit.log.requests import RequestLog
from godwit.model.ids import Epoch
from godwit.model.manifest import Manifest
from godwit.model.routing import Routing
from godwit.storage.location import Location, open_store

T = TypeVar("T")

PACED = 10  # epochs whose median pace is told
_LOADED = now()  # what has this process's number and is older was another process


@dataclass(frozen=True, slots=True)
class Generation:
    """Which process took the checkpoint as the `number`th, and when (seconds since 1970).

    One that has `ended` said so itself; its process may go on with something else.
    """

    number: int
    host: str
    pid: int
    time: float
    ended: bool = False

    @property
    def is_here(self) -> bool:
        """Was it started on this host?"""
        return self.host == socket.gethostname()

    @property
    def gone(self) -> bool:
        """Whether it is known to have ended: it said so, or its process is no more on this host.

        Of a process elsewhere nothing else is known, and another may have got its number since.
        """
        if self.ended:
            return True
        if not self.is_here:
            return False
        if self.pid == getpid():
            return self.time < _LOADED  # in a new container processes get the same numbers
        try:
            kill(self.pid, 0)  # sends no signal
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # somebody else's
        return False

    @property
    def is_running(self) -> bool:
        """Whether it is known to run: of a driver on another host nobody here knows."""
        return self.is_here and not self.gone

    def __str__(self) -> str:
        host = "this host" if self.is_here else self.host
        return f"driver {self.number}, process {self.pid} on {host}"

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number, "host": self.host, "pid": self.pid, "time": self.time}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)


class History:
    """The intents, manifests, generations and requests of the checkpoint at a location.

    It changes nothing, so it can be used beside a running driver. It remembers the routings that it
    resolved last: after a rollback of the checkpoint, inspect again.
    """

    def __init__(self, checkpoint: Location) -> None:
        self.checkpoint = open_store(checkpoint)
        self.files = self.checkpoint.within(HOME)
        self.requests = RequestLog(self.files)
        self._routings: dict[tuple[str, Epoch], Routing] = {}

    @staticmethod
    def inspect(checkpoint: Location) -> "History":
        """Look at a checkpoint without taking it over."""
        history = History(checkpoint)
        if not history.files.exists(FORMAT):
            raise CheckpointError(
                str(history.checkpoint),
                "there is no Godwit checkpoint here; name the directory that the query was "
                f"started with (it holds {HOME}/{FORMAT}), or wait, if it has just been started",
            )
        history.check_layout()
        return history

    def check_layout(self) -> None:
        """Refuse a checkpoint that a newer version laid out."""
        self._load(FORMAT, "checkpoint", dict)

    def manifest(self, epoch: int) -> Manifest | None:
        """The manifest of an epoch, with the operators that were added to it."""
        name = manifest_name(epoch)
        manifest = self._load(name, "manifest", Manifest.from_json)
        if manifest is not None:
            self._check_epoch(name, manifest.epoch, epoch)
            for addition in self.additions(epoch):
                manifest = addition.to_manifest(manifest)
        return manifest

    def additions(self, epoch: int) -> Iterator[Addition]:
        """What was added to an epoch after it had been published, in order."""
        for name in self.addition_names(epoch):
            addition = self._load(name, "addition", Addition.from_json)
            if addition is not None:
                self._check_epoch(name, addition.manifest.epoch, epoch)
                yield addition

    def addition_names(self, epoch: int) -> list[str]:
        names = (addition_name(epoch, number) for number in count())
        return [*takewhile(self.files.exists, names)]

    def epochs(self) -> list[Epoch]:
        """The epochs whose manifests are retained, in order."""
        return [*map(Epoch, self.files.numbers(MANIFESTS))]

    def pace(self) -> float | None:
        """The median time from one of the last published epochs to the next, in seconds."""
        times = []
        for epoch in self.epochs()[-PACED:]:
            with suppress(FileNotFoundError):
                times.append(self.files.modified(manifest_name(epoch)))
        told = [time for time in times if time is not None]
        return median(b - a for a, b in pairwise(told)) if len(told) > 1 else None

    def last(self) -> Manifest | None:
        """The newest manifest."""
        epochs = self.epochs()
        return self.manifest(epochs[-1]) if epochs else None

    @property
    def query(self) -> str | None:
        """Spark's id of the query, the same over restarts; None before its first epoch."""
        manifest = self.last()
        if manifest is not None and manifest.query:
            return manifest.query
        begun = self.intents()
        intent = self.decided(begun[-1]) if begun else None
        return (intent.query or None) if intent else None

    def intent(self, epoch: int) -> Intent | None:
        """The intent of an epoch with its routings in full, wherever they are written; also of the
        operators that were added to the epoch."""
        intent = self.decided(epoch)
        if intent is not None:
            for addition in self.additions(epoch):
                intent = addition.to_intent(intent)
        return intent

    def decided(self, epoch: int) -> Intent | None:
        """The intent of an epoch as it was decided."""
        name = intent_name(epoch)
        kept: dict[tuple[str, Epoch], Routing] = {}

        def routing(operator: str, written: WrittenRouting) -> Routing:
            since = written.since
            found = self._routings.get((operator, since))
            if found is None:
                here = written.packed is not None
                found = written.unpack() if here else self._written_routing(operator, since, name)
            kept[operator, since] = found
            return found

        intent = self._load(name, "intent", lambda body: Intent.from_json(body, routing))
        if intent is not None:
            self._check_epoch(name, intent.epoch, epoch)
            self._routings = kept
        return intent

    def intents(self) -> list[Epoch]:
        """The epochs whose intents are retained, in order."""
        return [*map(Epoch, self.files.numbers(INTENTS))]

    def intent_head(self, epoch: int) -> IntentHead | None:
        """What the intent of an epoch says at little cost."""
        head = self._load(intent_name(epoch), "intent", IntentHead.from_json)
        if head is not None:
            self._check_epoch(intent_name(epoch), head.epoch, epoch)
        return head

    def taken(self, epoch: int) -> int | None:
        """The newest request that the intent of an epoch has taken in."""
        head = self.intent_head(epoch)
        return None if head is None else head.taken

    def since(self, epoch: int) -> dict[str, Epoch]:
        """For each operator of an intent, the epoch whose intent holds its routing in full."""
        head = self.intent_head(epoch)
        return {} if head is None else head.since

    def generations(self) -> list[Generation]:
        """Who took this checkpoint over, in order."""
        found = []
        for number in self.files.numbers(GENERATIONS):
            name = generation_name(number)
            generation = self._load(name, "generation", Generation.from_json)
            if generation is not None:
                ended = self.files.exists(ended_name(number))
                found.append(replace(generation, ended=ended))
        return found

    def newest_generation(self) -> int:
        """The number of the driver that holds this checkpoint; 0 before the first."""
        return max(self.files.numbers(GENERATIONS), default=0)

    def _written_routing(self, operator: str, epoch: int, referrer: str) -> Routing:
        def routing(body: dict[str, Any]) -> Routing:
            return IntentHead.from_json(body).routings[operator].unpack()

        found = self._load(intent_name(epoch), "intent", routing)
        if found is None:
            raise DamagedFileError(
                self.files.address(referrer),
                f"refers to the routing in {intent_name(epoch)}, which is missing; "
                "restore the checkpoint from a backup",
            )
        return found

    def _load(self, name: str, kind: str, build: Callable[[Any], T]) -> T | None:
        try:
            data = self.files.read(name)
        except FileNotFoundError:
            return None
        return decode_as(self.files.address(name), data, kind, build)

    def _check_epoch(self, name: str, found: int, wanted: int) -> None:
        if found != wanted:
            raise DamagedFileError(
                self.files.address(name),
                f"holds epoch {found}, so it was copied or renamed; "
                "restore the checkpoint from a backup",
            )
