"""The keeper: a process beside an executor that fetches the files of replicas ahead of need.

It follows the checkpoint's log and has no port. Rhino sends changes along a chain of workers
(section 4.2.2); here they are committed files, which whoever is to have them reads. An epoch never
waits for it, and its report says no more than is in the executor's cache.
"""

import base64
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Self

from godwit.errors import DamagedFileError, GodwitError
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.log.layout import generation_name, intent_name, manifest_name
from godwit.model.files import FileRef
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.model.manifest import Manifest
from godwit.placement.slots import Held
from godwit.state.cache import TOUCH_SECONDS, CacheSpec
from godwit.storage.store import Store
from godwit.worker.executor_process import Process
from godwit.worker.replicas import (
    KeeperProgress,
    Needs,
    Share,
    clear_progress,
    write_progress,
)

LOCK: Final = "keeper.lock"  # held by the keeper of this cache
LOG: Final = "keeper.log"

POLL: Final = 0.05
RETRY: Final = 1.0  # to look for what was overlooked, or could not be read
AGAIN: Final = 10.0  # after a file could not be fetched
TELL: Final = 0.5  # the least time between two reports on the way
NICE: Final = 10

log = logging.getLogger("godwit")


@dataclass(frozen=True, slots=True)
class KeeperSpec:
    """Whose replicas a keeper keeps: those of `executor`, for the driver of a generation."""

    checkpoint: Store
    generation: int
    cache: CacheSpec
    executor: ExecutorId

    def to_text(self) -> str:
        fields = self.checkpoint, self.generation, self.cache, self.executor
        return base64.b64encode(pickle.dumps(fields)).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(*pickle.loads(base64.b64decode(text)))


@dataclass(frozen=True, slots=True)
class Whole:
    """A replica that was there with all its files, as of an epoch."""

    epoch: Epoch
    share: Share


