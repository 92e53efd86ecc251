"""Arrow columns of fixed width as numpy arrays and back, mostly without a copy."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Values = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_LONG_DIGITS = 18  # as many as any long has


def is_number(kind: pa.DataType) -> bool:
    """Can `numbers` show a column of this type: numbers, but for large decimals, and times?"""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or _is_small_decimal(kind)
    )


def numbers(array: pa.Array) -> tuple[Values, Mask | None]:
    """The values of a column, and which are not null (None: all); a null's value is arbitrary.

    >>> values, valid = numbers(pa.array([1, None, 3]))
    >>> values[valid].tolist()
    [1, 3]
    """
    dtype = _dtype(array.type)
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype), valid(array)
    if _is_small_decimal(array.type):  # 16 bytes each, of which the lower 8 say it all
        words = np.frombuffer(data, dtype, 2 * len(array), array.offset * 16)
        return words[::2], valid(array)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize), valid(array)


def valid(array: pa.Array) -> Mask | None:
    """Which values are not null; None if all are."""
    if not array.null_count:
        return None
    mask: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def column(values: Values, valid: Mask | None, kind: pa.DataType) -> pa.Array:
    """A column of the given values, null where `valid` says so; the opposite of `numbers`.

    >>> column(np.array([0, 5]), np.array([False, True]), pa.timestamp("us")).to_pylist()
    [None, datetime.datetime(1970, 1, 1, 0, 0, 0, 5)]
    """
    if _is_small_decimal(kind):
        values = np.stack([values, values >> 63], axis=1)
    return packed(values, valid, kind)


def one_of_equals(array: pa.Array) -> pa.Array:
    """The column with 0.0 for -0.0 and one NaN for all: which of them comes first must not show."""
    if not pa.types.is_floating(array.type):
        return array
    values, given = numbers(array)
    plain = np.where(np.isnan(values), np.nan, values + 0.0).astype(values.dtype)
    return column(plain, given, array.type)


def packed(values: Values, valid: Mask | None, kind: pa.DataType) -> pa.Array:
    """A column whose bytes those of `values` are, in as many rows."""
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), data])


def _is_small_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind)) and kind.precision <= _LONG_DIGITS


def _bitmap(valid: Mask | None) -> pa.Buffer | None:
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    return np.dtype(np.int32 if pa.types.is_date32(kind) else np.int64)
