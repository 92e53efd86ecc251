"""Outputs in an Iceberg table."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.log.history import History
from godwit.spark.sinks.arrow_sink import (
    Delivered,
    columns_to_write,
    filled,
    hushed,
    need,
    secrets_of,
)
from godwit.spark.sinks.lake_sink import LakeSink
from godwit.spark.sinks.sink import Sink, check_no_epoch, with_epoch
from godwit.spark.types import to_arrow
from godwit.storage.directories import local_path
from godwit.storage.location import Location

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO, InputFile, OutputFile
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

QUERY: Final = "godwit.query"
EPOCH: Final = "godwit.epoch"
COMMIT: Final = "godwit.commit"


def iceberg(
    table: str, *, catalog: str = "default", properties: Mapping[str, str] | None = None
) -> Sink:
    """An Iceberg table, made if missing: an epoch is one snapshot of the table.

    `catalog` is the name of one that PyIceberg's configuration describes, or `properties` describe
    it, credentials among them. A column `epoch` tells where a row comes from; a table that was
    there before can do without. Needs `pip install 'godwit[iceberg]'`.

    >>> iceberg("shop.counts", catalog="lake", properties={"type": "rest", "token": "secret"})
    IcebergSink(table='shop.counts', catalog='lake')
    """
    return IcebergSink(table, catalog, dict(properties or {}))


@dataclass
class IcebergSink(LakeSink):
    """A snapshot's summary tells query, epoch and commit; a snapshot follows the one that was seen
    when the commit was not there, or it is not taken."""

    module: ClassVar[str] = "pyiceberg.io.pyarrow"

    table: str
    catalog: str
    properties: dict[str, str] = field(repr=False)
    _opened: "Catalog | None" = field(default=None, init=False, repr=False)
    _columns: pa.Schema = field(default=None, init=False, repr=False)

    @property
    def guarantee(self) -> str:
        return (
            "exactly once: the rows of an epoch and the id of its commit are one snapshot of the "
            "Iceberg table, as long as the table keeps the newest snapshot of the query; rows of "
            "other queries are left as they are"
        )

    def prepare(self, schema: StructType, checkpoint: Location, *, to_make: bool) -> None:
        need("pyiceberg.io.pyarrow", "iceberg")
        check_no_epoch(schema)
        try:
            delivered = self._check_table(schema, History(checkpoint).query, to_make)
        except ConfigError:
            raise
        except Exception as error:  # catalogs have any
            told = hushed(f"{type(error).__name__}: {error}", secrets_of(self.properties))
            raise ConfigError(f"{self} cannot be used: {told}") from None
        if delivered:
            delivered.check_start(checkpoint, str(self))

    def identity(self, spark: SparkSession) -> Hashable:
        return self.open().metadata.table_uuid

    def directory(self, spark: SparkSession) -> Path | None:
        """That of the table; if it is missing, of the catalog's warehouse."""
        assert self._opened is not None
        if self._opened.table_exists(self.table):
            return local_path(self.open().location())
        return local_path(self._opened.properties.get("warehouse"))

    def open(self) -> "Table":
        assert self._opened is not None
        return self._opened.load_table(self.table)

    def delivered(self, table: "Table", query: str) -> Delivered | None:
        """The newest delivery of a query among the snapshots that led to the current one."""
        snapshot = table.current_snapshot()
        while snapshot is not None:
            summary = snapshot.summary
            if summary is not None and summary.get(QUERY) == query:
                return Delivered(int(summary[EPOCH] or 0), summary[COMMIT] or "")
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return None

    def writer(self, table: "Table", epoch: int, commit: str) -> "IcebergWriter":
        # Tasks need none of the history, which may be long.
        history: dict[str, Any] = {
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
        }
        metadata = table.metadata.model_copy(update=history)
        return IcebergWriter(metadata, table.io, self._columns, epoch)

    def append(self, table: "Table", files: "list[DataFile]", epoch: int, commit: str) -> None:
        from pyiceberg.table import TableProperties
        from pyiceberg.utils.properties import property_as_bool

        told = {QUERY: commit.partition("/")[0], EPOCH: str(epoch), COMMIT: commit}
        # Tried again by PyIceberg, an append would follow a snapshot that nobody has looked at.
        once = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": once})
        merges = property_as_bool(
            table.properties,
            TableProperties.MANIFEST_MERGE_ENABLED,
            TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
        )
        table.io = cast("FileIO", KeepingIO(table.io))
        with table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=told)
            with update.merge_append() if merges else update.fast_append() as append:
                for file in files:
                    append.append_data_file(file)

    def overtaken(self) -> type[Exception]:
        from pyiceberg.exceptions import CommitFailedException

        return CommitFailedException

    def __str__(self) -> str:
        return f"the Iceberg table {self.table}"

    def _check_table(
        self, schema: StructType, query: str | None, to_make: bool
    ) -> Delivered | None:
        """Refuse a table that does not fit; if missing, make it. What it has of a query."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._opened = load_catalog(self.catalog, **self.properties)
        if not self._opened.table_exists(self.table):
            if not to_make:
                return None
            self._make(self._opened, to_arrow(with_epoch(schema)))
        table = self.open()
        output = pa.schema(
            [pa.field(column.name, _kept(column.type)) for column in to_arrow(schema)]
        )
        there = table.schema().as_arrow()
        self._columns = columns_to_write(str(self), there, output)
        if table.format_version > 2:
            raise ConfigError(
                f"{self} has format version {table.format_version}, which PyIceberg reads but does "
                "not write; name a table of version 2"
            )
        for part in table.spec().fields:  # some transforms need another package
            type_ = table.schema().find_field(part.source_id).field_type
            part.transform.pyarrow_transform(type_)(pa.nulls(0, schema_to_pyarrow(type_)))
        return self.delivered(table, query) if query else None

    def _make(self, catalog: "Catalog", columns: pa.Schema) -> None:
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            catalog.create_table_if_not_exists(self.table, columns)
        except NoSuchNamespaceError:  # which comes after a refusal of the columns
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            catalog.create_table_if_not_exists(self.table, columns)


class KeepingIO:
    """Deletes no file that it has written.

    PyIceberg deletes the manifests of a commit that a catalog says to have failed. It may have
    landed all the same, if a catalog or a proxy tried it twice, and then the table needs them.
    """

    def __init__(self, io: "FileIO") -> None:
        self.properties = io.properties
        self.new_input: Callable[[str], InputFile] = io.new_input
        self._io = io
        self._written: set[str] = set()

    def new_output(self, location: str) -> "OutputFile":
        self._written.add(location)
        return self._io.new_output(location)

    def delete(self, location: "str | InputFile | OutputFile") -> None:
        if location not in self._written:
            self._io.delete(location)


@dataclass(frozen=True, slots=True)
class IcebergWriter:
    """Writes files for one snapshot of a table, as PyIceberg does for its own appends."""

    metadata: "TableMetadata" = field(repr=False)
    io: "FileIO" = field(repr=False)
    columns: pa.Schema
    epoch: int

    @property
    def secrets(self) -> Iterable[str]:
        return secrets_of(self.io.properties)

    @property
    def layout(self) -> tuple[object, ...]:
        about = self.metadata
        return about.table_uuid, about.location, about.current_schema_id, about.default_spec_id

    def write(self, batches: Iterable[pa.RecordBatch]) -> "list[DataFile]":
        from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible, _dataframe_to_data_files

        _check_pyarrow_schema_compatible(
            self.metadata.schema(),
            provided_schema=self.columns,
            format_version=self.metadata.format_version,
        )
        rows = filled(batches, self.columns, self.epoch)
        reader = pa.RecordBatchReader.from_batches(self.columns, rows)
        # Batches cannot be told apart into partitions.
        whole = not self.metadata.spec().is_unpartitioned()
        found = reader.read_all() if whole else reader
        return list(_dataframe_to_data_files(self.metadata, found, self.io))

    def missing(self, files: "Sequence[DataFile]") -> list[str]:
        return [file.file_path for file in files if not self._is_there(file)]

    def _is_there(self, file: "DataFile") -> bool:
        found = self.io.new_input(file.file_path)
        return found.exists() and len(found) == file.file_size_in_bytes


def _kept(type_: pa.DataType) -> pa.DataType:
    """The type that Iceberg keeps values of this one in: it has no narrower integers."""
    if type_ in (pa.int8(), pa.int16()):
        return pa.int32()
    if pa.types.is_list(type_):
        return pa.list_(_kept(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_kept(type_.key_type), _kept(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(part.name, _kept(part.type)) for part in type_])
    return type_
