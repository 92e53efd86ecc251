"""Open-loop sources of Spark: at any moment all events are there whose time has come.

An event is a function of its number and of the options of its source, so a part of the stream can
be made anywhere, and a replayed epoch is the same epoch.
"""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.spark.types import to_spark
from lab.workloads.nexmark.events import SCHEMA, Auctions
from lab.workloads.numbered import Numbered
from lab.workloads.rate import Rate

BATCH: Final = 16_384  # rows handed over at a time
OWN: Final = ("events", "epoch_events", "partitions")


class Events(Protocol):
    """Makes events; a dataclass, whose fields are options of the source."""

    @property
    def rate(self) -> Rate: ...

    def events(self, first: int, last: int) -> pa.RecordBatch:
        """Events `first` up to, but without, `last`, in the order in which they come."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How many `events` there are (in a stream by default for ever), how many an epoch reads at
    most, in how many `partitions`, and what makes them."""

    made_by: Events
    partitions: int = 2
    events: int | None = None
    epoch_events: int | None = None

    @classmethod
    def parse(cls, source: str, maker: Any, given: Mapping[str, str]) -> "SourceOptions":
        """SourceOptions of any case, with or without underscores."""
        known = [*OWN, *(field.name for field in dataclasses.fields(maker))]
        by_plain_name = {name.replace("_", ""): name for name in known}
        found: dict[str, Any] = {}
        for name, text in given.items():
            option = by_plain_name.get(name.lower().replace("_", ""))
            if option is None:
                raise ConfigError(
                    f"{source} has no option '{name}', but {', '.join(sorted(known))}"
                )
            found[option] = Rate.parse(text) if option == "rate" else _number(source, name, text)
        own = {name: found.pop(name) for name in OWN if name in found}
        for name, number in own.items():
            if number < 1:
                raise ConfigError(f"option '{name}' of {source} must be at least 1, not {number}")
        return cls(maker(**found), **own)


def _number(source: str, name: str, text: str) -> float | int:
    try:
        return float(text) if name.lower() == "dilation" else int(text)
    except ValueError:
        raise ConfigError(f"option '{name}' of {source} is a number, not '{text}'") from None


class EventSource(DataSource):
    """A source whose events are made by `maker`."""

    maker: ClassVar[Any]
    columns: ClassVar[pa.Schema]

    def schema(self) -> StructType:
        return to_spark(self.columns)

    def reader(self, schema: StructType) -> "BatchReader":
        options = SourceOptions.parse(self.name(), self.maker, self.options)
        if options.events is None:
            raise ConfigError("say how many events there are: option('events', ...)")
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> "StreamReader":
        return StreamReader(SourceOptions.parse(self.name(), self.maker, self.options))


class NexmarkSource(EventSource):
    """`spark.readStream.format("nexmark")`: the auction house."""

    maker, columns = Auctions, SCHEMA

    @classmethod
    def name(cls) -> str:
        return "nexmark"


class NumberedSource(EventSource):
    """`spark.readStream.format("numbered")`: events with nothing but their number and time."""

    maker, columns = Numbered, Numbered.SCHEMA

    @classmethod
    def name(cls) -> str:
        return "numbered"


def register(spark: SparkSession) -> None:
    """Make both known to a session."""
    spark.dataSource.register(NexmarkSource)
    spark.dataSource.register(NumberedSource)


@dataclass(frozen=True)
class Range(InputPartition):
    first: int
    last: int


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[Range]:
        assert self._options.events is not None
        return _cut(0, self._options.events, self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader):
    """An offset is the number of the next event, and the moment at which the first took place, in
    microseconds since 1970."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, int]:
        return {"event": 0, "began": time.time_ns() // 1000}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        event = self._options.made_by.rate.until(time.time_ns() // 1000 - start["began"])
        if self._options.events is not None:
            event = min(event, self._options.events)
        if isinstance(limit, ReadMaxRows):
            event = min(event, start["event"] + limit.max_rows)
        return {"event": max(event, start["event"]), "began": start["began"]}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.epoch_events
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Range]:
        return _cut(start["event"], end["event"], self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def commit(self, end: dict[str, int]) -> None:
        """There is nothing to forget."""


def _cut(first: int, last: int, parts: int) -> list[Range]:
    borders = [first + (last - first) * part // parts for part in range(parts + 1)]
    return [Range(a, b) for a, b in itertools.pairwise(borders) if a < b]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, Range)
    for first in range(partition.first, partition.last, BATCH):
        yield options.made_by.events(first, min(first + BATCH, partition.last))
