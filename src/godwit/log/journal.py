"""The write side of a checkpoint's log: one driver at a time, and a fence around it."""

import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from godwit import faults
from godwit.errors import CheckpointError, DamagedFileError, FencedError
from godwit.log.history import Generation, History
from godwit.log.intent import Intent
from godwit.log.layout import (
    CONTROL,
    FORMAT,
    GENERATIONS,
    HOME,
    INTENTS,
    MANIFESTS,
    SPARK,
    STAGING,
    TICKS,
    ended_name,
    generation_name,
    intent_name,
    manifest_name,
    request_name,
)
from godwit.log.manifest import Manifest
from godwit.log.records import encode
from godwit.model.routing import Routing
from godwit.storage.local import LocalStore

_DIRECTORIES = (GENERATIONS, INTENTS, MANIFESTS, CONTROL, STAGING, TICKS)


class Journal(History):
    """The log of a checkpoint in the hands of its newest driver.

    Once `open` has returned, no older journal of the same checkpoint can change anything: each
    journal makes its changes through a staging directory of its own, and a newer one takes those of
    the older away. So a driver that was stopped at any instruction and wakes up later fails with
    FencedError, and what it was about to publish or delete stays as it is.
    """

    def __init__(self, root: Path, generation: int, staging: Path, durable: bool = True) -> None:
        super().__init__(root, durable)
        self.generation = generation
        self._staging = staging
        self._fenced = LocalStore(root / HOME, durable, staging)

    @classmethod
    def open(cls, root: Path, durable: bool = True) -> Self:
        """Take the checkpoint at `root` over, from nothing or from another driver."""
        history = History(root, durable)
        _lay_out(history)
        generation, staging = _take(history, durable)
        _close_older(history.files, generation)
        return cls(root, generation, staging, durable)

    def check(self) -> None:
        """Raise FencedError if another driver took this checkpoint over; costs one look-up."""
        if self.files.exists(generation_name(self.generation + 1)):
            raise FencedError(str(self.root), self.generation, self.newest_generation())

    def begin(self, intent: Intent) -> Intent:
        """Decide an epoch: write its intent under this generation, or return the one it has.

        An epoch that was begun with other offsets or by another query is refused.
        """
        epoch = intent.epoch
        faults.reach("intent", "before", epoch)
        begun = self.intent(epoch)
        self.check()
        if begun is None:
            begun = replace(intent, generation=self.generation)
            since = self._unchanged(begun)
            self._create(intent_name(epoch), encode("intent", begun.to_json(since)))
            self._routings = {
                (name, since.get(name, epoch)): routing for name, routing in begun.routings.items()
            }
        self._check_same(begun, intent)
        faults.reach("intent", "after", epoch)
        return begun

    def publish(self, manifest: Manifest) -> Manifest:
        """Make an epoch so: write its manifest under this generation, or return the one it has.

        A manifest that an older driver published first counts, and the caller goes on from it: it
        followed the same intent. One of other offsets or of another query is refused.
        """
        epoch = manifest.epoch
        faults.reach("manifest", "before", epoch)
        published = self.manifest(epoch)
        self.check()
        if published is None:
            published = replace(manifest, generation=self.generation)
            self._create(manifest_name(epoch), encode("manifest", published.to_json()))
        self._check_same(published, manifest)
        faults.reach("manifest", "after", epoch)
        return published

    def delete(self, name: str) -> None:
        """Delete a file below `godwit/`; one that is gone already is no error."""
        with self._fence():
            self._fenced.delete(name)

    def move(self, name: str, target: str) -> None:
        """Move a file to another name below `godwit/`."""
        with self._fence():
            self._fenced.move(name, target)

    def prune(self, before: int) -> None:
        """Delete the manifests, intents and requests of epochs before `before`.

        The newest manifest stays, and so does every intent that holds a routing of a later one.
        """
        epochs = self.epochs()
        if not epochs:
            return
        before = min(before, epochs[-1])
        for epoch in epochs:
            if epoch < before:
                self.delete(manifest_name(epoch))
        intents = self.intents()
        # A routing holds without gaps, so the oldest intent to stay knows all earlier references.
        needed = next((set(self.since(e).values()) for e in intents if e >= before), set())
        for epoch in intents:
            if epoch < before and epoch not in needed:
                self.delete(intent_name(epoch))
        oldest = next((self._requests_of(epoch) for epoch in intents if epoch >= before), None)
        for number in self.requests.ids()[:-1]:  # the newest stays: ids are never reused
            if not self._is_needed(number, before, oldest):
                self.delete(request_name(number))

    def _requests_of(self, epoch: int) -> tuple[int, set[int]] | None:
        """The newest request that an intent took in, and those whose migrations are open in it."""

        def requests(body: dict[str, Any]) -> tuple[int, set[int]]:
            migrations: dict[str, Any] = body["migrations"]
            return body["control"], {m["open"]["id"] for m in migrations.values() if m["open"]}

        return self._load(intent_name(epoch), "intent", requests)

    def _is_needed(self, number: int, before: int, oldest: tuple[int, set[int]] | None) -> bool:
        """Is a request about epochs from `before` on, given the requests of the first of them?"""
        last = self.requests.last(number)
        if last is not None:
            return last >= before
        if oldest is None:
            return True
        taken, open = oldest
        return number > taken or number in open

    def end(self) -> None:
        """Say that the query of this generation has ended, whatever becomes of its process."""
        self._create(ended_name(self.generation), encode("end", {"time": time.time()}))

    def tick(self) -> None:
        """Ask for an epoch, data or not."""
        tick(self.files)

    def spark_log(self) -> Path:
        """Make Spark's log, and the path at which the Spark of this driver must address it.

        Spark has no fence of its own: an older driver's could write the next offsets or a commit
        before ours does, which ours takes for a conflict. This path ends with our staging.
        """
        (self.root / SPARK).mkdir(exist_ok=True)
        path = self._staging / SPARK
        with self._fence():
            path.symlink_to(Path("../../..", SPARK))
        return path

    def _unchanged(self, intent: Intent) -> dict[str, int]:
        """Which routings are those of the epoch before, and since when they have held."""
        before = self.intent(intent.epoch - 1)
        if before is None:
            return {}
        since = self.since(before.epoch)
        return {
            operator: since[operator]
            for operator, routing in intent.routings.items()
            if operator in before.routings and _same_routing(routing, before.routings[operator])
        }

    def _check_same(self, found: Intent | Manifest, ours: Intent | Manifest) -> None:
        if (found.query, found.offsets) != (ours.query, ours.offsets):
            raise CheckpointError(
                str(self.root),
                f"epoch {ours.epoch} was run before, by generation {found.generation}, with other "
                "input: Spark's offsets of this epoch or its query id have changed since. "
                "Restore the whole checkpoint, spark/ and godwit/, from one backup",
            )

    def _create(self, name: str, data: bytes) -> None:
        with self._fence():
            self._fenced.create(name, data)

    @contextmanager
    def _fence(self) -> Iterator[None]:
        """Say FencedError when a change fails because a newer driver took our staging away."""
        try:
            yield
        except (FileNotFoundError, FileExistsError, NotADirectoryError):
            self.check()
            raise


