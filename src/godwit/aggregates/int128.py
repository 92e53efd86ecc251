"""Exact 128-bit integers in numpy: sums and means of decimals and of longs.

A wide column is an array of four rows of 32-bit limbs, lowest first, each held in an int64. That
leaves room to add four billion of them before anything is carried. The topmost limb has the sign.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.aggregates.base import GroupedRecords
from godwit.aggregates.columns import Mask, numbers, packed, valid
from godwit.aggregates.reduction import where_present

Wide = npt.NDArray[np.int64]

_BITS = 32
_LIMB = (1 << _BITS) - 1
_HALF_BITS = _BITS // 2


class TooWideError(ArithmeticError):
    """The value at `index` does not fit its type."""

    def __init__(self, index: int, kind: pa.DataType) -> None:
        super().__init__(index, kind)
        self.index = index
        self.kind = kind


def widen(array: pa.Array) -> tuple[Wide, Mask | None]:
    """A column of longs or decimals, and which are not null (None: all); nulls become zero."""
    wide = np.zeros((4, len(array)), np.int64)
    if pa.types.is_integer(array.type):
        values = numbers(array)[0]
        wide[0] = values & _LIMB
        wide[1] = values >> _BITS
    elif len(array):
        limbs = np.frombuffer(array.buffers()[1], "<u4", 4 * len(array), 16 * array.offset)
        wide[:3] = limbs.reshape(-1, 4).T[:3]
        wide[3] = limbs.view("<i4").reshape(-1, 4).T[3]
    present = valid(array)
    if present is not None:
        wide *= present
    return wide, present


def narrow(wide: Wide, valid: Mask | None, kind: pa.DataType) -> pa.Array:
    """A column of decimals; a value that does not fit raises `TooWideError`."""
    wide = _carried(wide)
    over = np.flatnonzero(wide[3] != wide[3].astype(np.int32))
    if over.size:
        raise TooWideError(int(over[0]), kind)
    array = packed(wide.T.astype("<u4"), valid, kind)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise TooWideError(_misfit(array), kind) from None
    return array


def fold_sum(records: GroupedRecords, values: pa.Array, old: pa.Array) -> pa.Array:
    """The exact sum of decimals or longs for each group, kept as decimals as `old` is."""
    (before, had), (wide, given) = widen(old), widen(values)
    total = np.add.reduceat(wide, records.starts, axis=1) + before
    return narrow(total, where_present(had, given, records), old.type)


def add(old: pa.Array, new: pa.Array) -> pa.Array:
    """The exact sum of two columns; a null counts nothing beside a value."""
    (before, had), (wide, given) = widen(old), widen(new)
    return narrow(before + wide, where_present(had, given), old.type)


def means(total: Wide, count: npt.NDArray[np.int64], shift: int) -> Wide:
    """`total * 10**shift / count`, rounded half away from zero; counts are positive."""
    sign = np.where(total[3] < 0, -1, 1)
    # One limb more has room for the shift.
    scaled = np.vstack([_carried(_carried(total) * sign) * 10**shift, np.zeros_like(sign)])
    quotient = _quotient(_carried(scaled), count)
    quotient[3] += quotient[4] << _BITS  # what does not fit must show when it is narrowed
    return sign * quotient[:4]


def doubles(wide: Wide) -> npt.NDArray[np.float64]:
    """The nearest doubles, but for the last bit."""
    top, *lower = _carried(wide)[::-1]
    result: npt.NDArray[np.float64] = top.astype(np.float64)
    for limb in lower:
        result *= 1 << _BITS
        result += limb
    return result


def _carried(wide: Wide) -> Wide:
    """The same numbers, with all limbs but the topmost from 0 to 2^32 - 1."""
    wide = wide.copy()
    for i in range(len(wide) - 1):
        wide[i + 1] += wide[i] >> _BITS
        wide[i] &= _LIMB
    return wide


def _quotient(wide: Wide, divisor: npt.NDArray[np.int64]) -> Wide:
    """Long division of carried, positive numbers, by half limbs: a remainder may have 47 bits."""
    quotient = np.zeros_like(wide)
    rest = np.zeros_like(divisor)
    for i in reversed(range(len(wide))):
        for half in (wide[i] >> _HALF_BITS, wide[i] & ((1 << _HALF_BITS) - 1)):
            digit, rest = np.divmod((rest << _HALF_BITS) | half, divisor)
            quotient[i] = (quotient[i] << _HALF_BITS) | digit
    quotient[0] += 2 * rest >= divisor
    return quotient


def _misfit(array: pa.Array) -> int:
    """The index of the first value with more digits than its type has."""
    limit = 10**array.type.precision
    values: list[Any] = array.to_pylist()
    return next(
        i
        for i, value in enumerate(values)
        if value is not None and abs(value.scaleb(array.type.scale)) >= limit
    )
