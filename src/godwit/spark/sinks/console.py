"""Printing outputs."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.spark.sinks.sink import Sink


def console(rows: int = 20) -> Sink:
    """Print the first rows of every epoch.

    >>> console(rows=5)
    ConsoleSink(rows=5)
    """
    return ConsoleSink(rows)


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Standard output."""

    rows: int

    @property
    def guarantee(self) -> str:
        return "at least once: after a crash the newest epoch may be printed again"

    def check(self, spark: SparkSession, schema: StructType, checkpoint: str) -> None:
        pass

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        print(f"epoch {epoch}")
        rows.show(self.rows, truncate=False)