def tick(files: LocalStore) -> None:
    """Ask the running query for an epoch: it reads the files of `ticks` as a second stream."""
    files.replace(f"{TICKS}/{uuid.uuid4().hex}", b"tick")


def _same_routing(one: Routing, other: Routing) -> bool:
    return one is other or one == other


def _lay_out(history: History) -> None:
    """Make the format file and the directories of a checkpoint, or check those it has."""
    files = history.files
    if not files.exists(FORMAT):
        if history.epochs():
            raise DamagedFileError(
                str(files.root / FORMAT),
                "is missing although the checkpoint holds manifests; "
                "restore the checkpoint from a backup",
            )
        files.make()
        with suppress(FileExistsError):  # another driver made it at the same time
            files.create(FORMAT, encode("checkpoint", {"created": time.time()}))
    history.check_layout()
    for directory in _DIRECTORIES:
        files.make(directory)


def _take(history: History, durable: bool) -> tuple[int, Path]:
    """Take the next generation, and make the staging directory that its changes pass through.

    The directory is there before the record that names its generation, and records are never
    deleted: whoever takes a later generation finds the staging of every earlier one.
    """
    home = history.files.root
    while True:
        number = history.newest_generation() + 1
        staging = home / STAGING / f"{number}-{uuid.uuid4().hex}"
        staging.mkdir()
        taken = Generation(number, socket.gethostname(), os.getpid(), time.time())
        try:
            record = encode("generation", taken.to_json())
            LocalStore(home, durable, staging).create(generation_name(number), record)
            return number, staging
        except FileExistsError:
            shutil.rmtree(staging, ignore_errors=True)
        except (FileNotFoundError, NotADirectoryError):
            if staging.is_dir():
                raise
            # A later driver closed our staging before we had a generation: take the next.


def _close_older(files: LocalStore, generation: int) -> None:
    """Take the staging directories of all older generations away: the fence.

    A file stays in the place of each: the JVM of an older driver would make the directory again, in
    order to write its log there.
    """
    for name in files.names(STAGING):
        number, place = name.partition("-")[0], files.root / STAGING / name
        if not number.isdecimal() or int(number) >= generation:
            continue
        while not place.is_file():
            closed = place.with_name(f".{uuid.uuid4().hex}")
            with suppress(FileNotFoundError):  # closed by another driver at the same time
                place.rename(closed)
            if closed.is_file():
                closed.unlink()
            shutil.rmtree(closed, ignore_errors=True)
            with suppress(FileExistsError):
                place.touch(exist_ok=False)
