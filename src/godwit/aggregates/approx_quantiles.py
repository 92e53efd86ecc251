"""Quantiles from how many values there are near each number."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords, OfColumn
from godwit.aggregates.columns import Values, numbers
from godwit.aggregates.lists import elements, lists_of
from godwit.aggregates.sum import Sum
from godwit.errors import ConfigError
from godwit.model.keys import Rows, changes

Buckets = npt.NDArray[np.int64]

_MANTISSA = 52  # bits of a double
_INFINITY = 2047  # its exponent
_HALF = 1 << 31  # makes a bucket a number that is not negative


@dataclass(frozen=True, slots=True)
class ApproxQuantiles(OfColumn):
    """How many values round to each number that has `bits` bits after the first.

    That depends on the values alone: sketches such as KLL or t-digest, which bound the error of the
    rank, depend on chance or on the order of values. The idea is that of Masson, Rim and Lee,
    "DDSketch" (2019), with numbers of a float's form in place of powers.
    """

    quantiles: tuple[float, ...]
    error: float

    @property
    def bits(self) -> int:
        return math.ceil(-math.log2(self.error)) - 1

    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        return {"_near": pa.list_(pa.int32()), "_counts": pa.list_(pa.int64())}

    def output(self, input: AggregateInput) -> pa.DataType:
        Sum(self.column).output(input)  # refuses what is no number
        return pa.list_(pa.float64())

    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        found, given = numbers(records.column(self.column).cast(pa.float64(), safe=False))
        rows = np.repeat(np.arange(len(state[0])), records.sizes)
        if given is not None:
            found, rows = found[given], rows[given]
        places = np.sort(_placed(rows, self._buckets(found)))
        starts = np.flatnonzero(changes(places))
        return _added(state, places[starts], np.diff(starts, append=len(places)))

    def merge(self, state: Columns, other: Columns) -> Columns:
        return _added(state, *_stored(other))

    def result(self, state: Columns, output: pa.DataType) -> pa.Array:
        rows, near = elements(state[0])
        seen = np.concatenate(([0], np.cumsum(elements(state[1])[1].to_numpy())))
        ends = np.searchsorted(rows, np.arange(len(state[0])), side="right")
        before, after = seen[np.concatenate(([0], ends[:-1]))], seen[ends]
        there = after > before
        shares = np.array(self.quantiles)
        wanted = np.maximum(np.ceil((after - before)[there, None] * shares), 1).astype(np.int64)
        at = np.searchsorted(seen[1:], before[there, None] + wanted)
        found = pa.array(self._numbers(near.to_numpy()[at].astype(np.int64)).ravel())
        lists = lists_of(np.repeat(np.flatnonzero(there), len(shares)), found, len(there))
        return pc.if_else(pa.array(there), lists, None)

    def _buckets(self, values: Values) -> Buckets:
        """The numbers that values round to, in their order; NaN is the largest."""
        shift = _MANTISSA - self.bits
        size: Buckets = np.abs(values).view(np.int64)
        infinity = _INFINITY << self.bits
        buckets = np.minimum(size + (1 << shift - 1) >> shift, infinity - 1)
        buckets = np.where(np.isinf(values), infinity, buckets)
        buckets = np.where(values < 0, -buckets, buckets)
        return np.where(np.isnan(values), infinity + 1, buckets)

    def _numbers(self, buckets: Buckets) -> Values:
        size = (np.abs(buckets) << _MANTISSA - self.bits).view(np.float64)
        return np.where(buckets < 0, -size, size)

    def __str__(self) -> str:
        shares = ", ".join(map(str, self.quantiles))
        return f"approx_quantiles({self.column}, [{shares}], {self.error})"


def _placed(rows: Rows, buckets: Buckets) -> Buckets:
    """A number for each row and bucket, in the order of both."""
    return rows << 32 | buckets + _HALF


def _stored(state: Columns) -> tuple[Buckets, Buckets]:
    """What the state holds: places, and how many values are in each."""
    rows, near = elements(state[0])
    return _placed(rows, near.to_numpy().astype(np.int64)), elements(state[1])[1].to_numpy()


def _added(state: Columns, new_places: Buckets, new_counts: Buckets) -> Columns:
    """The state with more values at some places."""
    places, counts = map(np.concatenate, zip(_stored(state), (new_places, new_counts), strict=True))
    order = np.argsort(places, kind="stable")
    places, counts = places[order], counts[order]
    first = np.flatnonzero(changes(places))
    if len(first):
        places, counts = places[first], np.add.reduceat(counts, first)
    rows, buckets = places >> 32, (places & (1 << 32) - 1) - _HALF
    return [
        lists_of(rows, pa.array(buckets, pa.int32()), len(state[0])),
        lists_of(rows, pa.array(counts, pa.int64()), len(state[0])),
    ]


def approx_quantiles(column: str, quantiles: Sequence[float], error: float = 0.01) -> Aggregate:
    """For each share the value that this share of all values does not exceed: a list of doubles.

    A result differs from a value of that rank by `error` times itself at most: 0.01 is one percent.
    Integers up to 128 come out exact. Nulls are skipped, NaN is the largest number.

    >>> str(approx_quantiles("ms", [0.5, 0.99]))
    'approx_quantiles(ms, [0.5, 0.99], 0.01)'
    """
    shares = tuple(float(share) for share in quantiles)
    if not shares or not all(0 <= share <= 1 for share in shares):
        raise ConfigError(f"quantiles are shares from 0 to 1, such as [0.5, 0.99], not {quantiles}")
    if not 0.0001 <= error <= 0.25:
        raise ConfigError(f"the error of quantiles can be from 0.0001 to 0.25, not {error}")
    return ApproxQuantiles(column, shares, error)
