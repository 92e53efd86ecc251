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
        return [_add(here, action["add"]) for action in map(json.loads, actions) if "add" in action]

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


def _add(directory: str, action: dict[str, Any]) -> "AddAction":
    """What the log of a table tells of a file that that of a copy tells of."""
    from deltalake.transaction import AddAction

    return AddAction(
        path=f"{directory}/{unquote(action['path'])}",
        size=action["size"],
        partition_values=action["partitionValues"],
        modification_time=action["modificationTime"],
        data_change=True,
        stats=sound(action["stats"]),
    )


def sound(stats: str) -> str:
    """Statistics without bounds that readers must not rely on.

    The package deltalake writes a decimal as the nearest float, and leaves NaN out: a reader that
    skips files by such bounds loses rows.

    >>> sound('{"numRecords": 2, "minValues": {"n": 1, "price": 1.5}, "maxValues": {"n": 2}}')
    '{"numRecords": 2, "minValues": {"n": 1}, "maxValues": {"n": 2}}'
    """
    told = json.loads(stats)
    return json.dumps(
        {name: _exact(value) if name.endswith("Values") else value for name, value in told.items()},
        ensure_ascii=False,
    )


def _exact(bounds: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _exact(bound) if isinstance(bound, dict) else bound
        for name, bound in bounds.items()
        if not isinstance(bound, float)
    }
