"""Where the outputs of an epoch go, and what each place guarantees."""

import errno
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType

from godwit.errors import ConfigError, DamagedFileError
from godwit.storage.location import local_directory

EPOCH = "epoch"
FORMATS = ("parquet", "orc", "json", "csv", "text", "xml", "avro")
RECEIPT = "_godwit.json"  # Spark's readers ignore names that begin with an underscore
STAGING = "_staging"


@runtime_checkable
class Sink(Protocol):
    """Takes the outputs of each epoch, in the order of the epochs, after the epoch is published.

    After a crash the newest epoch may be delivered again: the same epoch, commit and rows.

    >>> class Printed:
    ...     guarantee = "at least once: after a crash the newest epoch may be printed again"
    ...
    ...     def check(self, spark, schema):
    ...         print("columns:", *schema.names)
    ...
    ...     def deliver(self, epoch, rows, commit, count):
    ...         print(f"epoch {epoch}:", *rows.toArrow().to_pylist())
    >>> isinstance(Printed(), Sink)
    True
    """

    @property
    def guarantee(self) -> str:
        """What a reader can rely on, in one sentence."""
        ...

    def check(self, spark: SparkSession, schema: StructType) -> None:
        """Refuse what cannot work before the query starts; make what the first epoch needs."""
        ...

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        """Take the rows of an epoch. `commit` is the unique id of its manifest.

        `count` rows came out of the last operator; DataFrame code after it may have changed that.
        """
        ...


def files(path: str | os.PathLike[str], format: str = "parquet", **options: Any) -> Sink:
    """Files below `path`, one directory an epoch: exactly once.

    `spark.read.parquet(path)` shows the rows of the delivered epochs, with a column `epoch`. An
    epoch in which the operators gave nothing has no directory. `options` are those of Spark's
    writer for the format.

    >>> files("output", "json", compression="gzip").guarantee.partition(":")[0]
    'exactly once'
    """
    return FilesSink(local_directory(path, "sink"), format, options)


def table(name: str) -> Sink:
    """A Spark table partitioned by a column `epoch`, made if missing: an epoch is one partition.

    >>> table("counts").guarantee.partition(",")[0]
    'exactly once'
    """
    return TableSink(name)


def foreach_batch(function: Callable[[DataFrame, int], None]) -> Sink:
    """Call `function(rows, epoch)` for every epoch, also one without rows: at least once.

    >>> foreach_batch(lambda rows, epoch: rows.show()).guarantee.partition(":")[0]
    'at least once'
    """
    return FunctionSink(function)


def console(rows: int = 20) -> Sink:
    """Print the first rows of every epoch.

    >>> console(rows=5)
    ConsoleSink(rows=5)
    """
    return ConsoleSink(rows)


def memory(name: str) -> Sink:
    """Keep all rows in the driver, as a temporary view with a column `epoch`. For small outputs.

    >>> memory("counts").guarantee  # then spark.table("counts")
    'exactly once within this process; nothing is left when it ends'
    """
    return MemorySink(name)


