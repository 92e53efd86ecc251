"""What sinks have in common whose tables are files: tasks write them, the driver commits them."""

import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from random import uniform
from time import sleep
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from godwit import faults
from godwit.errors import ConfigError
from godwit.spark.sinks.arrow_sink import ArrowSink, Delivered, Outputs, hushed
from godwit.spark.sinks.sink import TaskWriter
from godwit.state.output import OutputFiles

ATTEMPTS: Final = 10  # at a commit that other writers get ahead of

LARGE: Final = 32 << 20  # bytes: the driver writes as many in the time that a Spark job takes

FILE: Final = "file binary"

File = Any  # what a commit tells of a data file: it can be pickled
Table = Any  # of the package that the sink needs


class Writer(Protocol):
    """Writes data files that no reader sees until a commit names them. It travels to tasks."""

    @property
    def secrets(self) -> Iterable[str]:
        """What no error may tell."""
        ...

    @property
    def layout(self) -> object:
        """What files are written for: a commit adds none that were written for another one."""
        ...

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[File]:
        """Write rows to files, under names that no other call uses."""
        ...

    def missing(self, files: Sequence[File]) -> list[str]:
        """The names of those that this process does not find as they were written."""
        ...


class LakeSink(ArrowSink, TaskWriter):
    """A row reaches the table by the one commit that names its file.

    A task that dies or is tried again leaves files that no commit names, and so does a driver that
    dies before its commit.
    """

    module: ClassVar[str]  # which tasks import

    @property
    def by_tasks(self) -> bool:
        """Whether rows are added as they are, so that tasks can write them."""
        return True

    @abstractmethod
    def open(self) -> Table:
        """The table as it is now."""
        ...

    @abstractmethod
    def delivered(self, table: Table, query: str) -> Delivered | None:
        """The newest epoch of a query that the table has."""
        ...

    @abstractmethod
    def writer(self, table: Table, epoch: int, commit: str) -> Writer: ...

    @abstractmethod
    def append(self, table: Table, files: list[File], epoch: int, commit: str) -> None:
        """Add files in one commit, which follows what was opened or raises `overtaken`."""
        ...

    @abstractmethod
    def overtaken(self) -> type[Exception]:
        """What the package raises if another commit was faster."""
        ...

    def put(self, epoch: int, commit: str, write: Callable[[Writer], list[File]]) -> None:
        """Have files written and add them in one commit, or pass over a commit that is there."""
        layout, files = None, []

        def attempt(table: Table) -> None:
            nonlocal layout, files
            writer = self.writer(table, epoch, commit)
            if layout != writer.layout:
                layout, files = writer.layout, write(writer)
            faults.reach("rows", "after", epoch)
            if files:
                self.append(table, files, epoch, commit)

        self.change(epoch, commit, attempt)

    def change(self, epoch: int, commit: str, attempt: Callable[[Table], None]) -> None:
        """Change the table by a commit, unless it is there; look again if another one was faster,
        perhaps of a driver that delivers the same. A commit that is said to have failed may have
        landed, too."""
        for number in range(1, ATTEMPTS + 1):
            table = self.open()
            delivered = self.delivered(table, commit.partition("/")[0])
            if delivered and delivered.has(epoch, commit, str(self)):
                return
            try:
                attempt(table)
            except self.overtaken():
                if number == ATTEMPTS:
                    raise
                sleep(uniform(0, number / 10))
            else:
                return

    def take(self, outputs: Outputs, commit: str) -> None:
        self.put(outputs.epoch, commit, lambda writer: written(writer, outputs.read()))

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        if not self.by_tasks:
            super().deliver(epoch, rows, commit, count)
            return

        def write(writer: Writer) -> list[File]:
            return self._told(writer, rows.mapInArrow(partial(_in_task, writer, str(self)), FILE))

        self.put(epoch, commit, write)

    def deliver_files(self, epoch: int, files: OutputFiles, commit: str) -> bool:
        """Copy outputs: small ones in the driver, large ones each in a task."""
        if not self.by_tasks or files.bytes < LARGE:
            return super().deliver_files(epoch, files, commit)

        def write(writer: Writer) -> list[File]:
            count = len(files.refs)
            tasks = SparkSession.active().range(0, count, 1, count)
            copy = partial(_copy_in_task, writer, str(self), files)
            return self._told(writer, tasks.mapInArrow(copy, FILE))

        self.put(epoch, commit, write)
        return True

    def _told(self, writer: Writer, job: DataFrame) -> list[File]:
        """Files that tasks tell; those of attempts that Spark has dropped are left."""
        files = [pickle.loads(row.file) for row in job.collect()]
        if missing := writer.missing(files):
            raise ConfigError(
                f"tasks have written {missing[0]} for {self}, but the driver does not find it: "
                "executors and driver need the same storage. The table was not changed"
            )
        return files


def written(writer: Writer, batches: Iterable[pa.RecordBatch]) -> list[File]:
    """The files that rows were written to: none, for none."""
    some = (batch for batch in batches if len(batch))
    first = next(some, None)
    return [] if first is None else writer.write(chain([first], some))


def _copy_in_task(
    writer: Writer, table: str, outputs: OutputFiles, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of the outputs with these numbers, and tell the files."""
    chosen = [number for batch in numbers for number in batch.column(0).to_pylist()]
    yield from _in_task(writer, table, outputs.batches(chosen))


def _in_task(
    writer: Writer, table: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, and tell the files."""
    try:
        files = written(writer, batches)
    except Exception as error:
        why = hushed(f"{type(error).__name__}: {error}", writer.secrets)
        raise RuntimeError(f"a task cannot write to {table}: {why}") from None
    told = [pickle.dumps(file) for file in files]
    yield pa.RecordBatch.from_pydict({"file": pa.array(told, pa.binary())})
