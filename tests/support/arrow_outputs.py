"""Epochs for sinks that take Arrow, which they check and take without a Spark."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from godwit.model.schema import parse
from godwit.spark.sinks.arrow_sink import ArrowSink, Outputs
from godwit.spark.sinks.sink import Sink
from godwit.spark.types import to_spark
from tests.support.log_samples import begun

Row = tuple[Any, ...]


def started(sink: Sink, columns: str | StructType, directory: Path) -> ArrowSink:
    """The sink, checked for a query `q` whose outputs have these columns."""
    begun(directory / "checkpoint", "q")
    schema = to_spark(parse(columns)) if isinstance(columns, str) else columns
    sink.check(cast(SparkSession, None), schema, str(directory / "checkpoint"))
    assert isinstance(sink, ArrowSink)
    return sink


def outputs(
    epoch: int, columns: str, *rows: Row, meanwhile: Callable[[], None] = lambda: None
) -> Outputs:
    """The rows of an epoch; `meanwhile` runs when the sink begins to read them."""
    schema = parse(columns)
    values = [dict(zip(schema.names, row, strict=True)) for row in rows]

    def read() -> list[pa.RecordBatch]:
        with ThreadPoolExecutor() as elsewhere:
            elsewhere.submit(meanwhile).result()
        return [pa.RecordBatch.from_pylist([value], schema=schema) for value in values]

    return Outputs(epoch, len(rows), read)
