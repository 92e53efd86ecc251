"""How many records each bin got in an epoch."""

import base64
import zlib
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from godwit.model.hashing import Hashes

FINEST: Final = 1 << 16  # with more bins than that, neighbours are counted together

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """Records by bin, of the bins that got any: what an epoch keeps grows with what it touched.

    >>> loads = Loads.of(np.array([0, 1 << 62, 1 << 63, 1 << 63], np.uint64), bins=4)
    >>> loads.bins.tolist(), loads.records.tolist()
    ([0, 1, 2], [1, 1, 2])
    >>> told = Loads.from_text(loads.to_text())
    >>> told.by_bin(4).tolist(), told.by_bin(2).tolist(), told.by_bin(8).tolist()[:4]
    ([1.0, 1.0, 2.0, 0.0], [2.0, 2.0], [0.5, 0.5, 0.5, 0.5])
    """

    bins: Counts
    records: Counts
    counted: int | None = None  # how many bins there were; older manifests do not tell

    @classmethod
    def of(cls, hashes: Hashes, bins: int, records: Counts | None = None) -> Self:
        """Of so many bins; each hash is that of one record, or of as many as `records` says."""
        bits = min(bins, FINEST).bit_length() - 1
        if not bits:
            total = len(hashes) if records is None else int(records.sum())
            return cls(np.zeros(1, np.int64), np.array([total]), 1)
        places = (hashes >> np.uint64(64 - bits)).view(np.int64)
        counts = np.bincount(places, records).astype(np.int64)  # exact up to 2^53
        touched = np.flatnonzero(counts)
        return cls(touched, counts[touched], 1 << bits)

    def by_bin(self, bins: int) -> npt.NDArray[np.float64]:
        """Of each of `bins` bins; those that were counted together get equal shares."""
        highest = int(self.bins.max(initial=0))
        counted = self.counted or max(min(bins, FINEST), 1 << highest.bit_length())
        records = np.bincount(self.bins, self.records, minlength=counted)
        if bins < counted:  # merged since
            merged: npt.NDArray[np.float64] = records.reshape(bins, -1).sum(axis=1)
            return merged
        return np.repeat(records * (counted / bins), bins // counted)

    def to_text(self) -> str:
        packed = np.stack([np.diff(self.bins, prepend=0), self.records]).astype("<u4")
        text = base64.b64encode(zlib.compress(packed.tobytes(), 1)).decode()
        return text if self.counted is None else f"{self.counted}:{text}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        counted, _, body = text.rpartition(":")
        packed = np.frombuffer(zlib.decompress(base64.b64decode(body)), "<u4").reshape(2, -1)
        steps, records = packed.astype(np.int64)
        return cls(np.cumsum(steps), records, int(counted) if counted else None)
