"""The variance and the standard deviation of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates import int128
from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords, OfColumn
from godwit.aggregates.columns import Values, column, is_number, numbers
from godwit.aggregates.count import Count
from godwit.aggregates.reduction import ADD
from godwit.aggregates.sum import MAX_DIGITS, Sum

_SQUARES: Final = pa.decimal128(MAX_DIGITS, 0)
_HALF: Final = 1 << 64  # squares of longs are summed in halves, for the sum of two may be too large
_LIMB: Final = 1 << 32
_LIMB_BITS: Final = np.uint64(32)

# For the result, which is exact for up to 10^15 records: 128 bits are too few for it.
_COUNT: Final = pa.decimal256(15, 0)
_TOTAL: Final = pa.decimal256(34, 0)
_TOTAL_SQUARES: Final = pa.decimal256(55, 0)


@dataclass(frozen=True, slots=True)
class Variance(OfColumn):
    """Exact sums of integers and of their squares; of other numbers their mean, and the sum of
    the squared distances from it.

    Exact sums know no order, so they fold early, and nothing cancels out, for they become a double
    at the very end. Decimals of up to 18 digits are integers here. Floats and larger decimals come
    in order: those of an epoch are joined with the state as in Chan, Golub and LeVeque, "Updating
    Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
    """

    sample: bool = True

    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        if self.ordered(input):
            return {"_count": pa.int64(), "_mean": pa.float64(), "_spread": pa.float64()}
        kind = input.type(self.column)
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        upper = {"_upper": _SQUARES} if _is_long(kind) else {}
        total = pa.decimal128(MAX_DIGITS, scale)
        return {"_count": pa.int64(), "_sum": total, "_squares": _SQUARES, **upper}

    def output(self, input: AggregateInput) -> pa.DataType:
        Sum(self.column).output(input)  # refuses what is no number
        return pa.float64()

    def ordered(self, input: AggregateInput) -> bool:
        kind = input.type(self.column)
        return bool(pa.types.is_floating(kind)) or not is_number(kind)

    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        values = records.column(self.column)
        if pa.types.is_floating(state[1].type):
            return _joined(state, _moments(records, values.cast(pa.float64())))
        if pa.types.is_integer(values.type):
            values = values.cast(pa.int64())
        whole, given = numbers(values)
        squares = (column(half, given, pa.uint64()) for half in _squares(whole))
        sums = zip((values, *squares), state[1:], strict=False)  # of small numbers one half is all
        return [
            *Count(self.column).fold(records, state[:1]),
            *(int128.fold_sum(records, *pair) for pair in sums),
        ]

    def merge(self, state: Columns, other: Columns) -> Columns:
        if pa.types.is_floating(state[1].type):
            return _joined(state, _stored(other))
        sums = zip(state[1:], other[1:], strict=True)
        return [ADD.merge(state[0], other[0]), *(int128.add(*pair) for pair in sums)]

    def result(self, state: Columns, output: pa.DataType) -> pa.Array:
        counts = numbers(state[0])[0]
        degrees = counts - 1 if self.sample else counts
        if pa.types.is_floating(state[1].type):
            spread = numbers(state[2])[0]
        else:
            spread = _exact_spread(state) / np.maximum(counts, 1)
        return column(self._of_mean(spread / np.maximum(degrees, 1)), degrees > 0, output)

    def _of_mean(self, squared_distance: Values) -> Values:
        return squared_distance

    def partial(self, input: AggregateInput) -> Mapping[str, str] | None:
        if self.ordered(input):
            return None
        kind, value = input.type(self.column), input.quoted(self.column)
        if pa.types.is_decimal(kind):
            ten = f"cast(1e{kind.scale} as decimal({kind.scale + 1},0))"
            whole, total = f"cast({value} * {ten} as bigint)", f"sum({value})"
        else:
            whole = f"cast({value} as bigint)"
            total = _exact_sum(whole)
        sums = {"_sum": total, "_squares": _exact_sum(f"({whole} * {whole})", "unsigned")}
        if _is_long(kind):
            sums["_upper"] = _exact_sum(_upper_half(whole))
        return {"_count": f"count({value})", **sums}

    def __str__(self) -> str:
        population = "" if self.sample else ", sample=False"
        return f"{type(self).__name__.lower()}({self.column}{population})"


@dataclass(frozen=True, slots=True)
class Stddev(Variance):
    """The square root of the variance."""

    def _of_mean(self, squared_distance: Values) -> Values:
        root: Values = np.sqrt(squared_distance)
        return root


def _is_long(kind: pa.DataType) -> bool:
    """May a square be too large for 64 bits?"""
    if pa.types.is_decimal(kind):
        return bool(kind.precision > 9)
    return bool(kind.bit_width == 64)


def _exact_sum(longs: str, sign: Literal["", "unsigned"] = "") -> str:
    """SQL for the sum of longs as a decimal, several times as fast as that of decimals.

    Of halves so many as an epoch can have fit a long.
    """
    upper = f"cast(sum(shiftright{sign}({longs}, 32)) as decimal(20,0))"
    return f"({upper} * {_LIMB} + sum({longs} & {_LIMB - 1}))"


def _upper_half(whole: str) -> str:
    """SQL for the upper 64 bits of the square of a long, as `_squares` computes them."""
    high, low = f"shiftright({whole}, 32)", f"({whole} & {_LIMB - 1})"
    cross, rest = f"({high} * {low})", f"shiftrightunsigned({low} * {low}, 32)"
    carry = f"shiftright(shiftleft({cross} & {(1 << 31) - 1}, 1) + {rest}, 32)"
    return f"({high} * {high} + shiftright({cross}, 31) + {carry})"


def _squares(whole: Values) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The lower and the upper 64 bits of the squares."""
    size = np.abs(whole.astype(np.int64, copy=False)).view(np.uint64)  # -2^63 wraps to 2^63
    high, low = size >> _LIMB_BITS, size & np.uint64(_LIMB - 1)
    cross = high * low << np.uint64(1)
    lower = low * low + (cross << _LIMB_BITS)
    return lower, high * high + (cross >> _LIMB_BITS) + (lower < cross << _LIMB_BITS)


