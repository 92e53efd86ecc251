"""The outputs of an epoch as a DataFrame."""

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.state.output import OutputFiles

FilesReader = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SPLIT: Final = 4 << 20  # bytes: what is less, two tasks would not read faster


class ReadOutputs:
    """The rows of the files whose numbers come in; a class, to be pickled by reference."""

    def __init__(self, files: OutputFiles) -> None:
        self._files = files

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self._files.batches(batch.column(0).to_pylist())


def read(spark: SparkSession, files: OutputFiles, schema: StructType) -> DataFrame:
    """Receipted files as a DataFrame: it can be read twice, in part or not at all.

    Files on local disks Spark reads by itself, which is faster. From elsewhere tasks read them with
    Arrow: Spark has no connector for a store that Godwit has opened, or one with other credentials.
    Whoever reads, any column may be null.
    """
    if not files.refs:
        return spark.createDataFrame([], schema)
    if files.paths is None:
        return by_tasks(spark, files, ReadOutputs(files), schema.toNullable())
    # Whatever the user has set, a file of these must not be passed over.
    reader = spark.read.options(ignoreCorruptFiles=False, ignoreMissingFiles=False)
    return reader.schema(schema).parquet(*(files.store.url(ref.name) for ref in files.refs))


def by_tasks(
    spark: SparkSession, files: OutputFiles, read: FilesReader, schema: StructType
) -> DataFrame:
    """What tasks read of files; each gets some of them, by their numbers."""
    tasks = min(len(files.refs), spark.sparkContext.defaultParallelism, 1 + files.bytes // SPLIT)
    return spark.range(0, len(files.refs), 1, tasks).mapInArrow(read, schema)
