"""The auction house as a data source of Spark: `spark.readStream.format("nexmark")`."""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
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
from godwit.workloads.nexmark.events import SCHEMA, Auctions
from godwit.workloads.rate import Rate

BATCH: Final = 16_384  # rows handed over at a time
OWN: Final = ("events", "epoch_events", "partitions")


@dataclass(frozen=True)
class Options:
    """What may be said of the source: options of `Auctions`, how many `events` there are (in a
    stream for ever), how many an epoch reads at most, and in how many `partitions`."""

    auctions: Auctions
    partitions: int = 2
    events: int | None = None
    epoch_events: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        known = [*OWN, *(field.name for field in dataclasses.fields(Auctions))]
        by_plain_name = {name.replace("_", ""): name for name in known}
        found: dict[str, Any] = {}
        for name, text in given.items():
            option = by_plain_name.get(name.lower().replace("_", ""))
            if option is None:
                raise ConfigError(f"nexmark has no option '{name}', but {', '.join(sorted(known))}")
            if option == "rate":
                found[option] = Rate.parse(text)
            else:
                found[option] = _number(name, text, float if option == "dilation" else int)
        own = {name: found.pop(name) for name in OWN if name in found}
        return cls(Auctions(**found), **own)


def _number(name: str, text: str, kind: Any) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"option '{name}' of nexmark is a number, not '{text}'") from None


@dataclass(frozen=True)
class Range(InputPartition):
    first: int
    last: int


class NexmarkSource(DataSource):
    """Register it with `spark.dataSource.register(NexmarkSource)`."""

    @classmethod
    def name(cls) -> str:
        return "nexmark"

    def schema(self) -> StructType:
        return to_spark(SCHEMA)

    def reader(self, schema: StructType) -> "NexmarkReader":
        options = Options.parse(self.options)
        if options.events is None:
            raise ConfigError("say how many events there are: option('events', ...)")
        return NexmarkReader(options)

    def streamReader(self, schema: StructType) -> "NexmarkStreamReader":
        return NexmarkStreamReader(Options.parse(self.options))


class NexmarkReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[Range]:
        assert self._options.events is not None
        return _cut(0, self._options.events, self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class NexmarkStreamReader(DataSourceStreamReader):
    """An open loop: at any moment, all events are there whose time has come, whoever reads them.

    An offset is the number of the next event, and the moment at which the first one took place.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, int]:
        return {"event": 0, "began": time.time_ns() // 1000}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        passed = time.time_ns() // 1000 - start["began"]
        event = self._options.auctions.rate.until(passed)
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


def _read(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, Range)
    for first in range(partition.first, partition.last, BATCH):
        yield options.auctions.events(first, min(first + BATCH, partition.last))
