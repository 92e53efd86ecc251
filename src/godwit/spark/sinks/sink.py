"""What a sink is, and what sinks with a column `epoch` share."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from godwit.errors import ConfigError
from godwit.state.output import OutputFiles
from godwit.storage.location import Location

EPOCH: Final = "epoch"


@runtime_checkable
class Sink(Protocol):
    """Takes the outputs of each epoch, in the order of the epochs, after the epoch is published.

    After a crash the newest epoch may be delivered again: the same epoch, commit and rows. A sink
    of your own needs the three members below and no base class; hand it to `.to(...)`. It is
    exactly once if it recognises a commit that it has, as this one does:

    >>> import sqlite3
    >>> class Sqlite:
    ...     guarantee = "exactly once: rows and the id of their commit are one transaction"
    ...
    ...     def __init__(self, path):
    ...         self.path = path
    ...
    ...     def check(self, spark, schema, checkpoint):
    ...         with sqlite3.connect(self.path) as database:
    ...             database.execute("CREATE TABLE IF NOT EXISTS counts (epoch, word, n)")
    ...             database.execute("CREATE TABLE IF NOT EXISTS commits (id PRIMARY KEY)")
    ...
    ...     def deliver(self, epoch, rows, commit, count):
    ...         counts = [(epoch, row.word, row.n) for row in rows.collect()]
    ...         with sqlite3.connect(self.path) as database:
    ...             added = database.execute("INSERT OR IGNORE INTO commits VALUES (?)", [commit])
    ...             if added.rowcount:
    ...                 database.executemany("INSERT INTO counts VALUES (?, ?, ?)", counts)
    >>> isinstance(Sqlite("counts.db"), Sink)
    True

    Its methods run in the driver. An error that `deliver` raises fails the query; the epoch is
    delivered again at the next start.
    """

    @property
    def guarantee(self) -> str:
        """What a reader can rely on, in one sentence."""
        ...

    def check(self, spark: SparkSession, schema: StructType, checkpoint: str) -> None:
        """Refuse what cannot work before the query in `checkpoint` starts, by a ConfigError; make
        what the first epoch needs. `schema` is that of the rows to come."""
        ...

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        """Take the rows of an epoch. `commit` is the unique id of its manifest.

        `count` rows came out of the last operator; DataFrame code after it may have changed that.
        """
        ...


@runtime_checkable
class Placed(Protocol):
    """What a sink may have besides: a place, which two sinks of a query must not share."""

    @property
    def place(self) -> str:
        """For people: "files in /data/out"."""
        ...


class Maker(ABC):
    """What a sink inherits whose `check` makes something beyond this process, such as a table.

    All of a query `refuse` before one of them makes anything. No protocol, like `FileTaker`. Their
    places may have several names, and one name be of several places: so they tell an identity.
    """

    @abstractmethod
    def refuse(self, spark: SparkSession, schema: StructType, checkpoint: Location) -> None:
        """Raise what `check` would, and make nothing."""
        ...

    @abstractmethod
    def identity(self, spark: SparkSession) -> Hashable:
        """Once `check` has passed: what two sinks of a kind have in common if a query must not
        have both."""
        ...


class TaskWriter(ABC):
    """What a sink inherits whose rows tasks write, so that executors need what it writes to."""

    @abstractmethod
    def directory(self, spark: SparkSession) -> Path | None:
        """Where they write, if that is on a local disk and known already."""
        ...


class FileTaker(ABC):
    """What a sink inherits if it can take the files of an epoch's outputs instead of a DataFrame
    over them. No protocol: a sink of a user's with a method of this name is not meant."""

    @abstractmethod
    def deliver_files(self, epoch: int, files: OutputFiles, commit: str) -> bool:
        """Take the files that have the rows of an epoch; False: it needs a DataFrame."""
        ...


def check_is_sink(sink: Any, what: str = "") -> None:
    """Refuse what is no sink; `what` it is for is told before."""
    if not isinstance(sink, Sink):
        raise ConfigError(
            f"{what}{sink!r} is no sink; use files, table, delta, iceberg, postgres, kafka, "
            "foreach_batch, console or memory of godwit, such as gw.files('output')"
        )


def check_no_epoch(schema: StructType) -> None:
    """Refuse an output that has a column of the name that the sink adds."""
    for name in schema.names:
        if name.lower() == EPOCH:
            raise ConfigError(
                f"the output has a column '{name}', but the sink adds one of that name; rename it"
            )


def with_epoch(schema: StructType) -> StructType:
    """The schema of rows with their epoch; every column may be null."""
    fields = [StructField(field.name, field.dataType) for field in schema]
    return StructType([*fields, StructField(EPOCH, LongType())])
