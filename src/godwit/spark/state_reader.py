"""State as a DataFrame."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from godwit.inspect.snapshot import Snapshot
from godwit.model.routing import SEGMENTS
from godwit.spark.types import to_spark
from godwit.storage.location import Location


class ReadSegments:
    """The live rows of the segments whose numbers come in; a class, to be pickled by reference."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for rows in self._snapshot.read(batch.column(0).to_pylist()):
                yield from rows.to_batches()


def read_state(
    spark: SparkSession,
    checkpoint: Location,
    operator: str,
    *,
    epoch: int | None = None,
    table: str | None = None,
) -> DataFrame:
    """The state of an operator as of a retained epoch (by default the newest), by key.

    The columns are those of the key, the sub-key of a list or map, and the values; then `_bin` and
    `_worker`. It reads committed files only and never disturbs a running query.

    >>> rows = read_state(spark, home / "checkpoint", "counts")  # of a query that counts words
    >>> [(row.word, row.n) for row in rows.sort("word").collect()]
    [('be', 1), ('to', 2)]
    """
    snapshot = Snapshot.open(checkpoint, operator, epoch=epoch, table=table)
    slices = min(SEGMENTS, spark.sparkContext.defaultParallelism)
    segments = spark.range(0, SEGMENTS, 1, slices)
    return segments.mapInArrow(ReadSegments(snapshot), to_spark(snapshot.schema))
