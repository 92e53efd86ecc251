"""Which worker computes which bin: an immutable value that changes only between epochs."""

import base64
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError, RefusedError
from godwit.model.ids import BinId, WorkerId
from godwit.model.text import plural

MAX_BITS = 20
MAX_WORKERS = 1 << 16
SEGMENTS = 64  # parts of the space of hashes by which files of state are cut
SLACK = 1.05  # of its share: what a worker may have so that no segment is cut in two


@dataclass(frozen=True, slots=True)
class Update:
    """From `epoch` on, `bin` is computed by `worker`.

    >>> Update(epoch=7, bin=3, worker=1)  # query.schedule([...])
    Update(epoch=7, bin=3, worker=1)
    """

    epoch: int
    bin: int
    worker: int


@dataclass(frozen=True, slots=True)
class Move:
    """One bin changing worker.

    >>> list(Routing.even(4, 1).moves_to(Routing.even(4, 2)))[0]
    Move(bin=2, source=0, target=1)
    """

    bin: BinId
    source: WorkerId
    target: WorkerId


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """The worker of every bin; every bin has exactly one owner below `workers`.

    >>> routing = Routing.even(bins=8, workers=2)
    >>> routing.owners.tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    >>> routing.assign({3: 1}).bins_of(1).tolist()
    [3, 4, 5, 6, 7]
    """

    owners: npt.NDArray[np.int32]
    workers: int

    def __post_init__(self) -> None:
        check_bins(len(self.owners))
        check_workers(self.workers)
        strays = self.owners[(self.owners < 0) | (self.owners >= self.workers)]
        if len(strays):
            raise ConfigError(
                f"a routing over {plural(self.workers, 'worker')} names worker {strays[0]}; "
                f"workers are numbered 0 to {self.workers - 1}"
            )
        owners = np.ascontiguousarray(self.owners, dtype=np.int32)
        if owners.flags.writeable:
            owners = owners.copy()
            owners.setflags(write=False)
        object.__setattr__(self, "owners", owners)

    @classmethod
    def even(cls, bins: int, workers: int) -> Self:
        """Contiguous, about equally many bins a worker.

        No two workers have bins of one segment if that costs little, so that files are fewer and
        who gets all bins of a worker fetches little else.

        >>> np.bincount(Routing.even(4096, 3).owners).tolist()
        [1408, 1344, 1344]
        """
        check_bins(bins)
        check_workers(workers)
        parts = SEGMENTS if _has_whole_segments(bins, workers) else bins
        owners = np.arange(parts, dtype=np.int64) * workers // parts
        return cls(np.repeat(owners, bins // parts).astype(np.int32), workers)

    @property
    def bins(self) -> int:
        return len(self.owners)

    @property
    def bits(self) -> int:
        return self.bins.bit_length() - 1

    def bins_at(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """The bin of each hash: its top bits."""
        bins = hashes >> np.uint64(63 - self.bits) >> np.uint64(1)  # a shift by 64 is undefined
        return bins.astype(np.int32)

    def owners_at(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """The worker of each hash.

        >>> Routing.even(8, 2).owners_at(np.array([0, 2**63], np.uint64)).tolist()
        [0, 1]
        """
        return self.owners[self.bins_at(hashes)]

    def bins_of(self, worker: int) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.owners == worker)

    def assign(
        self,
        owners: Mapping[BinId, WorkerId] | Mapping[int, int],
        workers: int | None = None,
    ) -> "Routing":
        """This routing with other owners for some bins, and perhaps another number of workers."""
        workers = self.workers if workers is None else workers
        changed = self.owners.copy()
        for bin, worker in owners.items():
            if not 0 <= bin < self.bins:
                raise RefusedError(f"unknown bin {bin}: bins are numbered 0 to {self.bins - 1}")
            if not 0 <= worker < workers:
                raise RefusedError(f"unknown worker {worker}: workers are 0 to {workers - 1}")
            changed[bin] = worker
        if changed.max() >= workers:
            bin = int(changed.argmax())
            raise RefusedError(
                f"worker {changed[bin]} cannot be retired: it would still own bin {bin}"
            )
        return Routing(changed, workers)

    def moves_to(self, target: "Routing") -> Iterator[Move]:
        """The moves that lead from here to `target`, in the order of the bins."""
        if target.bins != self.bins:
            raise ConfigError(
                f"a routing of {plural(self.bins, 'bin')} cannot move to "
                f"{plural(target.bins, 'bin')}"
            )
        bins = np.flatnonzero(self.owners != target.owners)
        yield from moves_of(bins, self.owners, target.owners)

    def spread(self, workers: int) -> "Routing":
        """The bins spread evenly over `workers`, with as few moves as possible.

        Like `even`, it cuts no segment in two if that costs little.

        >>> Routing.even(8, 2).spread(4).owners.tolist()
        [0, 0, 2, 2, 1, 1, 3, 3]
        >>> Routing.even(8, 4).spread(2).owners.tolist()
        [0, 0, 1, 1, 0, 0, 1, 1]
        """
        check_workers(workers)
        if _has_whole_segments(self.bins, workers):
            segments = self.owners.reshape(SEGMENTS, -1)
            if (segments == segments[:, :1]).all():
                whole = Routing(segments[:, 0], self.workers).spread(workers)
                return Routing(np.repeat(whole.owners, self.bins // SEGMENTS), workers)
        counts = np.bincount(self.owners, minlength=workers)
        share, more = divmod(self.bins, workers)
        # Those who have most may keep one more, which saves moves.
        quotas = np.zeros(len(counts), np.int64)
        quotas[:workers] = share
        quotas[np.argsort(-counts[:workers], kind="stable")[:more]] += 1
        order = np.argsort(self.owners, kind="stable")
        rank = np.empty(self.bins, np.int64)  # of a bin among those of its owner
        rank[order] = np.arange(self.bins) - np.repeat(np.cumsum(counts) - counts, counts)
        surplus = rank >= quotas[self.owners]
        owners = self.owners.copy()
        owners[surplus] = np.repeat(np.arange(len(quotas)), np.maximum(quotas - counts, 0))
        return Routing(owners, workers)

    def digest(self) -> str:
        """A short name of this routing, by which a plan knows the one that it was made for."""
        return hashlib.sha256(self.owners.tobytes() + str(self.workers).encode()).hexdigest()[:16]

    def toward(self, target: "Routing", bins: npt.NDArray[np.int64]) -> "Routing":
        """This routing with `bins` where `target` has them.

        On the way there are as many workers as `target` has, or as still own a bin.

        >>> half = Routing.even(4, 4).toward(Routing.even(4, 2), np.array([1, 3]))
        >>> half.owners.tolist(), half.workers
        ([0, 0, 2, 1], 3)
        """
        owners = self.owners.copy()
        owners[bins] = target.owners[bins]
        return Routing(owners, max(target.workers, int(owners.max()) + 1))

    @property
    def fewest_bins(self) -> int:
        """With how many bins, at least, every hash can have the worker that it has.

        >>> Routing.even(64, 4).fewest_bins
        4
        """
        owners = self.owners
        while len(owners) > 1 and np.array_equal(owners[::2], owners[1::2]):
            owners = owners[::2]
        return len(owners)

    def with_bins(self, bins: int) -> "Routing":
        """The same hash ranges at the same workers; a merged bin follows its first part.

        With no less than the `fewest_bins`, every hash keeps its worker.

        >>> Routing.even(4, 2).with_bins(8).owners.tolist()
        [0, 0, 0, 0, 1, 1, 1, 1]
        """
        check_bins(bins)
        if bins >= self.bins:
            return Routing(np.repeat(self.owners, bins // self.bins), self.workers)
        return Routing(self.owners[:: self.bins // bins], self.workers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Routing):
            return NotImplemented
        return self.workers == other.workers and np.array_equal(self.owners, other.owners)

    def __hash__(self) -> int:
        return hash((self.workers, self.owners.tobytes()))

    def to_json(self) -> dict[str, Any]:
        packed = base64.b64encode(zlib.compress(self.owners.astype("<u2").tobytes(), 1))
        return {"workers": self.workers, "owners": packed.decode()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        owners = np.frombuffer(zlib.decompress(base64.b64decode(data["owners"])), dtype="<u2")
        return cls(owners.astype(np.int32), data["workers"])


def moves_of(
    bins: npt.NDArray[np.int64], before: npt.NDArray[np.int32], after: npt.NDArray[np.int32]
) -> Iterator[Move]:
    """The moves of some bins, given the owners of all bins before and after."""
    return map(Move, bins.tolist(), before[bins].tolist(), after[bins].tolist())


def _has_whole_segments(bins: int, workers: int) -> bool:
    """Do workers, if they are given whole segments, have about as much as each other?"""
    few = bins > SEGMENTS >= 4 * workers
    return few and -(-SEGMENTS // workers) * workers <= SLACK * SEGMENTS


def check_bins(bins: int) -> None:
    whole = isinstance(bins, Integral) and 1 <= bins <= 1 << MAX_BITS
    if not whole or bins & (bins - 1):
        raise ConfigError(f"bins must be a power of two from 1 to 2^{MAX_BITS}, not {bins!r}")


def check_workers(workers: int) -> None:
    if not isinstance(workers, Integral) or not 1 <= workers <= MAX_WORKERS:
        raise ConfigError(f"workers must be from 1 to {MAX_WORKERS}, not {workers!r}")
