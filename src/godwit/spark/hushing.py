"""Keeping Spark from logging, with the traces of two languages, a failure that Godwit tells."""

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

_LOGGER: Final = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"


def hush_failure(spark: SparkSession, query: StreamingQuery, message: str) -> Callable[[], None]:
    """Let Spark's log have a message in place of what Spark will say of the failure of a query,
    until the function that this returns is called.

    All else stays that it says; so does this where Spark logs by another library than log4j.
    """
    log4j: Any = spark.sparkContext._jvm
    log4j = log4j.org.apache.logging.log4j
    try:
        context = log4j.LogManager.getContext(False)
        config = context.getConfiguration().getLoggerConfig(_LOGGER)  # or of one above
        result = log4j.core.Filter.Result
        said = rf"(?s)Query .*runId = {query.runId}\] terminated with error.*"
        hushed = log4j.core.filter.RegexFilter.createFilter(
            said, None, False, result.DENY, result.NEUTRAL
        )
        log4j.LogManager.getLogger("godwit").error(message)
        config.addFilter(hushed)
    except Exception:
        return lambda: None
    return lambda: config.removeFilter(hushed)
