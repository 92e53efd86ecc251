"""The data files of a Delta table, and what its log tells of them."""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc

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
    directory: str  # below the table, of this commit: how the names of all begin
    copy: str  # the first commit of the copy's log
    columns: pa.Schema
    epoch: int

    @property
    def secrets(self) -> Iterable[str]:
        return self.storage_options.values()

    def write(self, batches: Iterable[pa.RecordBatch]) -> "list[AddAction]":
        from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

        here = f"{self.directory}-{uuid.uuid4().hex}"
        log = f"{here}/_delta_log"
        made, appended = (f"{log}/{version:020}.json" for version in (0, 1))
        storage = self._storage()
        first: Any = storage.open_output_stream(made)
        first.write(self.copy.encode())
        first.close()
        copy = DeltaTable(f"{self.uri}/{here}", storage_options=self.storage_options)
        found = Found(filled(batches, self.columns, self.epoch))
        reader = pa.RecordBatchReader.from_batches(self.columns, found)
        alone = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        write_deltalake(copy, reader, mode="append", post_commithook_properties=alone)
        second = storage.open_input_file(appended)
        actions = second.read(second.size()).decode().splitlines()
        for file in (made, appended):
            storage.delete_file(file)
        if (directory := urlparse(f"{self.uri}/{log}")).scheme == "file":
            with suppress(OSError):
                Path(unquote(directory.path)).rmdir()  # no vacuum does it
        is_exact = are_exact(self.columns) and not found.nan
        return [
            _add(here, action["add"], is_exact)
            for action in map(json.loads, actions)
            if "add" in action
        ]

    @property
    def layout(self) -> str:
        return self.copy

    def missing(self, files: "Sequence[AddAction]") -> list[str]:
        found = self._storage().get_file_info([file.path for file in files])
        return [
            file.path for file, info in zip(files, found, strict=True) if info.size != file.size
        ]

    def _storage(self) -> "DeltaFileSystemHandler":
        from deltalake._internal import DeltaFileSystemHandler

        return DeltaFileSystemHandler(self.uri, self.storage_options)


def empty_copy(table: "DeltaTable") -> str:
    """The first commit of a table that has no rows, and is otherwise the same.

    It is always the same text: the package tells properties and features in any order.
    """
    version, about = table.protocol(), table.metadata()
    protocol: dict[str, Any] = {
        "minReaderVersion": version.min_reader_version,
        "minWriterVersion": version.min_writer_version,
    }
    if version.reader_features is not None:
        protocol["readerFeatures"] = sorted(version.reader_features)
    if version.writer_features is not None:
        protocol["writerFeatures"] = sorted(version.writer_features)
    metadata = {
        "id": str(about.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _sorted(json.loads(table.schema().to_json())),
        "partitionColumns": about.partition_columns,
        "configuration": about.configuration,
        "createdTime": about.created_time,
    }
    return f"{_sorted({'protocol': protocol})}\n{_sorted({'metaData': metadata})}\n"


def _sorted(told: dict[str, Any]) -> str:
    return json.dumps(told, sort_keys=True)


def try_out(table: "DeltaTable") -> None:
    """Commit nothing to an empty copy of a table: an error tells why the package cannot write."""
    from deltalake import DeltaTable

    with TemporaryDirectory() as directory:
        first = Path(directory, "_delta_log", f"{0:020}.json")
        first.parent.mkdir()
        first.write_text(empty_copy(table))
        parts = table.metadata().partition_columns
        DeltaTable(directory).create_write_transaction([], "append", table.schema(), parts)


def _add(directory: str, action: dict[str, Any], is_exact: bool) -> "AddAction":
    """What the log of a table tells of a file that that of a copy tells of."""
    from deltalake.transaction import AddAction

    return AddAction(
        path=f"{directory}/{unquote(action['path'])}",
        size=action["size"],
        partition_values=action["partitionValues"],
        modification_time=action["modificationTime"],
        data_change=True,
        stats=sound(action["stats"], is_exact),
    )


def sound(stats: str, is_exact: bool) -> str:
    """Statistics of a file, without bounds if they would hide rows from a filter.

    The package deltalake writes the bounds of a decimal as the nearest float, none of an infinite
    number, those of others beside a NaN, and times of years that have not four digits as it cannot
    read them. Its reader takes a bound that it does not find, or cannot read, for a reason to skip
    the file: so it gets all bounds, or none.

    >>> sound('{"numRecords": 2, "minValues": {"n": 7}, "maxValues": {"n": 7}}', is_exact=False)
    '{"numRecords": 2}'
    """
    told = json.loads(stats)
    bounds = told.get("minValues", {}), told.get("maxValues", {})
    nulls, rows = told.get("nullCount", {}), told["numRecords"]
    if is_exact and all(
        _are_there(nulls, each, rows) and not _has_odd_year(each) for each in bounds
    ):
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


def _has_odd_year(bounds: dict[str, Any]) -> bool:
    """Whether a bound is a time beyond the years 0 to 9999, or a text that looks like one."""
    return any(
        _has_odd_year(bound) if isinstance(bound, dict) else _ODD_YEAR.match(str(bound)) is not None
        for bound in bounds.values()
    )


_ODD_YEAR: Final = re.compile(r"[+-]\d{4,}-\d\d-\d\d")


class Found:
    """Batches, and whether a NaN was among those that were read: no bound tells of it."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.nan = False
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.nan = self.nan or any(map(_has_nan, batch.columns))
            yield batch


def _has_nan(column: pa.Array) -> bool:
    if pa.types.is_struct(column.type):
        return any(map(_has_nan, column.flatten()))
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())
