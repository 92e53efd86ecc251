"""Counting by key: with Godwit, with Spark, and the floor that any such query stands on."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

import godwit as gw
from godwit.spark.operator_job import S_SETTINGS
from lab.bench.application import WORKERS, Bench
from lab.tools.filling import initial, known
from lab.tools.spark_query import start, use_store
from lab.tools.turns import EpochCounter, TimedQuery

OPERATOR = "counts"
COUNTED = ("xxhash64(id) AS k", "1L AS n")  # the state of a key that has come once


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
) -> TimedQuery:
    """`aggregate` with a count; a new checkpoint gets the first `preload` keys of `settled`.

    Without `drain` nobody reads the outputs, which are written all the same.
    """

    def launch(sink: EpochCounter) -> StreamingQuery:
        rows_known = partial(known, bench.spark, preload, *COUNTED)
        state = initial(checkpoint, OPERATOR, rows_known) if preload else None
        query = (
            gw.stream(bench.source(rows, key))
            .aggregate(OPERATOR, key="k", n=gw.count())
            .to(gw.foreach_batch(sink if drain else lambda rows, epoch: sink.note(epoch)))
            .start(
                checkpoint,
                workers=WORKERS,
                options=gw.Options(bins=bins, replicas=replicas),
                initial=state,
            )
        )
        return query.spark_query

    return TimedQuery(name, checkpoint, launch, origin)


def spark_count(
    bench: Bench,
    checkpoint: Path,
    key: str,
    rows: int,
    store: str,
    origin: Path | None = None,
) -> TimedQuery:
    """Spark's `groupBy().count()` in update mode, over one of its state stores."""

    def launch(sink: EpochCounter) -> StreamingQuery:
        use_store(bench.spark, store)
        return start(bench.source(rows, key).groupBy("k").count(), checkpoint, sink)

    return TimedQuery(f"spark {store} {rows:,}", checkpoint, launch, origin)


def floor(bench: Bench, checkpoint: Path, key: str, rows: int, name: str = "floor") -> TimedQuery:
    """No state and no output: shuffle by a hash, hand all rows to Python, one row a task back."""

    def launch(sink: EpochCounter) -> StreamingQuery:
        def drain(batch: DataFrame, epoch: int) -> None:
            for name, value in S_SETTINGS.items():
                batch.sparkSession.conf.set(name, value)
            hashed = batch.withColumn("_hash", sf.xxhash64("k"))
            worker = sf.shiftrightunsigned("_hash", 63).cast("int")
            drained = hashed.repartitionById(WORKERS, worker).mapInArrow(RowTally(), "rows long")
            drained.collect()
            sink.note(epoch)

        return start(bench.source(rows, key), checkpoint, drain)

    return TimedQuery(name, checkpoint, launch)


class RowTally:
    """Counts the rows of a partition; a class of a module, so that Spark pickles it by name."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})
