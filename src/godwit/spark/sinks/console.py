"""Printing outputs."""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def console(rows: int = 20) -> "ConsoleSink":
    """Print the first rows of every epoch."""
    return ConsoleSink(rows)


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Standard output."""

    rows: int

    @property
    def guarantee(self) -> str:
        return "at least once: after a crash the newest epoch may be printed again"

    def check(self, spark: SparkSession, schema: StructType, checkpoint: Path) -> None:
        pass

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        print(f"epoch {epoch}")
        rows.show(self.rows, truncate=False)
