"""A source without data whose offset grows while work waits, so that an idle stream runs epochs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

FORMAT = "godwit-tick"

Offset = dict[str, int]


def with_ticks(df: DataFrame, tick_file: str) -> DataFrame:
    """`df`, whose query also runs an epoch without records when the number in `tick_file` grows.

    Columns, types, nullability, metadata and watermarks stay as they are. A missing file counts as
    0. A query that starts for the first time runs its epoch 0 at once, data or not.
    """
    spark = df.sparkSession
    spark.dataSource.register(TickSource)
    ticks = spark.readStream.format(FORMAT).schema(df.schema).load(tick_file)
    return df.union(ticks)


class TickSource(DataSource):
    """Has any schema and no rows. A class of a module, so that Spark pickles it by reference."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> "TickReader":  # noqa: N802
        return TickReader(Path(self.options["path"]))


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offers the number in a file as its offset; the offset never goes back."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"tick": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Offer no tick that comes later: work submitted to a query that is ending stays open."""
        self._last = self._tick()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        tick = self._tick() if self._last is None else self._last
        return {"tick": max(tick, start["tick"])}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())

    def _tick(self) -> int:
        try:
            return int(self._file.read_text())
        except FileNotFoundError:
            return 0
