"""What sinks have in common whose tables are files: tasks write them, the driver commits them."""

import os
import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from godwit import faults
from godwit.errors import ConfigError
from godwit.spark.sinks.arrow_sink import ArrowSink, Outputs, hushed, read

LARGE: Final = 32 << 20  # bytes: the driver writes as many in the time that a Spark job takes

FILE: Final = "file binary"

File = Any  # what a commit tells of a data file: it can be pickled


class Writer(Protocol):
    """Writes data files that no reader sees until a commit names them. It travels to tasks."""

    @property
    def secrets(self) -> Iterable[str]:
        """What no error may tell."""
        ...

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[File]:
        """Write rows to files, under names that no other call uses."""
        ...

    def missing(self, files: Sequence[File]) -> list[str]:
        """The names of those that this process does not find as they were written."""
        ...


class LakeSink(ArrowSink):
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
    def put(self, epoch: int, commit: str, write: Callable[[Writer], list[File]]) -> None:
        """Have files written and add them in one commit, or pass over a commit that is there."""
        ...

    def take(self, outputs: Outputs, commit: str) -> None:
        self._put(outputs.epoch, commit, lambda writer: written(writer, outputs.read()))

    def _put(self, epoch: int, commit: str, write: Callable[[Writer], list[File]]) -> None:
        def told(writer: Writer) -> list[File]:
            files = write(writer)
            faults.reach("rows", "after", epoch)
            return files

        self.put(epoch, commit, told)

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        if not self.by_tasks:
            super().deliver(epoch, rows, commit, count)
            return

        def write(writer: Writer) -> list[File]:
            return self._told(writer, rows.mapInArrow(partial(_in_task, writer, str(self)), FILE))

        self._put(epoch, commit, write)

    def deliver_files(self, epoch: int, outputs: Sequence[str], commit: str) -> bool:
        """Copy outputs: small ones in the driver, large ones each in a task."""
        if not self.by_tasks or sum(map(os.path.getsize, outputs)) < LARGE:
            return super().deliver_files(epoch, outputs, commit)

        def write(writer: Writer) -> list[File]:
            tasks = SparkSession.active().range(0, len(outputs), 1, len(outputs))
            copy = partial(_copy_in_task, writer, str(self), outputs)
            return self._told(writer, tasks.mapInArrow(copy, FILE))

        self._put(epoch, commit, write)
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
    writer: Writer, table: str, outputs: Sequence[str], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of the outputs with these numbers, and tell the files."""
    chosen = [outputs[number] for batch in numbers for number in batch.column(0).to_pylist()]
    yield from _in_task(writer, table, read(chosen))


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
