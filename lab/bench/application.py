"""The Spark application of a benchmark, and applications of contenders in processes of their own.

A contender may have an application of its own, which waits while it is not its turn: a large state
on the heap of one JVM slows whatever else runs there.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from lab.tools.filling import counter
from lab.tools.scale import Scale
from lab.tools.session import application
from lab.tools.turns import WARM_UP, TimedQuery, Turn

WORKERS: Final = 2
LOCAL: Final = f"local[{WORKERS}]"
SETTINGS: Final = {
    "spark.driver.memory": "12g",
    # Spark matches the text of an interrupt against a regular expression, recursively.
    "spark.driver.extraJavaOptions": "-Xss16m",
    # As an application has it that knows nothing of Godwit.
    "spark.python.daemon.module": "pyspark.daemon",
    # Spark's own memory of what it did, kept short: one measurement looks at the heap.
    "spark.sql.streaming.numRecentProgressUpdates": "200",
    "spark.ui.retainedJobs": "300",
    "spark.ui.retainedStages": "300",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
}


@dataclass(frozen=True, slots=True)
class Bench(Scale):
    """A Spark application and a scratch directory, for as long as a question takes.

    `conf` is what differs from the settings of other questions; `epochs` and `only` are options of
    single ones.
    """

    spark: SparkSession
    directory: Path
    conf: Mapping[str, str]
    epochs: int | None = None
    only: str = ""

    @classmethod
    @contextmanager
    def open(
        cls,
        full: bool,
        epochs: int | None = None,
        only: str = "",
        conf: Mapping[str, str] = MappingProxyType({}),
    ) -> "Iterator[Bench]":
        told = {"spark.master": LOCAL, **conf}
        with application(told["spark.master"], SETTINGS | told) as (spark, directory):
            yield cls(full, spark, directory, told, epochs, only)

    @property
    def repetitions(self) -> int:
        return self.pick(5, 2)

    def source(self, rows: int, *columns: str) -> DataFrame:
        """Epochs of exactly `rows` records; `columns` are expressions over `value`, a counter."""
        return counter(self.spark, rows, *columns, partitions=WORKERS)


class Application:
    """A Spark application in a process of its own, with a scratch directory of its own."""

    def __init__(self, bench: Bench) -> None:
        self._process = ProcessPoolExecutor(
            1, get_context("spawn"), initializer=_open, initargs=(bench.full,)
        )

    def __enter__(self) -> "Application":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.submit(_close).result()
        self._process.shutdown()

    def turn(self, make: Callable[[Bench], TimedQuery], epochs: int, warm_up: int) -> Turn:
        return self._process.submit(_turn, make, epochs, warm_up).result()


@dataclass(frozen=True, slots=True)
class Away:
    """A contender in another application, which makes the query by `make`."""

    name: str
    application: Application
    make: Callable[[Bench], TimedQuery]

    def turn(self, epochs: int, warm_up: int = WARM_UP) -> Turn:
        return self.application.turn(self.make, epochs, warm_up)


_bench: Bench  # of the process of an `Application`
_opened = ExitStack()


def _open(full: bool) -> None:
    global _bench
    _bench = _opened.enter_context(Bench.open(full))


def _turn(make: Callable[[Bench], TimedQuery], epochs: int, warm_up: int) -> Turn:
    return make(_bench).turn(epochs, warm_up)


def _close() -> None:
    _opened.close()
