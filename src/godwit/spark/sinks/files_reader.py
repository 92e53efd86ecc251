"""Reading what `gw.files` has delivered, wherever that is."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.spark.outputs import by_tasks
from godwit.spark.sinks.delivery_log import Delivery, DeliveryLog
from godwit.spark.sinks.sink import EPOCH, with_epoch
from godwit.spark.types import to_arrow
from godwit.state.output import OutputFiles
from godwit.storage.local import LocalStore
from godwit.storage.location import Location, open_store
from godwit.storage.store import Store


def read_files(spark: SparkSession, location: Location) -> DataFrame:
    """All rows that `gw.files(location)` has delivered as Parquet, with their epochs.

    It reads the files of the epochs that are there now, by checksum, and no others. Columns that
    later starts have added are null in the epochs before. On a local disk it is
    `spark.read.parquet(location)`.

    >>> rows = read_files(spark, home / "output")  # of a query that counts words
    >>> [(row.word, row.n, row.epoch) for row in rows.sort("word").collect()]
    [('be', 1, 0), ('to', 2, 0)]
    """
    store = open_store(location)
    if isinstance(store, LocalStore):
        return spark.read.parquet(store.url())
    log, newest = _open(store)
    files = OutputFiles(store, tuple(log.files(newest)))
    schema = with_epoch(StructType.fromJson(newest.schema).toNullable())
    return by_tasks(spark, files, ReadDelivered(files, to_arrow(schema)), schema)


def delivered_files(location: Location) -> list[str]:
    """The addresses of the Parquet files that have the rows of all delivered epochs.

    For readers other than Spark, such as DuckDB: files that are not among these do not count.

    >>> {name.split("/")[-2] for name in delivered_files(home / "output")}
    {'epoch=0'}
    """
    store = open_store(location)
    if isinstance(store, LocalStore):
        names = [one for one in store.list_files("") if one.startswith(f"{EPOCH}=")]
        return [store.address(one) for one in names if one.endswith(".parquet")]
    log, newest = _open(store)
    return sorted(store.address(ref.name) for ref in log.files(newest))


def _open(store: Store) -> tuple[DeliveryLog, Delivery]:
    log = DeliveryLog(store)
    newest = log.newest()
    if newest is None:
        raise ConfigError(
            f"{store} has no output of gw.files; name the location that the query writes to, or "
            "wait for its first epoch with rows"
        )
    return log, newest


class ReadDelivered:
    """The rows of the files whose numbers come in, with the columns of all epochs."""

    def __init__(self, files: OutputFiles, columns: pa.Schema) -> None:
        self._files = files
        self._columns = columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for rows in self._files.batches(batch.column(0).to_pylist()):
                yield conformed(rows, self._columns)


def conformed(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows of an earlier epoch with the columns, and in them the parts, that later ones have."""
    given = dict(zip(rows.schema.names, rows.columns, strict=True))
    arrays = [
        _conformed(given[column.name], column.type)
        if column.name in given
        else pa.nulls(len(rows), column.type)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _conformed(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if values.type == type_:
        return values
    if pa.types.is_struct(type_):
        names = [part.name for part in values.type]
        given = dict(zip(names, values.flatten(), strict=True))
        parts = [
            _conformed(given[part.name], part.type)
            if part.name in given
            else pa.nulls(len(values), part.type)
            for part in type_
        ]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=values.is_null())
    if pa.types.is_list(type_):
        elements = _conformed(pc.list_flatten(values), type_.value_type)
        return pa.ListArray.from_arrays(
            _offsets(values), elements, type=type_, mask=values.is_null()
        )
    if pa.types.is_map(type_):
        last = pa.array([False])  # what ends the last one
        nulls = pa.concat_arrays([values.is_null(), last])
        offsets = pc.if_else(nulls, pa.scalar(None, pa.int32()), values.offsets)
        keys = _conformed(values.keys, type_.key_type)
        return pa.MapArray.from_arrays(
            offsets, keys, _conformed(values.items, type_.item_type), type_
        )
    return values.cast(type_)


def _offsets(values: pa.Array) -> pa.Array:
    """Where the elements of each list begin among those of all, and where the last ones end."""
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
