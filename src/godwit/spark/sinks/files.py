"""Outputs as files, one directory an epoch."""

import errno
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit import faults
from godwit.errors import ConfigError
from godwit.log.history import History
from godwit.spark.sinks.parquet_types import check_types, with_earlier
from godwit.spark.sinks.sink import EPOCH, FileTaker, Sink, TaskWriter, check_no_epoch
from godwit.spark.sinks.store_files import in_store
from godwit.state.output import OutputFiles
from godwit.storage.directories import check_writable, lies_in
from godwit.storage.location import Location, place_of_files
from godwit.storage.store import Store

FORMATS: Final = ("parquet", "orc", "json", "csv", "text", "xml", "avro")
RECEIPT: Final = "_godwit.json"  # Spark's readers ignore names that begin with an underscore
SCHEMA: Final = "_common_metadata"  # but not this one: Parquet's own name for a schema of all files
STAGING: Final = "_staging"

_NOTHING_LOST = "Nothing was overwritten"


def files(path: Location, format: str = "parquet", **options: Any) -> Sink:
    """Files below `path`: exactly once.

    On a local disk an epoch is a directory. `spark.read.parquet(path)` shows the rows of the
    delivered epochs, with a column `epoch`; an epoch in which the operators gave nothing has no
    directory. `options` are those of Spark's writer for the format.

    In an object store files are Parquet, with an option `compression`, and an entry in a log names
    those of each epoch: read them with `read_files` or `delivered_files`.

    Output columns that a later start adds are null in the epochs before.

    >>> files("output", "json", compression="gzip").guarantee.partition(":")[0]
    'exactly once'
    """
    place = place_of_files(path)
    if isinstance(place, Store):
        return in_store(place, format, options)
    return FilesSink(place, format, options)


