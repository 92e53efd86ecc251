"""The number of different values, estimated by HyperLogLog."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords, OfColumn
from godwit.aggregates.columns import one_of_equals, valid
from godwit.errors import ConfigError
from godwit.model.hashing import Hashes, hash_rows
from godwit.model.keys import Integers, Rows, changes

Coupons = npt.NDArray[np.int64]
"""What a value leaves: the number of its register, and in the lowest six bits its rank."""

_RANK_BITS = 6
_RANK = (1 << _RANK_BITS) - 1
_WIDTH = 4  # bytes of a coupon


@dataclass(frozen=True, slots=True)
class ApproxCountDistinct(OfColumn):
    """For each of 2^`bits` parts of the hash space, the most leading zeros that a hash had there.

    That is a set of coupons, or of many coupons a register each: a function of the set of values,
    whatever their order. DataSketches' HLL keeps more, in which the order shows. Hashes, parts and
    the number of them are those of Spark's `approx_count_distinct`. The estimate is that of Ertl,
    "New cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6.
    """

    rsd: float

    @property
    def bits(self) -> int:
        return math.ceil(2 * math.log2(1.106 / self.rsd))

    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        return {"_registers": pa.binary()}

    def output(self, input: AggregateInput) -> pa.DataType:
        kind = input.type(self.column)
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise ConfigError(f"column '{self.column}' is of type {kind}, which cannot be hashed")
        return pa.int64()

    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        values = records.column(self.column)
        rows, given = np.repeat(np.arange(len(state[0])), records.sizes), valid(values)
        if given is not None:
            values, rows = values.filter(pa.array(given)), rows[given]
        return [self._merged(state[0], rows, self._coupons(_hashes(values)))]

    def merge(self, state: Columns, other: Columns) -> Columns:
        return [self._merged(state[0], *self._unpacked(other[0]))]

    def result(self, state: Columns, output: pa.DataType) -> pa.Array:
        rows, coupons = self._unpacked(state[0])
        registers, count = 1 << self.bits, len(state[0])
        powers = np.bincount(rows, 0.5 ** (coupons & _RANK), minlength=count)
        empty = registers - np.bincount(rows, minlength=count)
        with np.errstate(divide="ignore"):
            sums = powers + registers * _sigma(registers)[empty]
        return pa.array(np.rint(registers**2 / (2 * math.log(2)) / sums).astype(np.int64))

    def partial(self, input: AggregateInput) -> Mapping[str, str]:
        value, bits = input.quoted(self.column), self.bits
        register = f"shiftrightunsigned(xxhash64({value}), {64 - bits})"
        rest = f"(shiftleft(xxhash64({value}), {bits}) | {1 << bits - 1}L)"
        coupon = f"shiftleft({register}, {_RANK_BITS}) + 65 - length(bin({rest}))"
        coupons = f"collect_set({coupon}) filter (where {value} is not null)"
        text = f"transform({coupons}, coupon -> lpad(hex(coupon), {2 * _WIDTH}, '0'))"
        return {"_registers": f"unhex(array_join({text}, ''))"}

    def _coupons(self, hashes: Hashes) -> Coupons:
        register = (hashes >> np.uint64(64 - self.bits)).astype(np.int64)
        rest = (hashes << np.uint64(self.bits)) | np.uint64(1 << self.bits - 1)
        return register << _RANK_BITS | _leading_zeros(rest) + 1

    def _merged(self, old: pa.Array, new_rows: Rows, new: Coupons) -> pa.Array:
        """The greatest coupon of each row and register."""
        rows, coupons = self._unpacked(old)
        row_bits = self.bits + _RANK_BITS
        both = np.concatenate((rows << row_bits | coupons, new_rows << row_bits | new))
        both.sort()
        both = both[changes(both[::-1] >> _RANK_BITS)[::-1]]
        return self._packed(both >> row_bits, both & (1 << row_bits) - 1, len(old))

    def _packed(self, rows: Rows, coupons: Coupons, count: int) -> pa.Array:
        """Coupons as they are while they are short, else a byte for each register, and one more."""
        registers = 1 << self.bits
        sizes = _WIDTH * np.bincount(rows, minlength=count)
        dense = sizes >= registers
        sizes[dense] = registers + 1
        ends = np.cumsum(sizes)
        data = np.zeros(sizes.sum(), np.uint8)
        whole = dense[rows]
        data[(ends - sizes)[rows[whole]] + (coupons[whole] >> _RANK_BITS)] = coupons[whole] & _RANK
        few = coupons[~whole].astype(">u4").view(np.uint8)
        data[np.repeat(~dense, sizes)] = few
        offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
        buffers = [None, offsets.buffers()[1], pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), count, buffers)

    def _unpacked(self, packed: pa.Array) -> tuple[Rows, Coupons]:
        """The row of each coupon, and all coupons."""
        registers = 1 << self.bits
        packed = packed.fill_null(b"")
        sizes = pc.binary_length(packed).to_numpy().astype(np.int64)
        dense = sizes % _WIDTH > 0
        start = np.frombuffer(packed.buffers()[1], np.int32, 1, 4 * packed.offset)[0]
        data = np.frombuffer(packed.buffers()[2] or b"", np.uint8)[start : start + sizes.sum()]
        whole = np.repeat(dense, sizes)
        few = data[~whole].view(">u4").astype(np.int64)
        rows = np.repeat(np.arange(len(packed)), np.where(dense, 0, sizes // _WIDTH))
        ranks = data[whole].reshape(-1, registers + 1)
        which, register = np.nonzero(ranks)
        many = register << _RANK_BITS | ranks[which, register]
        return (
            np.concatenate((rows, np.flatnonzero(dense)[which])),
            np.concatenate((few, many)),
        )

    def __str__(self) -> str:
        return f"approx_count_distinct({self.column}, {self.rsd})"


def _hashes(values: pa.Array) -> Hashes:
    """Those of Spark's `xxhash64`; of strings each is hashed once."""
    if pa.types.is_floating(values.type):  # as integers of the same bits
        values = one_of_equals(values).view(f"int{values.type.bit_width}")
    if pa.types.is_primitive(values.type):
        return hash_rows(pa.table({"value": values}))
    encoded = values.dictionary_encode()
    hashes = hash_rows(pa.table({"value": encoded.dictionary}))
    found: Hashes = hashes[encoded.indices.to_numpy()]
    return found


