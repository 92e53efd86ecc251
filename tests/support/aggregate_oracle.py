"""What the aggregates are in plain Python, and values of all types to aggregate."""

import math
import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from godwit.model.hashing import hash_rows

LONG = 1 << 63

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "int": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "bigint": (pa.int64(), st.integers(-LONG, LONG - 1)),
    "double": (pa.float64(), st.integers(-100, 100).map(lambda n: n / 4)),
    "float": (pa.float32(), st.integers(-100, 100).map(lambda n: n / 4)),
    "decimal": (pa.decimal128(7, 2), st.decimals(-99999, 99999, places=2)),
    "wide decimal": (pa.decimal128(30, 5), st.decimals(-(10**24), 10**24, places=5)),
    "string": (pa.string(), st.text("aé\U0001f600", max_size=3)),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    ),
}
NUMBERS = ("tinyint", "int", "bigint", "double", "float", "decimal", "wide decimal")


def model(function: Any, kind: pa.DataType, values: Sequence[Any]) -> Any:
    """The function over all values of a key, in their order."""
    present = [value for value in values if value is not None]
    match type(function).__name__.lower():
        case "count" if not function.columns:
            return len(values)
        case "count":
            return len(present)
        case "first":
            return values[0]
        case "last":
            return values[-1]
        case "min":
            return min(present, default=None, key=order)
        case "max":
            return max(present, default=None, key=order)
        case "sum":
            return _total(present, kind) if present else None
        case "avg":
            return _mean(present, kind) if present else None
        case "variance":
            return _variance(function, present)
        case "stddev":
            return _variance(function, present, math.sqrt)
        case "topthree":
            return sorted(present, reverse=True)[:3]
        case "any":
            return any(present) if present else None
        case "every":
            return all(present) if present else None
        case "collectlist":
            return present
        case "top":
            found = sorted(present, key=order, reverse=not function.smallest)[: function.n]
            return [{"v": value} for value in found]
        case "approxcountdistinct":
            return estimate(registers(present, kind, function.bits), 1 << function.bits)
        case "approxquantiles":
            ranks = (max(math.ceil(q * len(present)), 1) for q in function.quantiles)
            near = [float(sorted(present)[rank - 1]) for rank in ranks] if present else []
            return pytest.approx(near, rel=function.error) if present else None
        case name:
            raise AssertionError(f"no model of {name}")


def registers(values: Iterable[Any], kind: pa.DataType, bits: int) -> dict[int, int]:
    """The greatest rank in each register of a HyperLogLog."""
    found: dict[int, int] = {}
    for value in values:
        array = pa.array([value], kind)
        if pa.types.is_floating(kind):  # Spark hashes the bits
            array = pa.array([value + 0.0], kind).view(f"int{kind.bit_width}")
        text = f"{int(hash_rows(pa.table({'v': array}))[0]):064b}"
        register, rest = int(text[:bits], 2), text[bits:]
        rank = (rest + "1").index("1") + 1
        found[register] = max(found.get(register, 0), rank)
    return found


def estimate(registers: dict[int, int], count: int) -> int:
    """Ertl's, from the definition of sigma: https://arxiv.org/abs/1702.01284, formula (13)."""
    empty = (count - len(registers)) / count
    if empty == 1:
        return 0
    sigma = empty + sum(empty ** (1 << k) * (1 << k - 1) for k in range(1, 40))
    weight = count * sigma + sum(0.5**rank for rank in registers.values())
    return round(count**2 / (2 * math.log(2)) / weight)


def _variance(function: Any, present: Sequence[Any], of: Any = float) -> Any:
    sample = getattr(function, "sample", False)
    if len(present) <= sample:
        return None
    exact = statistics.variance if sample else statistics.pvariance
    with localcontext(prec=100):
        return pytest.approx(of(exact(present)), rel=1e-12)


def order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _total(values: Sequence[Any], kind: pa.DataType) -> Any:
    with localcontext(prec=100):
        total = sum(values)
    return (total + LONG) % (2 * LONG) - LONG if pa.types.is_integer(kind) else total


def _mean(values: Sequence[Any], kind: pa.DataType) -> Any:
    if not pa.types.is_decimal(kind):
        return pytest.approx(sum(values) / len(values), rel=1e-15)
    with localcontext(prec=100):
        mean = sum(values) / Decimal(len(values))
        return mean.quantize(Decimal(1).scaleb(-kind.scale - 4), ROUND_HALF_UP)
