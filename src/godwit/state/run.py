"""Rows of one state table in the order of their hash, and the segments of the hash space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.model.routing import SEGMENTS, Routing
from godwit.state.table import HASH

SEGMENT_BITS: Final = SEGMENTS.bit_length() - 1

_SHIFT: Final = np.uint64(64 - SEGMENT_BITS)
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


def segments_of(routing: Routing, worker: int) -> list[int]:
    """The segments in which a worker has bins, or parts of a bin.

    >>> segments_of(Routing.even(bins=2, workers=2), 1) == list(range(32, 64))
    True
    """
    repeated = np.repeat(routing.owners, max(1, SEGMENTS // routing.bins))
    found: list[int] = np.flatnonzero(
        (repeated.reshape(SEGMENTS, -1) == worker).any(axis=1)
    ).tolist()
    return found


def _below(hash: npt.NDArray[np.uint64], bound: int) -> int:
    """How many of the sorted hashes are less than `bound`, which may be 2**64."""
    return len(hash) if bound >= 1 << 64 else int(np.searchsorted(hash, np.uint64(bound)))