@dataclass
class FilesSink:
    """One directory an epoch, which appears whole by a rename and is never overwritten."""

    path: Path
    format: str
    options: dict[str, Any]
    _joined: bool = field(default=False, init=False)

    @property
    def guarantee(self) -> str:
        return (
            "exactly once: the directory of an epoch appears as a whole, on disk, and holds the "
            "rows of its one manifest"
        )

    def check(self, spark: SparkSession, schema: StructType) -> None:
        _check_no_epoch(schema)
        if self.format not in FORMATS:
            raise ConfigError(f"unknown file format '{self.format}'; use {', '.join(FORMATS)}")
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; the files sink needs a directory")
        self._joined = False

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        target = self.path / f"{EPOCH}={epoch}"
        if not self._delivered(target, commit):
            self._join(epoch)
            if count or not rows.isEmpty():
                self._write(epoch, rows, commit, target)
        self._remove_leftovers(epoch)

    def link(self, epoch: int, outputs: Sequence[Path], commit: str) -> bool:
        """Deliver Parquet files that hold an epoch's rows as they are; False if that cannot be.

        It costs no Spark job and no copy: the names of the epoch's output files are added here.
        """
        if self.format != "parquet" or self.options:
            return False
        target = self.path / f"{EPOCH}={epoch}"
        if not self._delivered(target, commit):
            self._join(epoch)
            try:
                if outputs:
                    self._publish(epoch, commit, target, partial(_link_all, outputs))
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                return False  # on another filesystem
        self._remove_leftovers(epoch)
        return True

    def _write(self, epoch: int, rows: DataFrame, commit: str, target: Path) -> None:
        writer = rows.write.format(self.format).options(**self.options)
        self._publish(epoch, commit, target, lambda stage: writer.save(f"file://{stage}"))

    def _publish(self, epoch: int, commit: str, target: Path, fill: Callable[[Path], None]) -> None:
        """Fill a directory that no reader looks into, and rename it to `target`."""
        stage = self.path / STAGING / f"{epoch}-{uuid.uuid4().hex}"
        try:
            fill(stage)
            (stage / RECEIPT).write_text(json.dumps({"epoch": epoch, "commit": commit}))
            _sync_tree(stage)
            stage.rename(target)
            _sync(self.path)
        except Exception:
            # A driver that was taken over and woke up may have delivered the same commit meanwhile.
            if not self._delivered(target, commit):
                raise
        finally:
            shutil.rmtree(stage, ignore_errors=True)

    def _delivered(self, target: Path, commit: str) -> bool:
        """Whether `target` holds this commit; an error if it holds anything else."""
        if not target.exists():
            return False
        try:
            found = json.loads((target / RECEIPT).read_bytes())["commit"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(
                str(target), f"was not written by this sink (no sound {RECEIPT}); {_ADVICE}"
            ) from error
        if found != commit:
            raise DamagedFileError(
                str(target), f"holds commit {found}, not commit {commit} of this query; {_ADVICE}"
            )
        return True

    def _join(self, epoch: int) -> None:
        """At the first delivery: refuse a directory that holds later epochs."""
        if self._joined:
            return
        later = [number for number in self._epochs() if number > epoch]
        if later:
            raise DamagedFileError(
                str(self.path / f"{EPOCH}={min(later)}"),
                f"is there although this query has only come to epoch {epoch}; {_ADVICE}",
            )
        self._joined = True

    def _epochs(self) -> Iterator[int]:
        for path in self.path.glob(f"{EPOCH}=*"):
            number = path.name.removeprefix(f"{EPOCH}=")
            if number.isdecimal():
                yield int(number)

    def _remove_leftovers(self, epoch: int) -> None:
        """Remove what attempts that died left behind; a later epoch's may be alive elsewhere."""
        for stage in (self.path / STAGING).glob("*-*"):
            if int(stage.name.partition("-")[0]) <= epoch:
                shutil.rmtree(stage, ignore_errors=True)


_ADVICE = (
    "it belongs to another history: another query, or this one before its checkpoint was restored. "
    "Move it and later epochs away, or choose another output directory. Nothing was overwritten"
)


@dataclass(frozen=True, slots=True)
class TableSink:
    """A partition an epoch, overwritten as a whole."""

    name: str

    @property
    def guarantee(self) -> str:
        return (
            "exactly once, as far as the table's overwrite of a partition is atomic: in Spark's "
            "own file tables a reader may meet a part of the newest epoch while it is delivered, "
            "and a driver that was stopped in mid-delivery and wakes up when another one has taken "
            "over may leave rows of that epoch twice, or none. "
            "After godwit.restore, drop the partitions of later epochs first"
        )

    def check(self, spark: SparkSession, schema: StructType) -> None:
        _check_no_epoch(schema)
        if not spark.catalog.tableExists(self.name):
            ddl = _with_epoch(schema).toDDL()
            spark.sql(f"CREATE TABLE {self.name} ({ddl}) PARTITIONED BY ({EPOCH})")
            return
        columns = spark.catalog.listColumns(self.name)
        if [column.name for column in columns if column.isPartition] != [EPOCH]:
            raise ConfigError(
                f"table {self.name} is not partitioned by a column '{EPOCH}' alone, so an epoch "
                "cannot be overwritten; name another table, it is made if missing"
            )
        there = {column.name for column in columns} - {EPOCH}
        if there != set(schema.names):
            raise ConfigError(
                f"table {self.name} has the columns {', '.join(sorted(there))}, the query's output "
                f"{', '.join(sorted(schema.names))}; they must be the same"
            )

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        rows.sparkSession.sql(
            f"INSERT OVERWRITE TABLE {self.name} PARTITION ({EPOCH} = {epoch}) BY NAME "
            "SELECT * FROM {rows}",
            rows=rows,
        )


@dataclass(frozen=True, slots=True)
class FunctionSink:
    """A function of the user's."""

    function: Callable[[DataFrame, int], None]

    @property
    def guarantee(self) -> str:
        return (
            "at least once: after a crash the newest epoch may be given again, with the same "
            "number and rows"
        )

    def check(self, spark: SparkSession, schema: StructType) -> None:
        pass

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        self.function(rows, epoch)


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Standard output."""

    rows: int

    @property
    def guarantee(self) -> str:
        return "at least once: after a crash the newest epoch may be printed again"

    def check(self, spark: SparkSession, schema: StructType) -> None:
        pass

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        print(f"epoch {epoch}")
        rows.show(self.rows, truncate=False)


@dataclass
class MemorySink:
    """The rows by epoch, and a view of them in the session that described the query."""

    name: str
    _epochs: dict[int, pa.Table] = field(default_factory=dict, init=False)
    _empty: DataFrame | None = field(default=None, init=False)

    @property
    def guarantee(self) -> str:
        return "exactly once within this process; nothing is left when it ends"

    def check(self, spark: SparkSession, schema: StructType) -> None:
        _check_no_epoch(schema)
        self._empty = spark.createDataFrame([], _with_epoch(schema))
        self._publish()

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        before = {number: kept for number, kept in self._epochs.items() if number < epoch}
        rows = rows.withColumn(EPOCH, sf.lit(epoch).cast("long"))
        self._epochs = {**before, epoch: rows.toArrow()}
        self._publish()

    def _publish(self) -> None:
        assert self._empty is not None
        rows = self._empty
        if self._epochs:
            kept = pa.concat_tables(self._epochs.values(), promote_options="default")
            # In one chunk, because Spark takes an empty chunk for the end of the table.
            rows = rows.sparkSession.createDataFrame(kept.combine_chunks(), rows.schema)
        rows.createOrReplaceTempView(self.name)


def _check_no_epoch(schema: StructType) -> None:
    for name in schema.names:
        if name.lower() == EPOCH:
            raise ConfigError(
                f"the output has a column '{name}', but the sink adds one of that name; rename it"
            )


def _with_epoch(schema: StructType) -> StructType:
    fields = [StructField(field.name, field.dataType) for field in schema]
    return StructType([*fields, StructField(EPOCH, LongType())])


def _link_all(outputs: Sequence[Path], directory: Path) -> None:
    directory.mkdir(parents=True)
    for output in outputs:
        os.link(output, directory / output.name)


def _sync_tree(directory: Path) -> None:
    for path in directory.rglob("*"):
        _sync(path)
    _sync(directory)


def _sync(path: Path) -> None:
    """Bring a file, or the names in a directory, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
