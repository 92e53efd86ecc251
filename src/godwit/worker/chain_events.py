"""What keepers tell each other of files, what happens to one, and what it then has to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from godwit.model.files import FileRef
from godwit.model.ids import NO_EXECUTOR, ExecutorId, WorkerId

STORE: Final = NO_EXECUTOR  # the place that has all files, where sources are meant


# -- messages between keepers


@dataclass(frozen=True, slots=True)
class Offer:
    """The sender has a file of a worker, for the receiver and then for those `behind` it."""

    ref: FileRef
    worker: WorkerId
    behind: tuple[ExecutorId, ...]


@dataclass(frozen=True, slots=True)
class Want:
    """The sender has room for a file, and the receiver may send it: its credit."""

    ref: FileRef


@dataclass(frozen=True, slots=True)
class Lack:
    """The answer to `Want` of one that has no such file; else the answer is the file."""

    name: str


@dataclass(frozen=True, slots=True)
class Ack:
    """The sender has a file that it was offered, and so have all behind it that keep it."""

    name: str


@dataclass(frozen=True, slots=True)
class Decline:
    """The sender does not keep a file that it was offered, and hands nothing on."""

    name: str


Message = Offer | Want | Lack | Ack | Decline


# -- events


@dataclass(frozen=True, slots=True)
class Written:
    """A worker of this executor has written a file, and `chain` is its replica group."""

    ref: FileRef
    worker: WorkerId
    chain: tuple[ExecutorId, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """A message of a peer. `here` says of `Offer` and `Want` whether the cache has the file."""

    peer: ExecutorId
    message: Message
    here: bool = False


@dataclass(frozen=True, slots=True)
class Came:
    """A file came from a peer or from the store; unless `sound`, it is not in the cache."""

    name: str
    source: ExecutorId
    sound: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """A peer cannot be reached: nothing that was sent to it counts, and nothing more comes."""

    peer: ExecutorId


@dataclass(frozen=True, slots=True)
class Back:
    """A peer that was lost may be tried again."""

    peer: ExecutorId


@dataclass(frozen=True, slots=True)
class Need:
    """A file that a replica lacks, and the executors that may have it, the nearest first."""

    ref: FileRef
    sources: tuple[ExecutorId, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """What replicas are to be here, those of `workers`, and all that they lack of an epoch."""

    workers: frozenset[WorkerId]
    needs: Mapping[str, Need]


ChainEvent = Written | Heard | Came | Lost | Back | Planned


# -- orders


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message to a peer; who cannot be reached is `Lost`."""

    peer: ExecutorId
    message: Message


@dataclass(frozen=True, slots=True)
class Deliver:
    """Send a file from the cache to a peer that wants it."""

    peer: ExecutorId
    ref: FileRef


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read a file from the store into the cache."""

    ref: FileRef


ChainOrder = Tell | Deliver | Fetch
