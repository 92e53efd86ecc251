"""Rows of one state table in the order of their hash, and the parts of the hash space.

A segment is a 64th of it, by which files are cut; a slice is a 64th of a segment, by which workers
that share a segment know what is theirs. A set of slices of a segment is an integer of 64 bits with
a sign, the lowest bit being the first slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.model.routing import SEGMENTS, Routing
from godwit.state.table import HASH

SEGMENT_BITS: Final = SEGMENTS.bit_length() - 1
SLICES: Final = 64  # of a segment

Slices = npt.NDArray[np.int64]
"""By worker and segment: a set of slices."""

_PARTS: Final = SEGMENTS * SLICES
_SHIFT: Final = np.uint64(64 - SEGMENT_BITS)
_SLICE_SHIFT: Final = np.uint64(64 - (_PARTS.bit_length() - 1))
_BORDERS: Final = np.arange(1, SEGMENTS, dtype=np.uint64) << _SHIFT


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rows of one state table in the order of their hash (unsigned).

    `hash` is a zero-copy view of the hash column; every column of `rows` has exactly one chunk.
    """

    hash: npt.NDArray[np.uint64]
    rows: pa.Table

    @classmethod
    def of(cls, rows: pa.Table) -> Run:
        """The run of `rows`, which must be in hash order; several chunks are combined.

        >>> run = Run.of(pa.table({"_hash": pa.array([1, 2, 2**63], pa.uint64())}))
        >>> run.between(2, 2**64).hash.tolist()
        [2, 9223372036854775808]
        """
        if any(column.num_chunks != 1 for column in rows.columns):
            rows = pa.table([c.combine_chunks() for c in rows.columns], schema=rows.schema)
        return cls(rows.column(HASH).chunk(0).to_numpy(), rows)

    def __len__(self) -> int:
        return len(self.hash)

    def slice(self, start: int, stop: int) -> Run:
        """Rows `start` up to `stop`, without a copy."""
        return Run(self.hash[start:stop], self.rows.slice(start, stop - start))

    def between(self, low: int, high: int) -> Run:
        """The rows whose hash is in [low, high), without a copy; `high` may be 2**64."""
        return self.slice(_below(self.hash, low), _below(self.hash, high))


def segment_of(hash: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The segment of each hash: its top bits.

    >>> segment_of(np.array([0, 2**58, 2**64 - 1], np.uint64)).tolist()
    [0, 1, 63]
    """
    return hash >> _SHIFT


def segment_offsets(hash: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """65 offsets into sorted hashes: segment s is rows `offsets[s]` up to `offsets[s + 1]`."""
    offsets = np.zeros(SEGMENTS + 1, np.int64)
    offsets[1:-1] = np.searchsorted(hash, _BORDERS)
    offsets[-1] = len(hash)
    return offsets


def in_slices(hash: npt.NDArray[np.uint64], slices: int) -> npt.NDArray[np.bool_]:
    """Which hashes are in a set of slices of their segment.

    >>> in_slices(np.array([0, 2**52, 2**58, 2**64 - 1], np.uint64), 0b1)
    array([ True, False,  True, False])
    """
    among = np.array([slices >> slice & 1 for slice in range(SLICES)], np.bool_)
    found: npt.NDArray[np.bool_] = among[(hash >> _SLICE_SHIFT) % np.uint64(SLICES)]
    return found


def in_sets(hash: npt.NDArray[np.uint64], sets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which hashes are in the sets of slices of one worker, segment by segment."""
    has = np.unpackbits(sets.view(np.uint8), bitorder="little").view(np.bool_)
    found: npt.NDArray[np.bool_] = has[hash >> _SLICE_SHIFT]
    return found


@lru_cache(maxsize=8)
def slices_of(routing: Routing) -> Slices:
    """The slices in which each worker has bins, or parts of a bin.

    >>> [hex(one) for one in slices_of(Routing.even(bins=64, workers=2))[:, 31]]
    ['-0x1', '0x0']
    >>> [hex(one) for one in slices_of(Routing(np.arange(128) % 2, workers=2))[:, 31]]
    ['0xffffffff', '-0x100000000']
    """
    parts = np.arange(max(routing.bins, _PARTS)) * _PARTS // max(routing.bins, _PARTS)
    return _sets(np.repeat(routing.owners, max(1, _PARTS // routing.bins)), parts, routing.workers)


@lru_cache(maxsize=8)
def dealt_slices(routing: Routing) -> Slices:
    """Every slice for one worker that has bins in it, and if several do, for each in turn."""
    parts, width = np.arange(_PARTS), max(1, routing.bins // _PARTS)
    owners = np.repeat(routing.owners, max(1, _PARTS // routing.bins)).reshape(_PARTS, width)
    return _sets(owners[parts, parts % width], parts, routing.workers)


def segments_of(routing: Routing, worker: int) -> list[int]:
    """The segments in which a worker has bins, or parts of a bin.

    >>> segments_of(Routing.even(bins=2, workers=2), 1) == list(range(32, 64))
    True
    """
    found: list[int] = np.flatnonzero(slices_of(routing)[worker]).tolist()
    return found


def _sets(owners: npt.NDArray[np.int32], parts: npt.NDArray[np.int64], workers: int) -> Slices:
    """Sets of the `parts`, slices of the whole hash space, that `owners` have."""
    has = np.zeros((workers, _PARTS), np.bool_)
    has[owners, parts] = True
    sets = np.packbits(has, axis=1, bitorder="little").view("<i8")
    sets.setflags(write=False)
    return sets


def _below(hash: npt.NDArray[np.uint64], bound: int) -> int:
    """How many of the sorted hashes are less than `bound`, which may be 2**64."""
    return len(hash) if bound >= 1 << 64 else int(np.searchsorted(hash, np.uint64(bound)))