@dataclass
class FilesSink(FileTaker, TaskWriter):
    """One directory an epoch, which appears whole by a rename and is never overwritten."""

    path: Path
    format: str
    options: dict[str, Any]
    _checkpoint: str = field(default="", init=False)
    _empty: DataFrame | None = field(default=None, init=False)  # with the columns of the output
    _joined: bool = field(default=False, init=False)

    @property
    def place(self) -> str:
        return f"files in {self.path.resolve()}"

    @property
    def guarantee(self) -> str:
        return (
            "exactly once: the directory of an epoch appears as a whole, on disk, and holds the "
            "rows of its one manifest; another query's output is refused"
        )

    def directory(self, spark: SparkSession) -> Path | None:
        return self.path

    def check(self, spark: SparkSession, schema: StructType, checkpoint: Location) -> None:
        check_no_epoch(schema)
        if self.format not in FORMATS:
            raise ConfigError(f"unknown file format '{self.format}'; use {', '.join(FORMATS)}")
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; the files sink needs a directory")
        if lies_in(self.path, checkpoint) or lies_in(checkpoint, self.path):
            raise ConfigError(
                f"the output {self.path} and the checkpoint {checkpoint} are one directory, or one "
                "lies in the other; name two that lie beside each other"
            )
        check_writable(self.path, "output")
        if self.format == "parquet":
            check_types(str(self.path), schema, _read_schema(self.path / SCHEMA))
        self._checkpoint, self._joined = str(checkpoint), False
        self._empty = spark.createDataFrame([], schema)
        if there := list(self._epochs()):
            self._check_history(there, History(checkpoint))

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        if not self._delivered(epoch, commit):
            self._join(epoch)
            if count or not rows.isEmpty():
                writer = rows.write.format(self.format).options(**self.options)
                self._publish(epoch, commit, lambda stage: writer.save(f"file://{stage}"))
        self._remove_leftovers(epoch)

    def deliver_files(self, epoch: int, files: OutputFiles, commit: str) -> bool:
        """Deliver an epoch's Parquet files under names of this sink's; False if it has to copy.

        It costs no Spark job and no copy.
        """
        paths = files.paths
        if self.format != "parquet" or self.options or paths is None:
            return False
        if not self._delivered(epoch, commit):
            self._join(epoch)
            try:
                if paths:
                    self._publish(epoch, commit, partial(_link_all, paths))
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                return False  # on another filesystem
        self._remove_leftovers(epoch)
        return True

    def _publish(self, epoch: int, commit: str, fill: Callable[[Path], None]) -> None:
        """Fill a directory that no reader looks into, and rename it to that of the epoch."""
        stage = self._stage(epoch)
        receipt = {"epoch": epoch, "commit": commit, "checkpoint": self._checkpoint}
        try:
            fill(stage)
            (stage / RECEIPT).write_text(json.dumps(receipt))
            _sync_tree(stage)
            faults.reach("rows", "after", epoch)
            stage.rename(self._target(epoch))
            _sync(self.path)
        except Exception:
            # A driver that was taken over and woke up may have delivered the same commit meanwhile.
            if not self._delivered(epoch, commit):
                raise
        finally:
            shutil.rmtree(stage, ignore_errors=True)

    def _delivered(self, epoch: int, commit: str) -> bool:
        """Whether an epoch's directory holds this commit; an error if it holds anything else."""
        target = self._target(epoch)
        if not target.exists():
            return False
        found = self._check_owner(target, _query(commit))
        if found != commit:
            raise ConfigError(f"{target} holds commit {found}, not commit {commit}; {_ROLLED_BACK}")
        return True

    def _check_history(self, there: Sequence[int], history: History) -> None:
        """Refuse the output of another query, and of this one before a restore."""
        newest = max(there)
        self._check_owner(self._target(newest), history.query or "")
        if published := history.epochs():
            self._check_later(there, published[-1])
        if (manifest := history.manifest(newest)) is not None:
            self._delivered(newest, manifest.id)

    def _check_owner(self, target: Path, query: str) -> str:
        """The commit in an epoch's directory; an error if it is not this query's."""
        try:
            left = json.loads((target / RECEIPT).read_bytes())
            commit = str(left["commit"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{target} was not written by this sink (no sound {RECEIPT}); move it away, or "
                f"name another output directory. {_NOTHING_LOST}"
            ) from error
        if _query(commit) == query:
            return commit
        checkpoint = left.get("checkpoint", "")
        whose = f" in checkpoint {checkpoint}" if checkpoint else ""
        if checkpoint and checkpoint == self._checkpoint:
            whose += ", which has been deleted since"
        raise ConfigError(
            f"{self.path} holds the output of another query{whose}. Name another output directory "
            f"for this one, or delete this directory. {_NOTHING_LOST}"
        )

    def _join(self, epoch: int) -> None:
        """At the first delivery: refuse a directory with later epochs, keep the schema of all."""
        if self._joined:
            return
        self._check_later(self._epochs(), epoch)
        if self.format == "parquet" and self._empty is not None:
            self._keep_schema(epoch, self._empty)
        self._joined = True

    def _check_later(self, there: Iterable[int], epoch: int) -> None:
        later = [number for number in there if number > epoch]
        if later:
            raise ConfigError(
                f"{self._target(min(later))} is there although this query has only come to epoch "
                f"{epoch}; {_ROLLED_BACK}"
            )

    def _keep_schema(self, epoch: int, rows: DataFrame) -> None:
        """Without a schema of all files, Spark would take that of the oldest one for it."""
        kept = _read_schema(self.path / SCHEMA)
        wanted = with_earlier(rows.schema, kept)
        if wanted == kept:
            return
        stage = self._stage(epoch)
        rows.sparkSession.createDataFrame([], wanted).write.parquet(f"file://{stage}")
        (written,) = stage.glob("*.parquet")
        _sync(written)
        written.rename(self.path / SCHEMA)
        _sync(self.path)
        shutil.rmtree(stage, ignore_errors=True)

    def _target(self, epoch: int) -> Path:
        return self.path / f"{EPOCH}={epoch}"

    def _stage(self, epoch: int) -> Path:
        return self.path / STAGING / f"{epoch}-{uuid.uuid4().hex}"

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


_ROLLED_BACK = (
    "it is of this query before its checkpoint was restored. Move it and later epochs away, or "
    f"name another output directory. {_NOTHING_LOST}"
)


def _query(commit: str) -> str:
    """The id of the query whose commit it is."""
    return commit.partition("/")[0]


def _read_schema(path: Path) -> StructType:
    """The columns that a file of this sink's names; none if there is no such file."""
    if not path.exists():
        return StructType()
    told = pq.read_metadata(path).metadata[b"org.apache.spark.sql.parquet.row.metadata"]
    return StructType.fromJson(json.loads(told))


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
