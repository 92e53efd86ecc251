"""Keys and records: what streams bring, and the state that queries start with."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

PARTITIONS: Final = 2


def counter(
    spark: SparkSession, rows: int, *columns: str, partitions: int = PARTITIONS
) -> DataFrame:
    """A stream with epochs of exactly `rows` records; `columns` are expressions over `value`.

    `value` counts the records. It goes on where it was when a query starts again on its checkpoint.
    """
    source = spark.readStream.format("rate-micro-batch")
    return source.options(rowsPerBatch=rows, numPartitions=partitions).load().selectExpr(*columns)


def known(spark: SparkSession, keys: int, *columns: str, partitions: int = PARTITIONS) -> DataFrame:
    """A row for each of `keys` keys; `columns` are expressions over `id`."""
    return spark.range(0, keys, 1, partitions).selectExpr(*columns)


def initial(
    checkpoint: Path, operator: str, state: Callable[[], DataFrame]
) -> Mapping[str, DataFrame] | None:
    """The state that an operator starts with; a checkpoint that exists has its own."""
    return None if checkpoint.exists() else {operator: state()}


def settled(keys: int) -> str:
    """A key column: each of `keys` keys once in as many records (`xxhash64` is one-to-one)."""
    return f"xxhash64(value % {keys}) AS k"


def fresh(keys: int) -> str:
    """A key column: no key twice, and none of the `keys` keys that `settled` gives."""
    return f"xxhash64(value + {keys}) AS k"
