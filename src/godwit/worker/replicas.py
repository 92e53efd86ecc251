"""Replicas: files of a worker's bins on executors where it does not run, and how far they are.

Which executor holds which is in the intent (`placement`). An executor says in a file of its own
what it has. The file is a hint: nothing is lost with it, and what it does not say is not known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
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


def replicas_on(executor: ExecutorId, intent: Intent) -> frozenset[WorkerId]:
    """The workers whose replicas an executor is to keep."""
    replicas = intent.placement.placement.replicas if intent.placement else ()
    return frozenset(worker for worker, group in by_worker(replicas) if executor in group)


@dataclass(frozen=True, slots=True)
class Needs:
    """The files that an executor should have: of its own workers, and of those it stands by for."""

    own: Mapping[str, FileRef]
    replicas: Mapping[WorkerId, Share]
    holders: Mapping[WorkerId, Sequence[ExecutorId]] = field(default_factory=dict)

    @classmethod
    def of(cls, executor: ExecutorId, intent: Intent, manifest: Manifest) -> Self:
        placement = intent.placement.placement if intent.placement else None
        own: dict[str, FileRef] = {}
        for worker, home in by_worker(placement.homes if placement else ()):
            if home == executor:
                own |= Share.of(worker, intent, manifest).files
        replicas = {
            worker: Share.of(worker, intent, manifest)
            for worker in sorted(replicas_on(executor, intent))
        }
        holders = {
            worker: (placement.homes[worker], *placement.replicas[worker])
            for worker in replicas
            if placement is not None
        }
        return cls(own, replicas, holders)

    def sources(self, name: str) -> tuple[ExecutorId, ...]:
        """The executors that may have a file of a replica: those that run its worker first."""
        found = [self.holders[worker] for worker, one in self.replicas.items() if name in one.files]
        return tuple(dict.fromkeys(one for group in found for one in group))

    def kept(self, chosen: Mapping[str, FileRef]) -> frozenset[WorkerId]:
        """The workers of whose replicas all files are chosen, or here for others."""
        here = chosen.keys() | self.own.keys()
        return frozenset(w for w, share in self.replicas.items() if share.files.keys() <= here)

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

    `epoch` is the newest that it knew. Since its process `pid` started, it has fetched `bytes` from
    the checkpoint, `received` others from peers, and used `seconds` of processor time. `failed` are
    files that it could not fetch. Peers reach it at `address`, if they can.
    """

    executor: ExecutorId
    pid: int
    epoch: Epoch
    workers: Mapping[WorkerId, Held]
    bytes: int
    seconds: float
    failed: Sequence[str] = ()
    address: str = ""
    received: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "executor": self.executor,
            "pid": self.pid,
            "epoch": self.epoch,
            "workers": {str(worker): asdict(held) for worker, held in self.workers.items()},
            "bytes": self.bytes,
            "seconds": self.seconds,
            "failed": list(self.failed),
            "address": self.address,
            "received": self.received,
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
