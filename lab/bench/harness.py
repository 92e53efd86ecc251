"""Running streaming queries one after the other, and timing their epochs.

Contenders take turns (A B B A ...): a turn restarts the contender's query on its checkpoint, skips
the first epochs, which load state and warm up, and takes the next ones as Spark reports them. Only
one query runs at a time. All read Spark's `rate-micro-batch` source, over as many partitions as
there are workers. A contender may have a Spark application of its own, which waits while it is not
its turn: a large state on the heap of one JVM slows whatever else runs there.
"""

import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from godwit.spark.start import START_SETTINGS

WORKERS = 2
WARM_UP = 2  # epochs skipped at the begin of a turn; the first may be a replay of another size
PROGRESS_REPORTS = 200
EPOCH_SECONDS = 600.0  # an epoch that takes longer is given up


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch as Spark's progress report tells it."""

    number: int
    rows: int
    began: float  # seconds since 1970
    seconds: float  # durationMs.triggerExecution
    parts: Mapping[str, float]  # the rest of durationMs, in seconds


@dataclass(frozen=True, slots=True)
class Turn:
    """The epochs of one turn of a contender, without those that warmed it up."""

    epochs: Sequence[Epoch]

    @property
    def seconds(self) -> list[float]:
        return [epoch.seconds for epoch in self.epochs]

    @property
    def rate(self) -> float:
        """Records a second."""
        return sum(epoch.rows for epoch in self.epochs) / sum(self.seconds)


class Sink:
    """Reads all rows of an epoch and keeps none; knows which epochs it was given."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._changed = threading.Condition()

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        rows.write.format("noop").mode("overwrite").save()
        self.note(epoch)

    def note(self, epoch: int) -> None:
        with self._changed:
            self._epochs.append(epoch)
            self._changed.notify_all()

    def wait(self, query: StreamingQuery, count: int) -> int:
        """Wait for `count` epochs; returns the number of the first."""
        seen, deadline = -1, 0.0
        with self._changed:
            while len(self._epochs) < count:
                if len(self._epochs) > seen:
                    seen, deadline = len(self._epochs), time.monotonic() + EPOCH_SECONDS
                if not query.isActive:
                    query.awaitTermination()  # raises what failed it
                    raise RuntimeError("the query ended by itself")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"an epoch took longer than {EPOCH_SECONDS:.0f} s")
                self._changed.wait(1)
            return self._epochs[0]


class Contender(Protocol):
    """What takes turns."""

    @property
    def name(self) -> str: ...

    def turn(self, epochs: int, warm_up: int = WARM_UP) -> Turn:
        """The next epochs after those that warm up."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query that `launch(sink)` starts, and starts again on its checkpoint.

    With an `origin`, each turn begins with a copy of that checkpoint.
    """

    name: str
    checkpoint: Path
    launch: Callable[[Sink], StreamingQuery]
    origin: Path | None = None

    def turn(self, epochs: int, warm_up: int = WARM_UP) -> Turn:
        """Run the query until `epochs` epochs have followed on those that warm it up."""
        if self.origin is not None:
            shutil.rmtree(self.checkpoint, ignore_errors=True)
            shutil.copytree(self.origin, self.checkpoint, symlinks=True)
        sink = Sink()
        query = self.launch(sink)
        try:
            first = sink.wait(query, 1) + warm_up
            sink.wait(query, warm_up + epochs)
            last = first + epochs - 1
            return Turn([e for e in reported(query, last) if first <= e.number <= last])
        finally:
            query.stop()
            _let_go()


def _let_go() -> None:
    """Free Spark's state stores: they slow the next turn, and upload snapshots during it."""
    jvm: Any = SparkSession.active()._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    jvm.System.gc()


def take_turns(
    contenders: Sequence[Contender],
    repetitions: int,
    epochs: Mapping[str, int] | int,
    warm_up: int = WARM_UP,
) -> dict[str, list[Turn]]:
    """A B B A ...: the turns of each contender by its name; none always comes first."""
    turns: dict[str, list[Turn]] = {contender.name: [] for contender in contenders}
    for repetition in range(repetitions):
        for contender in contenders[:: -1 if repetition % 2 else 1]:
            count = epochs if isinstance(epochs, int) else epochs[contender.name]
            turn = contender.turn(count, warm_up)
            turns[contender.name].append(turn)
            median = statistics.median(turn.seconds)
            say(
                f"    {repetition + 1}/{repetitions} {contender.name}: "
                f"{turn.rate:,.0f} records/s, epoch {median:.3f} s"
            )
    return turns