class Keeper:
    """Keeps the replicas of one executor; each `keep` is a look at the log and what follows of it.

    It reports an epoch of a replica only while all files that the epoch has in the worker's
    slices are in the cache. `lock` is a descriptor of the file `keeper.lock` in the cache, which
    is deleted with the cache when the query ends.
    """

    def __init__(
        self, spec: KeeperSpec, lock: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spec = spec
        self._lock = lock
        self._clock = clock
        self._history = History(spec.checkpoint)
        self._files = spec.cache.open(self._history.files, yields=True)
        self._manifest: Manifest | None = None
        self._intent: Intent | None = None
        self._whole: dict[WorkerId, Whole] = {}
        self._failed: dict[str, float] = {}  # when files could not be fetched
        self._told: KeeperProgress | None = None
        self._told_at = 0.0
        self._touched = -TOUCH_SECONDS
        self._done = False

    @property
    def is_over(self) -> bool:
        """Whether the query has ended, or another driver took its checkpoint over."""
        later = generation_name(self._spec.generation + 1)
        return self._history.files.exists(later) or not os.fstat(self._lock).st_nlink

    @property
    def has_news(self) -> bool:
        """Does the log go on behind what was seen of it, or end?"""
        files, manifest, intent = self._history.files, self._manifest, self._intent
        return (
            (manifest is not None and files.exists(manifest_name(manifest.epoch + 1)))
            or (intent is not None and files.exists(intent_name(intent.epoch + 1)))
            or self.is_over
        )

    def keep(self) -> bool:
        """Fetch what replicas lack of the newest epoch.

        False if something is left to do, since there is news or a file could not be fetched.
        """
        changed = self._look()
        if self._manifest is None or self._intent is None or (self._done and not changed):
            return True
        self._done = self._bring(self._manifest, self._intent)
        return self._done

    def _look(self) -> bool:
        """Read the newest manifest and intent; False if they mean the same as those before."""
        manifest, intent = self._manifest, self._intent
        epoch = max(self._history.epochs(), default=None)
        if epoch is not None and (manifest is None or manifest.epoch != epoch):
            manifest = self._history.manifest(epoch) or manifest
        decided = max(self._history.intents(), default=None)
        if decided is not None and (intent is None or intent.epoch != decided):
            intent = self._history.intent(decided) or intent
        changed = manifest is not self._manifest or not _place_alike(intent, self._intent)
        self._manifest, self._intent = manifest, intent
        return changed

    def _bring(self, manifest: Manifest, intent: Intent) -> bool:
        needs = Needs.of(self._spec.executor, intent, manifest)
        wanted = needs.affordable(self._files.room)
        self._failed = {name: at for name, at in self._failed.items() if name in wanted}
        here = self._tell(manifest.epoch, needs, wanted)
        for ref in (ref for name, ref in wanted.items() if name not in here):
            if self._clock() < self._failed.get(ref.name, -AGAIN) + AGAIN:
                continue
            if self._fetch(ref):
                self._failed.pop(ref.name, None)
            elif max(self._history.epochs(), default=None) == manifest.epoch:
                self._failed[ref.name] = self._clock()
            else:  # it may have been deleted, since newer epochs do without it
                return False
            if self.has_news:
                return False
            if self._clock() > self._told_at + TELL:
                self._tell(manifest.epoch, needs, wanted)
        if not here >= wanted.keys():
            here = self._tell(manifest.epoch, needs, wanted)
        return here >= wanted.keys()

    def _fetch(self, ref: FileRef) -> bool:
        try:
            self._files.fetch(ref)
        except DamagedFileError as error:
            log.warning("%s", error)
        return self._files.has(ref)

    def _tell(self, epoch: Epoch, needs: Needs, wanted: Mapping[str, FileRef]) -> set[str]:
        """Report what is here now, if that is not what was reported last; returns its names."""
        files = [*wanted.values(), *needs.own.values()]
        here = self._files.names_present(files)
        if self._clock() > self._touched + TOUCH_SECONDS:
            for ref in files:  # own files last: they are evicted last
                self._files.has(ref)
            self._touched = self._clock()
        progress = KeeperProgress(
            executor=self._spec.executor,
            pid=os.getpid(),
            epoch=epoch,
            workers=self._held(epoch, needs.replicas, here),
            bytes=self._files.fetched_bytes,
            seconds=round(time.process_time(), 3),
            failed=tuple(sorted(self._failed)),
        )
        if self._told is None or replace(progress, seconds=self._told.seconds) != self._told:
            write_progress(self._history.files, self._spec.generation, progress)
            self._told = progress
        self._told_at = self._clock()
        return here

    def _held(
        self, epoch: Epoch, replicas: Mapping[WorkerId, Share], here: set[str]
    ) -> dict[WorkerId, Held]:
        before, self._whole = self._whole, {}
        found = {}
        for worker, share in replicas.items():
            whole = before.get(worker)
            if here >= share.files.keys():
                whole = Whole(epoch, share)
            elif whole is not None and not self._holds(whole, share):
                whole = None
            if whole is not None:
                self._whole[worker] = whole
            lacking = sum(ref.bytes for name, ref in share.files.items() if name not in here)
            found[worker] = Held(whole.epoch if whole else None, lacking)
        return found

    def _holds(self, whole: Whole, share: Share) -> bool:
        """Is a replica of an earlier epoch still there, and of the slices that are wanted now?"""
        files = whole.share.files
        here = self._files.names_present(files.values())
        return whole.share.slices == share.slices and here == files.keys()


def _place_alike(one: Intent | None, other: Intent | None) -> bool:
    if one is None or other is None or one.placement != other.placement:
        return one is other
    return one.routings.keys() == other.routings.keys() and all(
        routing is other.routings[name] for name, routing in one.routings.items()
    )


def run(spec: KeeperSpec, lock: int) -> None:
    """Keep replicas until the query has ended or belongs to another driver."""
    keeper, trouble = Keeper(spec, lock), ""
    clear_progress(History(spec.checkpoint).files, spec.generation)
    while not keeper.is_over:
        try:
            keeper.keep()
        except (OSError, GodwitError) as error:  # what cannot be read now may be later
            if str(error) != trouble:
                log.exception("cannot follow the log, and tries again")
            trouble = str(error)
            time.sleep(RETRY)
        end = time.monotonic() + RETRY
        while time.monotonic() < end and not keeper.has_news:
            time.sleep(POLL)
    _retract(spec)
    if not (spec.cache.path / LOCK).exists():  # a fetch may have made the directory again
        spec.cache.delete()


def _retract(spec: KeeperSpec) -> None:
    """Say nothing more of replicas that nobody keeps from now on."""
    with suppress(OSError):
        clear_progress(History(spec.checkpoint).files, spec.generation, spec.executor)


def main() -> None:
    """`python -m godwit.worker.keeper PID STARTED LOCK`: end with the process PID, at once.

    LOCK is a descriptor of the locked file. The spec comes on the standard input, since others see
    the command line and a store may have credentials.
    """
    spec, executor = KeeperSpec.from_text(sys.stdin.readline()), Process(*map(int, sys.argv[1:3]))
    logging.basicConfig(format="%(asctime)s %(message)s")
    os.nice(NICE)
    threading.Thread(target=_end_with, args=(executor, spec), daemon=True).start()
    run(spec, int(sys.argv[3]))


def _end_with(executor: Process, spec: KeeperSpec) -> None:
    """Leave no cache of an executor that has ended: it is in a directory that Spark made for that
    one alone, and its links keep the space of files that the checkpoint does without."""
    executor.wait()
    _retract(spec)
    with suppress(OSError):  # in the place of this process, so that nothing is fetched meanwhile
        os.execvp("rm", ["rm", "-rf", "--", str(spec.cache.path)])
    os._exit(0)


if __name__ == "__main__":
    main()
