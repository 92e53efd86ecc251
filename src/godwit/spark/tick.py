"""A second source without data, so that an idle stream runs epochs while work waits."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf


def with_ticks(df: DataFrame, directory: Path) -> DataFrame:
    """`df`, whose query also runs an epoch without records when a file appears in `directory`.

    The ticks are a file stream of Spark's own, whose rows are filtered away while Spark plans: it
    needs no process, reads nothing, and deletes the files that it has seen. Under `availableNow` a
    tick that comes after the start is left for the next one.
    """
    ticks = (
        df.sparkSession.readStream.format("text")
        .option("cleanSource", "delete")
        .load(f"file://{directory}")  # not as a URI: Spark would take an escaped space literally
        .where(sf.lit(False))
        .select(*[sf.lit(None).cast(f.dataType).alias(f.name) for f in df.schema])
    )
    return df.union(ticks)
