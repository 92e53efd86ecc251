"""The write side of a checkpoint's log: one driver at a time, and a fence around it."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import getpid
from typing import Self

from godwit import faults
from godwit.errors import CheckpointError, DamagedFileError, FencedError
from godwit.log.addition import Addition
from godwit.log.history import Generation, History
from godwit.log.intent import Intent, IntentHead
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
    addition_name,
    ended_name,
    generation_name,
    intent_name,
    manifest_name,
    request_name,
    undone_name,
)
from godwit.log.records import encode
from godwit.log.ticks import tick
from godwit.model.ids import Epoch
from godwit.model.manifest import Manifest
from godwit.model.routing import Routing
from godwit.storage.fence import Fence, FencedDirectory
from godwit.storage.location import Location, open_store
from godwit.storage.store import Store

_DIRECTORIES = (GENERATIONS, INTENTS, MANIFESTS, CONTROL, STAGING, TICKS)


class Journal(History):
    """The log of a checkpoint in the hands of its newest driver.

    Once `open` has returned, no older journal of the same checkpoint can change anything: a newer
    one closes the fences of the older. So a driver that was stopped at any instruction and wakes up
    later fails with FencedError, and what it was about to publish or delete stays as it is.
    """

    def __init__(self, checkpoint: Store, generation: int, fence: Fence) -> None:
        super().__init__(checkpoint)
        self.generation = generation
        self._fence = fence
        self._fenced = fence.store.within(HOME)

    @classmethod
    def open(cls, checkpoint: Location) -> Self:
        """Take a checkpoint over, from nothing or from another driver."""
        history = History(open_store(checkpoint, to_write=True))
        _lay_out(history)
        generation, fence = _take(history)
        fence.close_older()
        return cls(history.checkpoint, generation, fence)

    def check(self) -> None:
        """Raise FencedError if another driver took this checkpoint over; costs one look-up."""
        if self.files.exists(generation_name(self.generation + 1)):
            raise FencedError(str(self.checkpoint), self.generation, self.newest_generation())

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

    def add(self, addition: Addition) -> None:
        """Add operators to the newest published epoch; whoever reads it finds them from now on."""
        epoch = addition.manifest.epoch
        faults.reach("addition", "before", epoch)
        self.check()
        name = addition_name(epoch, len(self.addition_names(epoch)))
        self._create(name, encode("addition", addition.to_json()))
        faults.reach("addition", "after", epoch)

    def delete(self, name: str) -> None:
        """Delete a file below `godwit/`; one that is gone already is no error."""
        with self._fenced_off():
            self._fenced.delete(name)

    def put_aside(self, name: str) -> None:
        """Move a file of the checkpoint to where what was undone is."""
        undone = undone_name(self.generation, name.removeprefix(f"{HOME}/"))
        self.move(name, f"{HOME}/{undone}")

    def move(self, name: str, target: str) -> None:
        """Move a file of the checkpoint to another name."""
        with self._fenced_off():
            self._fence.store.move(name, target)

    def prune(self, before: Epoch) -> None:
        """Delete the manifests, intents and requests of epochs before `before`.

        The newest manifest stays, and so does every intent that holds a routing of a later one.
        """
        epochs = self.epochs()
        if not epochs:
            return
        before = min(before, epochs[-1])
        for epoch in epochs:
            if epoch < before:
                for name in (manifest_name(epoch), *self.addition_names(epoch)):
                    self.delete(name)
        intents = self.intents()
        # A routing holds without gaps, so the oldest intent to stay knows all earlier references.
        oldest = next((self.intent_head(epoch) for epoch in intents if epoch >= before), None)
        needed = set(oldest.since.values()) if oldest else set()
        for epoch in intents:
            if epoch < before and epoch not in needed:
                self.delete(intent_name(epoch))
        for number in self.requests.ids()[:-1]:  # the newest stays: ids are never reused
            if not self._is_needed(number, before, oldest):
                self.delete(request_name(number))

    def _is_needed(self, number: int, before: Epoch, oldest: IntentHead | None) -> bool:
        """Is a request about epochs from `before` on, given the intent of the first of them?"""
        last = self.requests.last(number)
        if last is not None:
            return last >= before
        if oldest is None:
            return True
        return number > oldest.taken or number in oldest.open

    def end(self) -> None:
        """Say that the query of this generation has ended, whatever becomes of its process."""
        self._create(ended_name(self.generation), encode("end", {"time": time.time()}))

    def tick(self) -> None:
        """Ask for an epoch, data or not."""
        tick(self.files)

    def spark_log(self) -> FencedDirectory:
        """Make Spark's log, as the Spark of this driver must address it.

        Spark has no fence of its own: an older driver's could write the next offsets or a commit
        before ours does, which ours takes for a conflict.
        """
        self.checkpoint.make(SPARK)
        with self._fenced_off():
            return self._fence.directory(SPARK)

    def _unchanged(self, intent: Intent) -> dict[str, Epoch]:
        """Which routings are those of the epoch before, and since when they have held."""
        before = self.decided(intent.epoch - 1)
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
                str(self.checkpoint),
                f"epoch {ours.epoch} was run before, by generation {found.generation}, with other "
                "input: Spark's offsets of this epoch or its query id have changed since. "
                "Restore the whole checkpoint, spark/ and godwit/, from one backup",
            )

    def _create(self, name: str, data: bytes) -> None:
        with self._fenced_off():
            self._fenced.create(name, data)

    @contextmanager
    def _fenced_off(self) -> Iterator[None]:
        """Say FencedError when a change fails because a newer driver closed our fence."""
        try:
            yield
        except (FileNotFoundError, FileExistsError, NotADirectoryError):
            try:
                self.check()
            except FencedError as fenced:
                raise fenced from None
            raise


def _same_routing(one: Routing, other: Routing) -> bool:
    return one is other or one == other


def _lay_out(history: History) -> None:
    """Make the format file and the directories of a checkpoint, or check those it has."""
    files = history.files
    if not files.exists(FORMAT):
        if history.epochs():
            raise DamagedFileError(
                files.address(FORMAT),
                "is missing although the checkpoint holds manifests; "
                "restore the checkpoint from a backup",
            )
        files.make()
        with suppress(FileExistsError):  # another driver made it at the same time
            files.create(FORMAT, encode("checkpoint", {"created": time.time()}))
    history.check_layout()
    for directory in _DIRECTORIES:
        files.make(directory)


def _take(history: History) -> tuple[int, Fence]:
    """Take the next generation, behind a fence of its own.

    The fence is there before the record that names its generation, and records are never deleted:
    whoever takes a later generation finds the fence of every earlier one.
    """
    while True:
        number = history.newest_generation() + 1
        fence = Fence(history.checkpoint, f"{HOME}/{STAGING}", number)
        taken = Generation(number, socket.gethostname(), getpid(), time.time())
        try:
            record = encode("generation", taken.to_json())
            fence.store.within(HOME).create(generation_name(number), record)
            return number, fence
        except FileExistsError:
            fence.withdraw()
        except (FileNotFoundError, NotADirectoryError):
            if fence.is_open:
                raise
            # A later driver closed our fence before we had a generation: take the next.
