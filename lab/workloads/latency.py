"""Latencies in buckets of a logarithmic scale, so that millions of them cost nothing to keep."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

PARTS: Final = 16  # buckets for each power of two: a latency is told with an error below 1/16

_LINEAR: Final = 4  # bits of PARTS: below it a bucket holds one value
_BUCKETS: Final = PARTS * 64

Latencies = npt.NDArray[np.int64]


@dataclass(slots=True)
class Histogram:
    """Counts latencies, in microseconds; the greatest one is kept as it is.

    >>> histogram = Histogram()
    >>> histogram.add(np.array([1, 2, 3, 1000]))
    >>> histogram.percentile(50), histogram.percentile(100), histogram.total
    (2, 1000, 4.0)
    """

    counts: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(_BUCKETS))
    greatest: int = 0

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    def add(self, latencies: Latencies, each: float = 1.0) -> None:
        """Count these, each of which may stand for several, or for a part of one."""
        if len(latencies) and each:
            self.counts += each * np.bincount(_bucket(latencies), minlength=_BUCKETS)
            self.greatest = max(self.greatest, int(latencies.max()))

    def percentile(self, percent: float) -> int:
        """A latency that so many percent do not exceed: the upper end of a bucket."""
        if not self.total:
            return 0
        summed = np.cumsum(self.counts)
        wanted = summed[-1] * percent / 100
        bucket = int(np.searchsorted(summed, wanted * (1 - 1e-12)))  # sums of shares are inexact
        return min(int(_upper(np.array([bucket]))[0]), self.greatest)

    def ccdf(self) -> list[tuple[int, float]]:
        """For each bucket that holds some: its upper end, and the share of greater latencies."""
        held = np.flatnonzero(self.counts)
        greater = 1 - np.cumsum(self.counts)[held] / (self.total or 1)
        ends = np.minimum(_upper(held), self.greatest)
        return list(zip(ends.tolist(), np.maximum(greater, 0.0).tolist(), strict=True))


def _bucket(latencies: Latencies) -> Latencies:
    values = np.maximum(latencies, 0)
    exponent = np.frexp(np.maximum(values, 1).astype(np.float64))[1] - 1 - _LINEAR
    shift = np.maximum(exponent, 0)
    buckets: Latencies = shift * PARTS + (values >> shift)
    return buckets


def _upper(buckets: Latencies) -> Latencies:
    """The greatest latency of each bucket."""
    shift = np.maximum(buckets // PARTS - 1, 0)
    greatest: Latencies = ((buckets - shift * PARTS + 1) << shift) - 1
    return greatest
