"""Outputs in the driver's memory."""

from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from godwit.spark.sinks.sink import EPOCH, Sink, check_no_epoch, with_epoch


def memory(name: str) -> Sink:
    """Keep all rows in the driver, as a temporary view with a column `epoch`. For small outputs.

    >>> memory("counts").guarantee  # then spark.table("counts")
    'exactly once within this process; nothing is left when it ends'
    """
    return MemorySink(name)


@dataclass
class MemorySink:
    """The rows by epoch, and a view of them in the session that described the query."""

    name: str
    _epochs: dict[int, pa.Table] = field(default_factory=dict, init=False)
    _empty: DataFrame | None = field(default=None, init=False)

    @property
    def place(self) -> str:
        return f"memory table {self.name}"

    @property
    def guarantee(self) -> str:
        return "exactly once within this process; nothing is left when it ends"

    def check(self, spark: SparkSession, schema: StructType, checkpoint: str) -> None:
        check_no_epoch(schema)
        self._empty = spark.createDataFrame([], with_epoch(schema))
        self._publish()

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        before = {number: kept for number, kept in self._epochs.items() if number < epoch}
        rows = rows.withColumn(EPOCH, sf.lit(epoch).cast("long"))
        self._epochs = {**before, epoch: rows.toArrow()}
        self._publish()

    def _publish(self) -> None:
        assert self._empty is not None
        rows = self._empty
        if self._epochs:
            kept = pa.concat_tables(self._epochs.values(), promote_options="default")
            # In one chunk, because Spark takes an empty chunk for the end of the table.
            rows = rows.sparkSession.createDataFrame(kept.combine_chunks(), rows.schema)
        rows.createOrReplaceTempView(self.name)