def reported(query: StreamingQuery, last: int) -> Iterator[Epoch]:
    """The epochs of a query, as soon as its report on epoch `last` is there."""
    while (newest := query.lastProgress) is None or newest.batchId < last:
        if not query.isActive:
            query.awaitTermination()
            raise RuntimeError("the query ended by itself")
        time.sleep(0.02)
    for progress in query.recentProgress:
        parts = {name: ms / 1000 for name, ms in progress.durationMs.items()}
        if "addBatch" not in parts:  # a report of an idle moment
            continue
        yield Epoch(
            number=progress.batchId,
            rows=progress.numInputRows,
            began=datetime.fromisoformat(progress.timestamp).timestamp(),
            seconds=parts.pop("triggerExecution"),
            parts=parts,
        )


class Bench:
    """A Spark application and a scratch directory, for as long as a question takes."""

    def __init__(
        self,
        *,
        quick: bool = False,
        epochs: int | None = None,
        only: str = "",
        conf: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.quick = quick
        self.epochs = epochs
        self.only = only
        self.conf = {"spark.master": f"local[{WORKERS}]", **conf}
        self.repetitions = 2 if quick else 5

    def __enter__(self) -> "Bench":
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        self.directory = Path(tempfile.mkdtemp(prefix="godwit-bench-"))
        os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)  # for a cluster
        os.environ["SPARK_WORKER_DIR"] = str(self.directory / "executors")
        self.spark: SparkSession = (
            SparkSession.builder.config(map={**self.conf})
            .config("spark.driver.memory", "12g")
            # Spark matches the text of an interrupt against a regular expression, recursively.
            .config("spark.driver.extraJavaOptions", "-Xss16m")
            .config("spark.local.dir", str(self.directory / "local"))
            .config("spark.sql.shuffle.partitions", WORKERS)
            # For all contenders the faster way to write Spark's logs, which Godwit's queries take.
            .config(map={**START_SETTINGS})
            # Spark's own memory of what it did, kept short: one measurement looks at the heap.
            .config("spark.sql.streaming.numRecentProgressUpdates", PROGRESS_REPORTS)
            .config("spark.ui.retainedJobs", 300)
            .config("spark.ui.retainedStages", 300)
            .config("spark.ui.retainedTasks", 1000)
            .config("spark.sql.ui.retainedExecutions", 20)
            .config("spark.ui.enabled", False)
            .config("spark.ui.showConsoleProgress", False)
            .config("spark.log.level", "OFF")
            .getOrCreate()
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.spark.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def pick(self, full: int, quick: int) -> int:
        """A size: the one for serious measuring, or a small one to try the benchmark out."""
        return quick if self.quick else full

    def source(self, rows: int, *columns: str) -> DataFrame:
        """Epochs of exactly `rows` records; `columns` are expressions over `value`, a counter.

        The counter goes on where it was when a query starts again on its checkpoint.
        """
        counter = (
            self.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows)
            .option("numPartitions", WORKERS)
            .load()
        )
        return counter.selectExpr(*columns)


class Application:
    """A Spark application in a process of its own, with a scratch directory of its own."""

    def __init__(self, bench: Bench) -> None:
        self._process = ProcessPoolExecutor(
            1, get_context("spawn"), initializer=_open, initargs=(bench.quick,)
        )

    def __enter__(self) -> "Application":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.submit(_close).result()
        self._process.shutdown()

    def turn(self, make: Callable[[Bench], Query], epochs: int, warm_up: int) -> Turn:
        return self._process.submit(_turn, make, epochs, warm_up).result()


@dataclass(frozen=True, slots=True)
class Away:
    """A contender in another application, which makes the query by `make`."""

    name: str
    application: Application
    make: Callable[[Bench], Query]

    def turn(self, epochs: int, warm_up: int = WARM_UP) -> Turn:
        return self.application.turn(self.make, epochs, warm_up)


_bench: Bench  # of the process of an `Application`


def _open(quick: bool) -> None:
    global _bench
    _bench = Bench(quick=quick).__enter__()


def _turn(make: Callable[[Bench], Query], epochs: int, warm_up: int) -> Turn:
    return make(_bench).turn(epochs, warm_up)


def _close() -> None:
    _bench.__exit__()


def settled(keys: int) -> str:
    """A key column: each of `keys` keys once in as many records (`xxhash64` is one-to-one)."""
    return f"xxhash64(value % {keys}) AS k"


def fresh(keys: int) -> str:
    """A key column: no key twice, and none of the `keys` keys that `settled` gives."""
    return f"xxhash64(value + {keys}) AS k"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
