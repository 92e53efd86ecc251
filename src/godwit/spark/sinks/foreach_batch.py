"""Outputs for a function of the user's."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.spark.sinks.sink import Sink


def foreach_batch(function: Callable[[DataFrame, int], None]) -> Sink:
    """Call `function(rows, epoch)` for every epoch, also one without rows: at least once.

    >>> foreach_batch(lambda rows, epoch: rows.show()).guarantee.partition(":")[0]
    'at least once'
    """
    if not callable(function):
        raise ConfigError(f"foreach_batch takes a function of rows and epoch, not {function!r}")
    return FunctionSink(function)


@dataclass(frozen=True, slots=True)
class FunctionSink:
    """A function of the user's, which runs in the driver."""

    function: Callable[[DataFrame, int], None]

    @property
    def guarantee(self) -> str:
        return (
            "at least once: after a crash the newest epoch may be given again, with the same "
            "number and rows"
        )

    def check(self, spark: SparkSession, schema: StructType, checkpoint: str) -> None:
        pass

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        self.function(rows, epoch)