def _leading_zeros(values: Hashes) -> Integers:
    """Of numbers that are not zero: halving the width that is looked at."""
    zeros = np.zeros(len(values), np.int64)
    for width in (32, 16, 8, 4, 2, 1):
        short = values < np.uint64(1) << np.uint64(64 - width)
        zeros += width * short
        values = np.where(short, values << np.uint64(width), values)
    return zeros


def _sigma(registers: int) -> npt.NDArray[np.float64]:
    """What empty registers weigh, by their number: sigma of Ertl's formula (13)."""
    x = np.arange(registers) / registers
    weight, sum, before = np.ones(registers), x.copy(), np.full(registers, -1.0)
    while (sum != before).any():
        x, before = x * x, sum
        sum = sum + x * weight
        weight *= 2
    return np.append(sum, np.inf)


def approx_count_distinct(column: str, rsd: float = 0.05) -> Aggregate:
    """About how many different values there are; nulls are skipped.

    `rsd` is the relative standard deviation, as in Spark. A key with few values keeps four bytes
    for each, one with many 512 bytes; with `rsd=0.01`, that is 16 KiB.

    >>> str(approx_count_distinct("user"))
    'approx_count_distinct(user, 0.05)'
    """
    if not 0.005 <= rsd <= 0.4:
        raise ConfigError(f"the rsd of approx_count_distinct is from 0.005 to 0.4, not {rsd}")
    return ApproxCountDistinct(column, rsd)
