"""Events that are nothing but a number and a time: workloads make the rest of them in Spark."""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from godwit.errors import ConfigError
from lab.workloads.rate import Numbers, Rate

MOMENT: Final = pa.timestamp("us", tz="UTC")
BEGIN: Final = 1_436_918_400_000_000  # 2015-07-15, in microseconds since 1970
RATE: Final = Rate.parse("10k")


@dataclass(frozen=True)
class EventClock:
    """When events take place: event time runs `dilation` times as fast as the `rate` says."""

    rate: Rate = RATE
    dilation: float = 1.0
    begin: int = BEGIN

    def __post_init__(self) -> None:
        if self.dilation <= 0:
            raise ConfigError(f"time must go on: dilation is {self.dilation}")

    def times(self, numbers: Numbers) -> Numbers:
        """The event times of these events, in microseconds since 1970."""
        return self.begin + (self.rate.times(numbers) * self.dilation).astype(np.int64)

    def moments(self, numbers: Numbers) -> pa.Array:
        return pa.array(self.times(numbers)).cast(MOMENT)


@dataclass(frozen=True)
class Numbered(EventClock):
    """Events with their number and time, in the order of both."""

    SCHEMA: ClassVar[pa.Schema] = pa.schema([("event", pa.int64()), ("time", MOMENT)])

    def events(self, first: int, last: int) -> pa.RecordBatch:
        numbers = np.arange(first, last, dtype=np.int64)
        return pa.record_batch([pa.array(numbers), self.moments(numbers)], schema=self.SCHEMA)
