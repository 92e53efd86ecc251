"""Outputs in a Delta table."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from godwit import faults
from godwit.errors import ConfigError
from godwit.log.history import History
from godwit.spark.sinks.arrow_sink import (
    Delivered,
    Outputs,
    as_key,
    check_key,
    columns_to_write,
    hushed,
    need,
)
from godwit.spark.sinks.delta_files import DeltaWriter, are_exact, empty_copy, try_out
from godwit.spark.sinks.lake_sink import LakeSink
from godwit.spark.sinks.sink import Sink, check_no_epoch, with_epoch
from godwit.spark.types import to_arrow
from godwit.storage.directories import local_path
from godwit.storage.location import Location

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction

BOUNDS: Final = "delta.dataSkippingNumIndexedCols"  # of how many columns a file has


def delta(
    uri: str | PathLike[str],
    *,
    key: str | Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Sink:
    """A Delta table, made if missing: an epoch is one commit of the table.

    With a `key`, the table has the newest result of each key; without, all rows. A column `epoch`
    tells where a row comes from; a table that was there before can do without. `storage_options`
    are those of the package deltalake, such as credentials. Needs `pip install 'godwit[delta]'`.

    >>> delta("s3://lake/counts", key="word")
    DeltaSink(uri='s3://lake/counts', key=('word',))
    """
    if not isinstance(uri, str | PathLike):
        raise ConfigError(f"the sink gw.delta needs the path or URL of a table, not {uri!r}")
    return DeltaSink(str(uri), as_key(key), dict(storage_options or {}))


@dataclass
class DeltaSink(LakeSink):
    """Each commit holds rows and, as application transactions, the epoch and the generation."""

    module: ClassVar[str] = "deltalake"

    uri: str
    key: tuple[str, ...]
    storage_options: dict[str, str] = field(repr=False)
    _output: pa.Schema = field(default=None, init=False, repr=False)

    @property
    def guarantee(self) -> str:
        return (
            "exactly once: the rows of an epoch and its number are one commit of the Delta table; "
            "rows of other queries are left as they are"
            + (", unless they have the same key" if self.key else "")
        )

    def prepare(self, schema: StructType, checkpoint: Location, *, to_make: bool) -> None:
        need("deltalake", "delta")
        check_no_epoch(schema)
        check_key(self.key, to_arrow(schema))
        try:
            is_there = self._check_table(schema, to_make)
            query = History(checkpoint).query if is_there else None
            delivered = self.delivered(self.open(), query) if query else None
        except (OSError, _delta_error()) as error:
            told = hushed(str(error), self.storage_options.values())
            raise ConfigError(f"{self} cannot be used: {told}") from None
        if delivered:
            delivered.check_start(checkpoint, str(self))

    @property
    def by_tasks(self) -> bool:
        return not self.key  # a merge compares all rows in one process

    def identity(self, spark: SparkSession) -> Hashable:
        return str(self.open().metadata().id)

    def directory(self, spark: SparkSession) -> Path | None:
        return local_path(self.uri) if self.by_tasks else None

    def open(self) -> "DeltaTable":
        from deltalake import DeltaTable

        return DeltaTable(self.uri, storage_options=self.storage_options)

    def delivered(self, table: "DeltaTable", query: str) -> Delivered | None:
        epoch = table.transaction_version(_epoch_app(query))
        if epoch is None:
            return None
        generation = table.transaction_version(_generation_app(query))
        return Delivered(epoch, f"{query}/{epoch}/{generation}")

    def writer(self, table: "DeltaTable", epoch: int, commit: str) -> DeltaWriter:
        self._to_fill(table)
        return DeltaWriter(
            uri=table.table_uri.rstrip("/"),
            storage_options=self.storage_options,
            directory=f"godwit/{commit.replace('/', '-')}",
            copy=empty_copy(table),
            columns=_given(table),
            epoch=epoch,
        )

    def append(
        self, table: "DeltaTable", files: "list[AddAction | RemoveAction]", epoch: int, commit: str
    ) -> None:
        parts, mark = table.metadata().partition_columns, _mark(epoch, commit)
        table.create_write_transaction(
            files, "append", table.schema(), parts, commit_properties=mark
        )

    def overtaken(self) -> type[Exception]:
        from deltalake.exceptions import CommitFailedError

        return CommitFailedError

    def take(self, outputs: Outputs, commit: str) -> None:
        if not self.key:
            super().take(outputs, commit)
            return

        def merge(table: "DeltaTable") -> None:
            faults.reach("rows", "after", outputs.epoch)  # which a merge writes and commits at once
            if outputs.count:
                self._merge(table, outputs, _mark(outputs.epoch, commit))

        self.change(outputs.epoch, commit, merge)

    def __str__(self) -> str:
        return f"the Delta table {self.uri.removeprefix('file://').rstrip('/')}"

    def _check_table(self, schema: StructType, to_make: bool) -> bool:
        """Refuse a table that does not fit, and tell whether there is one; if missing, make it."""
        from deltalake import DeltaTable

        _delta_schema(to_arrow(schema))
        if not DeltaTable.is_deltatable(self.uri, self.storage_options):
            if not to_make:
                return False
            columns = to_arrow(with_epoch(schema))
            DeltaTable.create(
                self.uri,
                _delta_schema(columns),
                mode="ignore",
                # Whoever merges or compacts files, no filter passes over rows.
                configuration=None if are_exact(columns) else {BOUNDS: "0"},
                storage_options=self.storage_options,
            )
        self._output = to_arrow(schema)
        table = self.open()
        self._to_fill(table)
        try_out(table)
        return True

    def _to_fill(self, table: "DeltaTable") -> pa.Schema:
        """The columns that rows fill; an error if the table does not fit, perhaps not any more."""
        given, columns = _given(table), pa.schema(table.schema())
        if self.key and len(given) < len(columns):
            (made, *_) = (name for name in columns.names if name not in given.names)
            raise ConfigError(
                f"{self} makes the column '{made}' of others, which a merge by key does not do; "
                "leave out key=, or name another table"
            )
        return columns_to_write(str(self), given, self._output)

    def _merge(self, table: "DeltaTable", outputs: Outputs, mark: "CommitProperties") -> None:
        same = (f"(kept.{name} IS NOT DISTINCT FROM given.{name})" for name in _quoted(self.key))
        columns = self._to_fill(table)
        given = {name: f"given.{name}" for name in _quoted(columns.names)}
        merge = table.merge(
            outputs.newest(columns, self.key),
            " AND ".join(same),
            source_alias="given",
            target_alias="kept",
            commit_properties=mark,
        )
        merge.when_matched_update(given).when_not_matched_insert(given).execute()


def _epoch_app(query: str) -> str:
    """The application whose version in a table is the newest epoch of a query."""
    return f"godwit/{query}"


def _generation_app(query: str) -> str:
    """The one whose version is the generation that published this epoch."""
    return f"godwit/{query}/generation"


def _mark(epoch: int, commit: str) -> "CommitProperties":
    """What makes a commit known again, and conflict with one of the same query."""
    from deltalake import CommitProperties, Transaction

    query, _, generation = commit.split("/")
    return CommitProperties(
        app_transactions=[
            Transaction(_epoch_app(query), epoch),
            Transaction(_generation_app(query), int(generation)),
        ]
    )


def _delta_schema(columns: pa.Schema) -> "Schema":
    """The columns as Delta knows them; an error names one that it does not have."""
    from deltalake import Schema

    for column in columns:
        try:
            if pa.types.is_null(column.type):
                raise ValueError("a column of nulls alone")
            Schema.from_arrow(pa.schema([column]))
        except Exception as error:  # of no class of its own
            raise ConfigError(
                f"column '{column.name}' is of type {column.type}, which a Delta table cannot "
                "have; cast it or leave it out"
            ) from error
    return Schema.from_arrow(columns)


def _given(table: "DeltaTable") -> pa.Schema:
    """The columns of a table without those that the package makes of others."""
    columns = pa.schema(table.schema())
    made = b"delta.generationExpression"
    return pa.schema([column for column in columns if made not in (column.metadata or {})])


def _quoted(names: Sequence[str]) -> list[str]:
    return ['"{}"'.format(name.replace('"', '""')) for name in names]


def _delta_error() -> type[Exception]:
    from deltalake.exceptions import DeltaError

    return DeltaError
