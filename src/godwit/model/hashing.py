"""The hash of a key, as Spark's `xxhash64` computes it in the JVM."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from godwit.errors import ConfigError

Hashes = npt.NDArray[np.uint64]

SEED = 42  # Spark's

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def hash_rows(keys: pa.Table) -> Hashes:
    """The hash of each row: XXH64 of one column after the other, each seeded by the one before.

    A null leaves the hash as it is, so different keys may well have equal hashes.

    >>> hash_rows(pa.table({"id": [1, None]})).tolist()
    [11445071438006506034, 42]
    """
    hashes = np.full(keys.num_rows, SEED, dtype=np.uint64)
    for name, column in zip(keys.column_names, keys.columns, strict=True):
        values = column.combine_chunks()
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        hashes = np.where(valid, _hasher(name, values.type)(values, hashes), hashes)
    return hashes


def is_cheap(key: pa.Schema) -> bool:
    """Is it faster to hash these columns again than to carry a hash beside them?"""
    return all(pa.types.is_primitive(field.type) for field in key)


def _hasher(name: str, type_: pa.DataType) -> Callable[[pa.Array, Hashes], Hashes]:
    """Spark hashes a value as four bytes, as eight bytes, or as the bytes that it consists of."""
    if pa.types.is_boolean(type_) or pa.types.is_date32(type_):
        return _hash_ints
    if pa.types.is_signed_integer(type_):
        return _hash_longs if type_.bit_width == 64 else _hash_ints
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return _hash_longs
    if pa.types.is_decimal128(type_):
        return _hash_small_decimals if type_.precision <= 18 else _hash_large_decimals
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return _hash_bytes
    raise ConfigError(f"key column '{name}' is of type {type_}, which cannot be hashed; cast it")


def _hash_ints(values: pa.Array, seeds: Hashes) -> Hashes:
    ints = _numpy(values.cast(pa.int32()))
    hashes = (seeds + _P5 + np.uint64(4)) ^ (ints.view(np.uint32).astype(np.uint64) * _P1)
    return _avalanche(_rotate(hashes, 23) * _P2 + _P3)


def _hash_longs(values: pa.Array, seeds: Hashes) -> Hashes:
    longs = _numpy(values.cast(pa.int64())).view(np.uint64)
    hashes = (seeds + _P5 + np.uint64(8)) ^ (_rotate(longs * _P2, 31) * _P1)
    return _avalanche(_rotate(hashes, 27) * _P1 + _P4)


def _hash_small_decimals(values: pa.Array, seeds: Hashes) -> Hashes:
    """Spark hashes the unscaled value as a long, which 18 digits fit."""
    low, _ = _halves(values)
    return _hash_longs(pa.array(low.view(np.int64)), seeds)


def _hash_large_decimals(values: pa.Array, seeds: Hashes) -> Hashes:
    """Spark hashes the bytes of the unscaled value as Java's BigInteger writes them."""
    low, high = _halves(values)
    unscaled = [
        upper << 64 | lower for lower, upper in zip(low.tolist(), high.tolist(), strict=True)
    ]
    packed = [value.to_bytes(_width(value), "big", signed=True) for value in unscaled]
    return _hash_bytes(pa.array(packed, pa.binary()), seeds)


def _hash_bytes(values: pa.Array, seeds: Hashes) -> Hashes:
    digest = xxhash.xxh64_intdigest
    pairs = zip(values.cast(pa.binary()).to_pylist(), seeds.tolist(), strict=True)
    return np.array([digest(value or b"", seed) for value, seed in pairs], dtype=np.uint64)


def _halves(decimals: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """The unsigned low and the signed high half of the unscaled values; anything for null."""
    buffer = decimals.buffers()[1]
    both = slice(2 * decimals.offset, 2 * (decimals.offset + len(decimals)))
    return np.frombuffer(buffer, np.uint64)[both][::2], np.frombuffer(buffer, np.int64)[both][1::2]


def _width(value: int) -> int:
    """The fewest bytes that hold `value` and its sign."""
    return (value if value >= 0 else ~value).bit_length() // 8 + 1


def _numpy(values: pa.Array) -> npt.NDArray[np.int64]:
    """The values with zero for null."""
    filled: npt.NDArray[np.int64] = pc.fill_null(values, 0).to_numpy()
    return filled


def _rotate(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _avalanche(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))
