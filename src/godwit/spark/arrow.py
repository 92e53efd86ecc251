"""DataFrame code as a function of Arrow tables, for simulations."""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from godwit.spark.types import to_arrow, to_spark


def on_arrow(
    spark: SparkSession, code: Callable[[DataFrame], DataFrame]
) -> Callable[[pa.Table], pa.Table]:
    """`code`, which Spark runs over the rows of a table."""

    def run(rows: pa.Table) -> pa.Table:
        # In one chunk, because Spark takes an empty chunk for the end of the table.
        given = spark.createDataFrame(rows.combine_chunks(), to_spark(rows.schema))
        found = code(given)
        return found.toArrow().cast(to_arrow(found.schema))

    return run
