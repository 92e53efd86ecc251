"""The keeper: a process beside an executor that has the files of replicas ahead of need.

Tasks tell it which epochs begin, and what they write; the checkpoint's log tells it what its
replicas need. An epoch never waits for it, and its report says no more than is in the executor's
cache.
"""

import base64
import logging
import os
import pickle
import socket
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
from godwit.model.files import FileRef
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.model.manifest import Manifest
from godwit.placement.slots import Held
from godwit.state.cache import TOUCH_SECONDS, CacheSpec
from godwit.storage.store import Store
from godwit.worker.chain_events import Need, Written
from godwit.worker.executor_process import Process
from godwit.worker.log_watch import LogWatch
from godwit.worker.neighbours import Inbox, Neighbours, News
from godwit.worker.peers import Peers, listen
from godwit.worker.replicas import (
    KeeperProgress,
    Needs,
    Share,
    clear_progress,
    replicas_on,
    write_progress,
)

LOCK: Final = "keeper.lock"  # held by the keeper of this cache
LOG: Final = "keeper.log"

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
    neighbours: Neighbours

    def to_text(self) -> str:
        fields = self.checkpoint, self.generation, self.cache, self.executor, self.neighbours
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
    is deleted with the cache when the query ends. With a `listener` files come from peers, too.
    """

    def __init__(
        self,
        spec: KeeperSpec,
        lock: int,
        clock: Callable[[], float] = time.monotonic,
        listener: socket.socket | None = None,
    ) -> None:
        self._spec = spec
        self._lock = lock
        self._clock = clock
        self._history = History(spec.checkpoint)
        self._files = spec.cache.open(self._history.files, yields=True)
        near = spec.neighbours
        self._log = LogWatch(self._history, spec.generation, near.epoch)
        self._peers = Peers(spec.executor, self._files, near.key, listener, clock)
        self._peers.know(near.addresses)
        self._told_of = threading.Event()
        self._whole: dict[WorkerId, Whole] = {}
        self._failed: dict[str, float] = {}  # when files could not be fetched
        self._told: KeeperProgress | None = None
        self._told_at = 0.0
        self._touched = -TOUCH_SECONDS
        self._done = False

    @property
    def is_over(self) -> bool:
        """Whether the query has ended, or another driver took its checkpoint over."""
        return self._log.is_over or not os.fstat(self._lock).st_nlink

    @property
    def has_news(self) -> bool:
        """Is it time to look at the log, or over?"""
        return not self._log.seconds or self.is_over

    def hear(self, told: News | Written) -> None:
        """Learn what a task tells; any thread may call it."""
        match told:
            case News(epoch, addresses):
                self._log.hear(epoch)
                self._peers.know(addresses)
                self._peers.wake()
                self._told_of.set()
            case Written():
                self._peers.written(told)

    def wait(self) -> None:
        """Until there may be something to do."""
        self._told_of.wait(min(self._log.seconds, RETRY))
        self._told_of.clear()

    def keep(self) -> bool:
        """Get what replicas lack of the newest epoch.

        False if something is left to do, since there is news or a file could not be fetched.
        """
        self._peers.look()
        changed = self._log.look() if not self._log.seconds else False
        manifest, intent = self._log.manifest, self._log.intent
        if manifest is None and intent is not None:  # what the first epoch writes may come
            self._peers.plan(replicas_on(self._spec.executor, intent), {})
        if manifest is None or intent is None or (self._done and not changed):
            return True
        self._done = self._bring(manifest, intent)
        return self._done

    def close(self) -> None:
        """Talk to nobody any more."""
        self._peers.close()

    def _bring(self, manifest: Manifest, intent: Intent) -> bool:
        needs = Needs.of(self._spec.executor, intent, manifest)
        wanted = needs.affordable(self._files.room)
        now = self._clock()
        self._failed = {name: at for name, at in self._failed.items() if name in wanted}
        here = self._tell(manifest.epoch, needs, wanted)
        lacking = {
            name: Need(ref, needs.sources(name))
            for name, ref in wanted.items()
            if name not in here and now >= self._failed.get(name, -AGAIN) + AGAIN
        }
        self._peers.plan(needs.kept(wanted), lacking)
        while self._peers.lacking:
            ref = self._peers.next_fetch(TELL)
            if ref is not None and not self._fetch(ref):
                newest = max(self._history.epochs(), default=manifest.epoch)
                if newest != manifest.epoch:  # which may do without the file
                    self._log.hear(newest)
                    return False
                self._failed[ref.name] = self._clock()
            self._peers.look()
            if self.has_news:
                return False
            if self._clock() > self._told_at + TELL:
                self._tell(manifest.epoch, needs, wanted)
        if not here >= wanted.keys():
            here = self._tell(manifest.epoch, needs, wanted)
        return here >= wanted.keys()

    def _fetch(self, ref: FileRef) -> bool:
        """Read a file from the store."""
        try:
            self._files.fetch(ref)
        except DamagedFileError as error:
            log.warning("%s", error)
        sound = self._files.has(ref)
        if sound:
            self._failed.pop(ref.name, None)
        self._peers.fetched(ref, sound=sound)
        return sound

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
            address=self._peers.address,
            received=self._peers.received,
        )
        if self._told is None or _differ(progress, self._told):
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


def _differ(progress: KeeperProgress, told: KeeperProgress) -> bool:
    """Apart from what is counted on and on."""
    return replace(progress, seconds=told.seconds, received=told.received) != told


def run(spec: KeeperSpec, lock: int, host: str = "") -> None:
    """Keep replicas until the query has ended or belongs to another driver."""
    listener = listen(host) if host and spec.neighbours.key is not None else None
    keeper, trouble = Keeper(spec, lock, listener=listener), ""
    inbox = Inbox(spec.cache.path)
    threading.Thread(target=_hear, args=(keeper, inbox), name="godwit-inbox", daemon=True).start()
    clear_progress(History(spec.checkpoint).files, spec.generation)
    while not keeper.is_over:
        try:
            keeper.keep()
        except (OSError, GodwitError) as error:  # what cannot be read now may be later
            if str(error) != trouble:
                log.exception("cannot follow the log, and tries again")
            trouble = str(error)
            time.sleep(RETRY)
        keeper.wait()
    keeper.close()
    _retract(spec)
    if not (spec.cache.path / LOCK).exists():  # a fetch may have made the directory again
        spec.cache.delete()


def _hear(keeper: Keeper, inbox: Inbox) -> None:
    while True:
        try:
            for told in inbox.take():
                keeper.hear(told)
        except (ValueError, LookupError, TypeError):  # of another version, which it outlived
            log.exception("a task told something that means nothing")


def _retract(spec: KeeperSpec) -> None:
    """Say nothing more of replicas that nobody keeps from now on."""
    with suppress(OSError):
        clear_progress(History(spec.checkpoint).files, spec.generation, spec.executor)


def main() -> None:
    """`python -m godwit.worker.keeper PID STARTED LOCK HOST`: end with the process PID, at once.

    LOCK is a descriptor of the locked file, HOST the executor's address. What it is to keep comes
    by its input, since others may see a command line.
    """
    spec, executor = KeeperSpec.from_text(sys.stdin.read()), Process(*map(int, sys.argv[1:3]))
    logging.basicConfig(format="%(asctime)s %(message)s")
    os.nice(NICE)
    threading.Thread(target=_end_with, args=(executor, spec), daemon=True).start()
    run(spec, int(sys.argv[3]), sys.argv[4])


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
