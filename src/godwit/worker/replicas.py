"""Replicas: files of a worker's bins on executors where it does not run, and how far they are.

Which executor holds which is in the intent (`placement`). An executor says in a file of its own
what it has. The file is a hint: nothing is lost with it, and what it does not say is not known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from godwit.errors import DamagedFileError
from godwit.log.intent import Intent
from godwit.log.layout import REPLICAS, replicas_name
from godwit.log.records import decode_as, encode
from godwit.model.files import FileRef
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.model.manifest import Manifest
from godwit.placement.slots import Held, by_worker
from godwit.state.run import slices_of
from godwit.storage.store import Store

KIND = "replicas"


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker needs of a manifest: its slices by operator, and their files by name."""

    slices: Mapping[str, Sequence[int]]
    files: Mapping[str, FileRef]  # older ones first, table by table

    @classmethod
    def of(cls, worker: WorkerId, intent: Intent, manifest: Manifest) -> Self:
        slices = {
            name: slices_of(routing)[worker].tolist()
            for name, routing in intent.routings.items()
            if worker < routing.workers
        }
        files = {
            ref.name: ref
            for name, own in slices.items()
            for tree in manifest.trees.get(name, {}).values()
            for ref in tree.refs(own)
        }
        return cls(slices, files)


@dataclass(frozen=True, slots=True)
class Needs:
    """The files that an executor should have: of its own workers, and of those it stands by for."""

    own: Mapping[str, FileRef]
    replicas: Mapping[WorkerId, Share]

    @classmethod
    def of(cls, executor: ExecutorId, intent: Intent, manifest: Manifest) -> Self:
        placement = intent.placement.placement if intent.placement else None
        own: dict[str, FileRef] = {}
        for worker, home in by_worker(placement.homes if placement else ()):
            if home == executor:
                own |= Share.of(worker, intent, manifest).files
        replicas = {
            worker: Share.of(worker, intent, manifest)
            for worker, executors in by_worker(placement.replicas if placement else ())
            if executor in executors
        }
        return cls(own, replicas)

    def affordable(self, room: int) -> dict[str, FileRef]:
        """The files of replicas to keep, if `room` bytes are there for all.

        What the executor's own workers need goes first, also if they do not have it yet. Of what is
        left each replica gets its part or, if it does not fit, nothing.
        """
        chosen: dict[str, FileRef] = {}
        room -= sum(ref.bytes for ref in self.own.values())
        for share in self.replicas.values():
            added = share.files.keys() - self.own.keys() - chosen.keys()
            size = sum(share.files[name].bytes for name in added)
            if size <= room:
                room -= size
                chosen |= share.files
        return chosen


@dataclass(frozen=True, slots=True)
class KeeperProgress:
    """What one executor says of its replicas, by worker.

    `epoch` is the newest that it knew. It has fetched `bytes` and used `seconds` of processor time
    since its process `pid` started. `failed` are files that it could not fetch.
    """

    executor: ExecutorId
    pid: int
    epoch: Epoch
    workers: Mapping[WorkerId, Held]
    bytes: int
    seconds: float
    failed: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "executor": self.executor,
            "pid": self.pid,
            "epoch": self.epoch,
            "workers": {str(worker): asdict(held) for worker, held in self.workers.items()},
            "bytes": self.bytes,
            "seconds": self.seconds,
            "failed": list(self.failed),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        workers = {WorkerId(int(one)): Held(**held) for one, held in data["workers"].items()}
        return cls(**{**data, "workers": workers, "failed": tuple(data["failed"])})


def write_progress(files: Store, generation: int, progress: KeeperProgress) -> None:
    """Say what an executor has, in place of what it said before."""
    name = replicas_name(generation, progress.executor)
    files.replace(name, encode(KIND, progress.to_json()))


def clear_progress(files: Store, generation: int, executor: ExecutorId | None = None) -> None:
    """Delete what an executor said; without one, all that was said before this generation."""
    if executor is not None:
        files.delete(replicas_name(generation, executor))
        return
    for name in files.names(REPLICAS):
        number = name.partition("-")[0]
        if number.isdecimal() and int(number) < generation:
            files.delete(f"{REPLICAS}/{name}")


def read_reports(files: Store, generation: int) -> dict[ExecutorId, KeeperProgress]:
    """What the executors of a generation say, by their ids; a file that is damaged says nothing."""
    found = {}
    for name in files.list_files(REPLICAS):
        if name.startswith(f"{REPLICAS}/{generation}-"):
            path = files.address(name)
            try:
                progress = decode_as(path, files.read(name), KIND, KeeperProgress.from_json)
            except (OSError, DamagedFileError):
                continue
            found[progress.executor] = progress
    return found


def read_progress(files: Store, generation: int) -> dict[ExecutorId, Mapping[WorkerId, Held]]:
    """How far the replicas of each executor are, by worker; of what is missing nothing is known."""
    return {name: report.workers for name, report in read_reports(files, generation).items()}
