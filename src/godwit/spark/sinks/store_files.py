"""Outputs as Parquet files in a store without rename: an entry in a log names those that count."""

import uuid
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.log.history import History
from godwit.model.files import FileRef
from godwit.model.ids import Epoch
from godwit.spark.sinks.arrow_sink import Delivered, filled
from godwit.spark.sinks.delivery_log import Delivery, DeliveryLog
from godwit.spark.sinks.lake_sink import LakeSink
from godwit.spark.sinks.parquet_types import check_types, with_earlier
from godwit.spark.sinks.sink import check_no_epoch, with_epoch
from godwit.spark.types import to_arrow
from godwit.state.file import Summing
from godwit.storage.directories import lies_in, local_path
from godwit.storage.location import Location, open_store
from godwit.storage.probe import check_store
from godwit.storage.store import Store

DATA: Final = "data"
CODECS: Final = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")
ROW_GROUP: Final = 64 << 20  # bytes, before they are packed


@dataclass
class StoreFilesSink(LakeSink):
    """A file counts if an entry of the log names it; a log has the epochs of one query."""

    module: ClassVar[str] = "obstore"

    store: Store
    compression: str = "snappy"
    _log: DeliveryLog = field(init=False, repr=False)
    _newest: Delivery | None = field(default=None, init=False, repr=False)
    _is_known: bool = field(default=False, init=False, repr=False)  # it is the newest, to our mind
    _output: StructType = field(default_factory=StructType, init=False, repr=False)
    _checkpoint: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        self._log = DeliveryLog(self.store)

    @property
    def guarantee(self) -> str:
        return (
            "exactly once for readers that go by the log of deliveries, such as gw.read_files: one "
            "entry names the files of an epoch; another query's output is refused"
        )

    def prepare(self, schema: StructType, checkpoint: Location, *, to_make: bool) -> None:
        check_no_epoch(schema)
        _check_parquet(schema)
        other = open_store(checkpoint)
        if lies_in(self.store, other) or lies_in(other, self.store):
            raise ConfigError(
                f"{self} and the checkpoint {checkpoint} are one place, or one lies in the other; "
                "name two that lie beside each other"
            )
        if to_make:
            self.store.make()
            check_store(self.store)
        self._checkpoint, self._output, self._is_known = str(checkpoint), schema, False
        if (newest := self.open()) is not None:
            check_types(str(self), schema, _schema(newest))
            there = self.delivered(newest, History(checkpoint).query or "")
            if there is not None:
                there.check_start(checkpoint, str(self))

    def identity(self, spark: SparkSession) -> Hashable:
        return str(self.store)

    def directory(self, spark: SparkSession) -> Path | None:
        return local_path(self.store)

    def open(self) -> Delivery | None:
        if not self._is_known:
            self._newest, self._is_known = self._log.newest(), True
        return self._newest

    def delivered(self, table: Delivery | None, query: str) -> Delivered | None:
        if table is None:
            return None
        if table.query != query:
            raise ConfigError(
                f"{self} is that of another query, in checkpoint {table.checkpoint}. Name another "
                "place for this one, or delete what is there. Nothing was changed"
            )
        return Delivered(table.epoch, table.commit)

    def writer(self, table: Delivery | None, epoch: int, commit: str) -> "StoreWriter":
        stem = f"{DATA}/{epoch}-{commit.rpartition('/')[2]}"
        columns = to_arrow(with_epoch(self._output))
        return StoreWriter(self.store, stem, columns, epoch, self.compression)

    def append(self, table: Delivery | None, files: list[FileRef], epoch: int, commit: str) -> None:
        schema = with_earlier(self._output, _schema(table) if table else StructType())
        new = Delivery(Epoch(epoch), commit, self._checkpoint, schema.jsonValue(), tuple(files))
        self._is_known = False
        self._newest = self._log.append(table, new)
        self._is_known = True

    def overtaken(self) -> type[Exception]:
        return FileExistsError

    def __str__(self) -> str:
        return f"the output {self.store}"


@dataclass(frozen=True, slots=True)
class StoreWriter:
    """Writes files of an epoch, each call another one."""

    store: Store = field(repr=False)
    stem: str
    columns: pa.Schema
    epoch: int
    compression: str

    @property
    def secrets(self) -> Iterable[str]:
        return ()  # a store tells none

    @property
    def layout(self) -> str:
        return self.stem

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[FileRef]:
        name, rows = f"{self.stem}-{uuid.uuid4().hex}.parquet", 0
        with self.store.write(name) as target:
            sink = Summing(target)
            with (
                pa.PythonFile(sink, "w") as output,
                pq.ParquetWriter(output, self.columns, compression=self.compression) as writer,
            ):
                for group in _groups(filled(batches, self.columns, self.epoch)):
                    writer.write_table(group)
                    rows += group.num_rows
        return [FileRef(name, rows, sink.bytes, sink.crc)]

    def missing(self, files: Sequence[FileRef]) -> list[str]:
        return [file.name for file in files if not self.store.exists(file.name)]


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together as long as that is not much."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size > ROW_GROUP:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _schema(delivery: Delivery) -> StructType:
    return StructType.fromJson(delivery.schema)


def in_store(store: Store, format: str, options: Mapping[str, Any]) -> StoreFilesSink:
    """A sink of files in a store; refuses what only Spark's own writers write."""
    if format != "parquet":
        raise ConfigError(
            f"files in {store} are Parquet, since tasks write them without Spark's own writers; "
            f"leave out '{format}', or name a local directory"
        )
    if others := options.keys() - {"compression"}:
        raise ConfigError(
            f"files in {store} have no option '{min(others)}', only 'compression': tasks write "
            "them without Spark's own writers"
        )
    codec = str(options.get("compression", "snappy"))
    if codec not in CODECS:
        raise ConfigError(
            f"files in {store} cannot have the compression '{codec}'; use {', '.join(CODECS)}"
        )
    return StoreFilesSink(store, codec)


def _check_parquet(schema: StructType) -> None:
    for field_ in to_arrow(schema):
        if pa.types.is_null(field_.type):
            raise ConfigError(
                f"column '{field_.name}' has no type, so Parquet files cannot have it; cast it"
            )
