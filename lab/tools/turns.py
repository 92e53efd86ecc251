"""Running streaming queries one after the other, and timing their epochs.

Contenders take turns (A B B A ...): a turn restarts the contender's query on its checkpoint, skips
the first epochs, which load state and warm up, and takes the next ones as Spark reports them. Only
one query runs at a time.
"""

import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from godwit.cli.output import note
from lab.tools.spark_query import read_all

T = TypeVar("T")

WARM_UP = 2  # epochs skipped at the start of a turn; the first may be a replay of another size
EPOCH_SECONDS = 600.0  # an epoch that takes longer is given up


@dataclass(frozen=True, slots=True)
class TimedEpoch:
    """One epoch as Spark's progress report tells it."""

    number: int
    rows: int
    began: float  # seconds since 1970
    seconds: float  # durationMs.triggerExecution
    parts: Mapping[str, float]  # the rest of durationMs, in seconds


@dataclass(frozen=True, slots=True)
class Turn:
    """The epochs of one turn of a contender, without those that warmed it up."""

    epochs: Sequence[TimedEpoch]

    @property
    def seconds(self) -> list[float]:
        return [epoch.seconds for epoch in self.epochs]

    @property
    def rate(self) -> float:
        """Records a second."""
        return sum(epoch.rows for epoch in self.epochs) / sum(self.seconds)


class EpochCounter:
    """Reads all rows of an epoch and keeps none; knows which epochs it was given."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._changed = threading.Condition()

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        read_all(rows)
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
class TimedQuery:
    """A query that `launch(counter)` starts, and starts again on its checkpoint.

    With an `origin`, each turn begins with a copy of that checkpoint.
    """

    name: str
    checkpoint: Path
    launch: Callable[[EpochCounter], StreamingQuery]
    origin: Path | None = None

    def turn(self, epochs: int, warm_up: int = WARM_UP) -> Turn:
        """Run the query until `epochs` epochs have followed on those that warm it up."""
        if self.origin is not None:
            shutil.rmtree(self.checkpoint, ignore_errors=True)
            shutil.copytree(self.origin, self.checkpoint, symlinks=True)
        counter = EpochCounter()
        query = self.launch(counter)
        try:
            first = counter.wait(query, 1) + warm_up
            counter.wait(query, warm_up + epochs)
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
    for number, contender in in_turn(contenders, repetitions):
        count = epochs if isinstance(epochs, int) else epochs[contender.name]
        turn = contender.turn(count, warm_up)
        turns[contender.name].append(turn)
        median = statistics.median(turn.seconds)
        note(
            f"    {number}/{repetitions} {contender.name}: "
            f"{turn.rate:,.0f} records/s, epoch {median:.3f} s"
        )
    return turns


def in_turn(contenders: Iterable[T], repetitions: int) -> Iterator[tuple[int, T]]:
    """The number of the turn and who has it; none always comes first.

    >>> [f"{one}{number}" for number, one in in_turn("AB", 3)]
    ['A1', 'B1', 'B2', 'A2', 'A3', 'B3']
    """
    order = list(contenders)
    for number in range(1, repetitions + 1):
        yield from ((number, one) for one in order)
        order.reverse()


def reported(query: StreamingQuery, last: int) -> Iterator[TimedEpoch]:
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
        yield TimedEpoch(
            number=progress.batchId,
            rows=progress.numInputRows,
            began=datetime.fromisoformat(progress.timestamp).timestamp(),
            seconds=parts.pop("triggerExecution"),
            parts=parts,
        )
