"""The data files of a Delta table, and what its log tells of them."""

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from godwit.spark.sinks.arrow_sink import filled

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake._internal import DeltaFileSystemHandler
    from deltalake.transaction import AddAction


@dataclass(frozen=True, slots=True)
class DeltaWriter:
    """Writes files for one commit of a table.

    Each call writes to an empty copy of the table, in a directory of its own below it. So the
    package deltalake does all that it does for the table itself: it checks constraints, makes
    partitions and statistics. Then it takes the log of the copy away: what was in it is returned.
    """

    uri: str
    storage_options: dict[str, str] = field(repr=False)
    directory: str  # below the table, of this commit
    copy: str  # the first commit of the copy's log
    columns: pa.Schema
    epoch: int

    @property
    def secrets(self) -> Iterable[str]:
        return self.storage_options.values()

    def write(self, batches: Iterable[pa.RecordBatch]) -> "list[AddAction]":
        from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

        here = f"{self.directory}/{uuid.uuid4().hex}"
        made, appended = (f"{here}/_delta_log/{version:020}.json" for version in (0, 1))
        storage = self._storage()
        first: Any = storage.open_output_stream(made)
        first.write(self.copy.encode())
        first.close()
        copy = DeltaTable(f"{self.uri}/{here}", storage_options=self.storage_options)
        rows = filled(batches, self.columns, self.epoch)
        reader = pa.RecordBatchReader.from_batches(self.columns, rows)
        alone = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        write_deltalake(copy, reader, mode="append", post_commithook_properties=alone)
        second = storage.open_input_file(appended)
        actions = second.read(second.size()).decode().splitlines()
        for log in (made, appended):
            storage.delete_file(log)
        return [
            _add(here, action["add"], self.columns)
            for action in map(json.loads, actions)
            if "add" in action
        ]

    def missing(self, files: "Sequence[AddAction]") -> list[str]:
        found = self._storage().get_file_info([file.path for file in files])
        return [
            file.path for file, info in zip(files, found, strict=True) if info.size != file.size
        ]

    def _storage(self) -> "DeltaFileSystemHandler":
        from deltalake._internal import DeltaFileSystemHandler

        return DeltaFileSystemHandler(self.uri, self.storage_options)


def empty_copy(table: "DeltaTable") -> str:
    """The first commit of a table that has no rows, and is otherwise the same."""
    version, about = table.protocol(), table.metadata()
    protocol: dict[str, Any] = {
        "minReaderVersion": version.min_reader_version,
        "minWriterVersion": version.min_writer_version,
    }
    if version.reader_features is not None:
        protocol["readerFeatures"] = version.reader_features
    if version.writer_features is not None:
        protocol["writerFeatures"] = version.writer_features
    metadata = {
        "id": str(about.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": about.partition_columns,
        "configuration": about.configuration,
        "createdTime": about.created_time,
    }
    return f"{json.dumps({'protocol': protocol})}\n{json.dumps({'metaData': metadata})}\n"


def _add(directory: str, action: dict[str, Any], columns: pa.Schema) -> "AddAction":
    """What the log of a table tells of a file that that of a copy tells of."""
    from deltalake.transaction import AddAction

    return AddAction(
        path=f"{directory}/{unquote(action['path'])}",
        size=action["size"],
        partition_values=action["partitionValues"],
        modification_time=action["modificationTime"],
        data_change=True,
        stats=sound(action["stats"], columns),
    )


def sound(stats: str, columns: pa.Schema) -> str:
    """Statistics of a file, without bounds if they would hide rows from a filter.

    The package deltalake writes the bounds of a decimal as the nearest float, and none of an
    infinite number. Its reader takes a bound that it does not find, or cannot read, for a reason to
    skip the file: so it gets all bounds, or none.

    >>> sound('{"numRecords": 2, "maxValues": {"n": 7}}', pa.schema({"n": pa.decimal128(38, 18)}))
    '{"numRecords": 2}'
    """
    told = json.loads(stats)
    bounds = told.get("minValues", {}), told.get("maxValues", {})
    nulls, rows = told.get("nullCount", {}), told["numRecords"]
    if are_exact(columns) and all(_are_there(nulls, each, rows) for each in bounds):
        return stats
    return json.dumps({"numRecords": rows})


def are_exact(columns: pa.Schema) -> bool:
    """Whether bounds that the package deltalake writes are those of the values."""
    return all(_is_exact(column.type) for column in columns)


def _is_exact(type_: pa.DataType) -> bool:
    """A float has 15 digits, and with four places no exponent; whole numbers have 64 bits."""
    if pa.types.is_struct(type_):
        return all(_is_exact(part.type) for part in type_)
    if not pa.types.is_decimal(type_):
        return True
    return bool(type_.precision <= (15 if type_.scale else 18) and type_.scale < 5)


def _are_there(nulls: dict[str, Any], bounds: dict[str, Any], rows: int) -> bool:
    """Whether each column that has a value has a bound."""
    return all(
        _are_there(count, bounds.get(name, {}), rows)
        if isinstance(count, dict)
        else count == rows or bounds.get(name) is not None
        for name, count in nulls.items()
    )
