"""Counting by key: with Godwit, with Spark, and the floor that any such query stands on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.spark.epoch import S_SETTINGS
from lab.bench.harness import WORKERS, Bench, Query, Sink
from lab.experiments.spark_queries import ROCKSDB

OPERATOR = "counts"
PROVIDERS = {
    "rocksdb": ROCKSDB,
    "memory": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        ),
    },
}


def godwit_count(
    bench: Bench,
    checkpoint: Path,
    key: str,
    rows: int,
    *,
    name: str = "godwit",
    bins: int | None = None,
    preload: int = 0,
    origin: Path | None = None,
    drain: bool = True,
    replicas: int = 0,
) -> Query:
    """`aggregate` with a count; a new checkpoint gets the first `preload` keys of `settled`.

    Without `drain` nobody reads the outputs, which are written all the same.
    """

    def launch(sink: Sink) -> StreamingQuery:
        initial = None
        if preload and not checkpoint.exists():
            keys = bench.spark.range(0, preload, 1, WORKERS)
            initial = {OPERATOR: keys.selectExpr("xxhash64(id) AS k", "1L AS n")}
        query = (
            gw.stream(bench.source(rows, key))
            .aggregate(OPERATOR, key="k", n=gw.count())
            .to(gw.foreach_batch(sink if drain else lambda rows, epoch: sink.note(epoch)))
            .start(
                checkpoint,
                workers=WORKERS,
                options=gw.Options(bins=bins, replicas=replicas),
                initial=initial,
            )
        )
        return query.spark_query

    return Query(name, checkpoint, launch, origin)


def spark_count(
    bench: Bench,
    checkpoint: Path,
    key: str,
    rows: int,
    provider: str,
    origin: Path | None = None,
) -> Query:
    """Spark's `groupBy().count()` in update mode, over one of its state stores."""

    def launch(sink: Sink) -> StreamingQuery:
        use_provider(bench, provider)
        counted = bench.source(rows, key).groupBy("k").count()
        return write(counted, checkpoint, sink)

    return Query(f"spark {provider} {rows:,}", checkpoint, launch, origin)


def floor(bench: Bench, checkpoint: Path, key: str, rows: int, name: str = "floor") -> Query:
    """No state and no output: shuffle by a hash, hand all rows to Python, one row a task back."""

    def launch(sink: Sink) -> StreamingQuery:
        def drain(batch: DataFrame, epoch: int) -> None:
            for name, value in S_SETTINGS.items():
                batch.sparkSession.conf.set(name, value)
            hashed = batch.withColumn("_hash", sf.xxhash64("k"))
            worker = sf.shiftrightunsigned("_hash", 63).cast("int")
            drained = hashed.repartitionById(WORKERS, worker).mapInArrow(Drain(), "rows long")
            drained.collect()
            sink.note(epoch)

        return write(bench.source(rows, key), checkpoint, drain)

    return Query(name, checkpoint, launch)


class Drain:
    """Counts the rows of a partition; a class of a module, so that Spark pickles it by name."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def write(
    rows: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    return (
        rows.writeStream.foreachBatch(sink)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def use_provider(bench: Bench, provider: str) -> None:
    """Choose the state store of the Spark queries that start next."""
    for name, value in PROVIDERS[provider].items():
        bench.spark.conf.set(name, value)
