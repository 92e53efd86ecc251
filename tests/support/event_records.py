"""Records with event time, counted in seconds from a fixed instant."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

INPUT = pa.schema({"k": pa.string(), "at": pa.timestamp("us", tz="UTC"), "n": pa.int64()})
ZERO = datetime(2020, 1, 1, tzinfo=UTC)


def second(number: float) -> datetime:
    return ZERO + timedelta(seconds=number)


def record(k: str, at: float, n: int = 0) -> dict[str, Any]:
    return {"k": k, "at": second(at), "n": n}
