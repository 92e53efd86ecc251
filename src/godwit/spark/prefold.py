"""Records that are folded in the JVM, before the shuffle to their workers."""

from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, TimestampNTZType

from godwit.errors import ConfigError
from godwit.operators.base import Operator, Prefold
from godwit.operators.definition import RECORDS
from godwit.spark.logical_plan import may_shuffle
from godwit.spark.route import column
from godwit.spark.settings import settings
from godwit.spark.types import to_spark

_LATE: Final = "_late"
_WRAPPING: Final = {"spark.sql.ansi.enabled": "false"}  # sums of longs, as those in Python do


def can_fold(rows: DataFrame, operator: Operator) -> bool:
    """Is Spark's order of the columns that of Godwit? Strings with a collation it compares by that,
    moments without a time zone in that of the session. Nor do we touch the size of other shuffles.
    """
    types = [field.dataType for field in rows.schema if field.name in operator.input.names]
    times = operator.delay is not None and any(isinstance(t, TimestampNTZType) for t in types)
    collated = any(isinstance(t, StringType) and t != StringType() for t in types)
    return not (times or collated or may_shuffle(rows))


def check_partials(spark: SparkSession, operator: Operator) -> None:
    """Refuse expressions that Spark cannot compute: now, not when keys begin to repeat."""
    if operator.prefold is None:
        return
    rows = spark.createDataFrame([], to_spark(operator.input))
    try:
        fold(rows, operator, operator.prefold, None)
    except PySparkException as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"operator '{operator.name}': Spark does not take a partial of its aggregates: {reason}"
        ) from None


def fold(rows: DataFrame, operator: Operator, prefold: Prefold, passed: int | None) -> DataFrame:
    """The folded rows of records; `passed` is the watermark that tells which of them are late."""
    schema = to_spark(prefold.operator.input)
    groups = [column(name) for name in prefold.by]
    results = {RECORDS: sf.count(sf.lit(1))}
    if operator.delay is not None and operator.time is not None:
        groups.append(_is_late(operator, passed).alias(_LATE))
        if operator.time not in prefold.by:
            results[operator.time] = sf.max(column(operator.time))
    with settings(rows.sparkSession, _WRAPPING):
        results |= {name: sf.expr(text) for name, text in prefold.partials.items()}
        folded = rows.groupBy(*groups).agg(*(one.alias(name) for name, one in results.items()))
        return folded.select(*(column(f.name).cast(f.dataType).alias(f.name) for f in schema))


def _is_late(operator: Operator, passed: int | None) -> Column:
    """As `on_time` judges it."""
    missing = column(operator.time or "").isNull()
    if passed is None:
        return missing
    horizon = operator.horizon
    moment = sf.unix_micros(column(horizon.column))
    return missing | (moment <= sf.lit(passed - horizon.after))
