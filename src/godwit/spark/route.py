"""Operator F: each record goes to the worker of its bin, inside the JVM."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    AnsiIntervalType,
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DatetimeType,
    DecimalType,
    FractionalType,
    IntegralType,
    NullType,
    StringType,
    StructType,
)

from godwit.model.routing import Routing
from godwit.spark.pinning import Slots
from godwit.state.table import HASH

# A name of this module, so that a test can make hashes collide.
KEY_HASH: Callable[..., Column] = sf.xxhash64

# Types of which Spark's order calls no two different values equal, as it does -0.0 and 0.0.
_EXACT = (
    NullType,
    BooleanType,
    IntegralType,
    DecimalType,
    BinaryType,
    DatetimeType,
    AnsiIntervalType,
)
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
_LONG_MIN = -(1 << 63)

_known: deque[tuple[SparkContext, Routing, tuple[int, ...], Column]] = deque(maxlen=16)


def route(
    df: DataFrame,
    key: Sequence[str],
    routing: Routing,
    slots: Slots | None = None,
    *,
    with_hash: bool = True,
) -> DataFrame:
    """Bring each record to its worker's partition, with the key's hash as column `_hash`.

    Partition i holds the records of worker i; there are as many partitions as workers. With slots,
    partition i holds those of the worker that has slot i, if there is one.
    """
    hash = KEY_HASH(*map(column, key))
    if with_hash:
        df, hash = df.withColumn(HASH, hash), column(HASH)
    destination = _destination(df.sparkSession, routing, slots, hash)
    if slots is None:
        return df.repartitionById(routing.workers, destination)
    never_null = sf.coalesce(destination, sf.lit(slots.keys[0]))  # or the join would look for nulls
    return slots.pin(df, never_null)


def ordered(df: DataFrame, key: Sequence[str], time: str | None = None) -> DataFrame:
    """Sort each partition by hash (unsigned), key, time, and then by content, nulls last.

    The order is total: records that it leaves side by side in any order are equal.
    """
    types = {field.name: field.dataType for field in df.schema if field.name != HASH}
    columns = dict.fromkeys([*key, *([time] if time else []), *types])
    return df.sortWithinPartitions(
        column(HASH).bitwiseXOR(sf.lit(_LONG_MIN)),
        *[column(name).asc_nulls_last() for name in columns if _comparable(types[name])],
        *[_as_json(name) for name in columns if not _exact(types[name])],
    )


def _destination(
    session: SparkSession, routing: Routing, slots: Slots | None, hash: Column
) -> Column:
    """The worker of a record's bin, or the key of its slot, as an expression over its hash."""
    bins = sf.shiftrightunsigned(hash, 64 - routing.bits) if routing.bits else sf.lit(0)
    return sf.get(_destinations(session, routing, slots), bins.cast("int")).cast("int")


def _destinations(session: SparkSession, routing: Routing, slots: Slots | None) -> Column:
    """Those of all bins as one array.

    It is the result of a scalar subquery: unlike a literal it is neither folded, compared nor
    printed while Spark plans, so that 2^20 bins cost no more than one. It is kept, since most
    epochs have the routing of the last one.
    """
    context = session.sparkContext
    keys = tuple(slots.keys[slot] for slot in slots.of_worker) if slots else ()
    for *known, destinations in tuple(_known):
        if known == [context, routing, keys]:
            return destinations
    owners = np.array(keys)[routing.owners] if keys else routing.owners
    width = np.int16 if owners.max() < 1 << 15 else np.int32
    array = pa.ListArray.from_arrays([0, routing.bins], pa.array(owners.astype(width)))
    destinations = session.createDataFrame(pa.table({"owners": array})).scalar()
    _known.appendleft((context, routing, keys, destinations))
    return destinations


def column(name: str) -> Column:
    quoted = name.replace("`", "``")
    return sf.col(f"`{quoted}`")


def _as_json(name: str) -> Column:
    return sf.to_json(sf.struct(column(name)), _JSON)


def _comparable(type_: DataType) -> bool:
    """Whether Spark can sort by it."""
    atoms = (*_EXACT, FractionalType, StringType)
    return all(isinstance(part, atoms) for part in _parts(type_))


def _exact(type_: DataType) -> bool:
    return all(isinstance(part, _EXACT) or part == StringType() for part in _parts(type_))


def _parts(type_: DataType) -> Iterator[DataType]:
    """What arrays and structs consist of in the end; other types are one part."""
    if isinstance(type_, ArrayType):
        yield from _parts(type_.elementType)
    elif isinstance(type_, StructType):
        for field in type_:
            yield from _parts(field.dataType)
    else:
        yield type_
