"""Spark's own queries: where they keep their state, how they start, and when an epoch is over."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from godwit.errors import GodwitError

_PACKAGE: Final = "org.apache.spark.sql.execution.streaming.state"
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = {
    _PROVIDER: f"{_PACKAGE}.RocksDBStateStoreProvider",
    # An epoch writes what changed in it.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
STORES: Final = {
    "rocksdb": ROCKSDB,
    "memory": {_PROVIDER: f"{_PACKAGE}.HDFSBackedStateStoreProvider"},
}


def use_store(spark: SparkSession, name: str) -> None:
    """Choose the state store of the queries that start next."""
    for setting, value in STORES[name].items():
        spark.conf.set(setting, value)


def start(
    rows: DataFrame,
    checkpoint: Path,
    deliver: Callable[[DataFrame, int], None],
    *,
    mode: str = "update",
    period: float = 0.0,
) -> StreamingQuery:
    """Start a query that hands each epoch to `deliver`, at most one every `period` seconds."""
    writer = rows.writeStream.foreachBatch(deliver).outputMode(mode)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime=f"{period} seconds").start()


def read_all(rows: DataFrame) -> None:
    """Compute all rows, and keep none."""
    rows.write.format("noop").mode("overwrite").save()


def await_gap(query: StreamingQuery, shorter: float = float("inf")) -> float:
    """Wait for the end of an epoch that took less than `shorter` seconds; when that was.

    Spark repartitions only a checkpoint whose last epoch is whole.
    """
    seen = query.lastProgress
    newest = -1 if seen is None else seen.batchId

    def is_over() -> bool:
        nonlocal newest
        found = query.lastProgress
        if found is None or found.batchId <= newest:
            return False
        newest = found.batchId
        return found.batchDuration < 1000 * shorter

    await_condition(is_over, query)
    return time.monotonic()


def await_condition(condition: Callable[[], bool], query: StreamingQuery) -> None:
    """Wait until something is the case; raises what failed the query meanwhile."""
    while not condition():
        if query.awaitTermination(0.01):  # type: ignore[arg-type]
            raise GodwitError("the query has ended")