def _exact_spread(state: Columns) -> Values:
    """The count times the sum of squared distances from the mean, rounded once."""
    counts, total, *halves = (column.fill_null(0) for column in state)
    scale = total.type.scale
    whole = total.view(pa.decimal128(MAX_DIGITS, 0)).cast(_TOTAL)
    squares = halves[0].cast(_TOTAL_SQUARES)
    if len(halves) > 1:
        upper = halves[1].cast(_TOTAL)
        squares = pc.add(pc.multiply(upper, pa.scalar(_HALF, pa.decimal256(20, 0))), squares)
    counts = counts.cast(pa.decimal128(19, 0)).cast(_COUNT)
    spread = pc.subtract(pc.multiply(counts, squares), pc.multiply(whole, whole))
    rounded: Values = spread.cast(pa.float64()).to_numpy() / 10.0 ** (2 * scale)
    return rounded


Moments = tuple[Values, Values, Values]  # count, mean, sum of squared distances from it


def _moments(records: GroupedRecords, values: pa.Array) -> Moments:
    """Those of each group, null values left out."""
    found, given = numbers(values)
    there = np.ones(len(found), np.int64) if given is None else given.astype(np.int64)
    counts = np.add.reduceat(there, records.starts)
    with np.errstate(invalid="ignore", over="ignore"):  # the spread of infinities is NaN
        present = found if given is None else np.where(given, found, 0.0)
        means = np.add.reduceat(present, records.starts) / np.maximum(counts, 1)
        distances = present - np.repeat(means, records.sizes)
        if given is not None:
            distances[~given] = 0.0
        return counts, means, np.add.reduceat(distances * distances, records.starts)


def _stored(state: Columns) -> Moments:
    """Those that columns of the state hold."""
    count, mean, spread = (numbers(column.fill_null(0))[0] for column in state)
    return count, mean, spread


def _joined(state: Columns, new: Moments) -> Columns:
    """The moments of two sets of values, of which one may be empty."""
    (n, mean, spread), (m, other, also) = _stored(state), new
    count = n + m
    with np.errstate(invalid="ignore", over="ignore"):
        apart, share = other - mean, m / np.maximum(count, 1)
        both = mean + apart * share, spread + also + apart * apart * n * share
    empty, known = m == 0, n > 0
    mean = np.where(empty, mean, np.where(known, both[0], other))
    spread = np.where(empty, spread, np.where(known, both[1], also))
    return [pa.array(count), pa.array(mean), pa.array(spread)]


def variance(column: str, sample: bool = True) -> Aggregate:
    """The variance of a sample, or with `sample=False` that of a population: a double.

    Null if there is no value, and of a sample also if there is only one.

    >>> str(variance("price")), str(variance("price", sample=False))
    ('variance(price)', 'variance(price, sample=False)')
    """
    return Variance(column, sample)


def stddev(column: str, sample: bool = True) -> Aggregate:
    """The standard deviation of a sample, or with `sample=False` of a population: a double.

    >>> str(stddev("price"))
    'stddev(price)'
    """
    return Stddev(column, sample)
