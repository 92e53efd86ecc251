"""Types of columns, and values of each that functions can be folded over exactly."""

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

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
