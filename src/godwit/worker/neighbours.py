"""What tasks know of keepers in an epoch, and what they tell the one beside them."""

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from godwit.model.files import FileRef
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.placement.slots import Placement, by_worker
from godwit.worker.chain_events import Written
from godwit.worker.peer_key import PeerKey

SOCKET: Final = "keeper.sock"  # of the keeper, in the cache of its executor
MOST: Final = 8  # executors that are asked for a file

_PACKET: Final = 1 << 17  # bytes
_FILES: Final = 200  # in a packet


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Which executors have what of each worker in an epoch, and how one reaches them.

    With a `key` keepers send each other what workers write, and tasks ask them for what they lack.
    `addresses` are those that keepers have told; one that is not there is not known.
    """

    epoch: Epoch
    homes: tuple[ExecutorId, ...]
    chains: Mapping[WorkerId, tuple[ExecutorId, ...]]
    key: PeerKey | None = None
    addresses: Mapping[ExecutorId, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        epoch: Epoch,
        placement: Placement,
        key: PeerKey | None,
        addresses: Mapping[ExecutorId, str],
    ) -> "Neighbours":
        chains = dict(by_worker(placement.replicas))
        known = {e: where for e, where in addresses.items() if where and e in placement.executors}
        return cls(epoch, placement.homes, chains, key, known if key else {})

    def nearest(self, worker: WorkerId, executor: ExecutorId) -> list[str]:
        """Where to ask for files of a worker that runs on an executor: those with its replicas
        first, then those from which bins may come."""
        order = dict.fromkeys((*self.chains.get(worker, ()), *self.homes))
        known = [one for one in order if one != executor and one in self.addresses]
        return [self.addresses[one] for one in known[:MOST]]


@dataclass(frozen=True, slots=True)
class News:
    """An epoch has begun, which tasks learn as they run in it; keepers have these addresses."""

    epoch: Epoch
    addresses: Mapping[ExecutorId, str] = field(default_factory=dict)


class Inbox:
    """What tasks tell the keeper of their executor."""

    def __init__(self, directory: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        with _reachable(directory) as path:
            with suppress(FileNotFoundError):
                os.unlink(path)
            self._socket.bind(path)

    def take(self) -> Sequence[News | Written]:
        """Wait for the next message."""
        data = json.loads(self._socket.recv(_PACKET))
        if "epoch" in data:
            return [News(data["epoch"], data["addresses"])]
        refs = map(FileRef.from_json, data["written"])
        return [Written(ref, data["worker"], tuple(data["chain"])) for ref in refs]


def tell_news(directory: Path, neighbours: Neighbours) -> None:
    """Tell the keeper that an epoch has begun."""
    _send(directory, [{"epoch": neighbours.epoch, "addresses": neighbours.addresses}])


def tell_written(
    directory: Path, refs: Sequence[FileRef], worker: WorkerId, chain: Iterable[ExecutorId]
) -> None:
    """Tell the keeper what a worker has written, and whom it is for."""
    written = [ref.to_json() for ref in refs]
    packets = [written[start : start + _FILES] for start in range(0, len(written), _FILES)]
    told = {"worker": worker, "chain": [*chain]}
    _send(directory, [{"written": packet, **told} for packet in packets])


def _send(directory: Path, messages: Iterable[object]) -> None:
    """To a keeper that is not there, or is busy, nothing is said: it finds out by itself."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        with _reachable(directory) as path:
            sender.connect(path)
        for message in messages:
            sender.send(json.dumps(message).encode())


@contextmanager
def _reachable(directory: Path) -> Iterator[str]:
    """The socket's path, which the system wants to be short, as directories of Spark are not."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)
