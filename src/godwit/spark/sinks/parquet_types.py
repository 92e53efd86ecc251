"""Which types Spark reads from Parquet files that were written with another one."""

from typing import Final, TypeVar, cast

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from godwit.errors import ConfigError

Type = TypeVar("Type", bound=DataType)

_WIDER: Final = ((ByteType, ShortType, IntegerType, LongType), (FloatType, DoubleType))


def reads(wanted: DataType, written: DataType) -> bool:
    """Whether values of a type can be read as another: the same, or a wider one.

    >>> from godwit.spark.types import to_spark
    >>> from godwit.model.schema import parse
    >>> columns = to_spark(parse("a int, b bigint, c struct<x: int>, d struct<x: int, y: int>"))
    >>> a, b, c, d = (column.dataType for column in columns)
    >>> reads(b, a), reads(a, b), reads(d, c)
    (True, False, True)
    """
    if isinstance(wanted, StructType) and isinstance(written, StructType):
        there = {part.name: part.dataType for part in written}
        return all(reads(part.dataType, there.get(part.name, part.dataType)) for part in wanted)
    if isinstance(wanted, ArrayType) and isinstance(written, ArrayType):
        return reads(wanted.elementType, written.elementType)
    if isinstance(wanted, MapType) and isinstance(written, MapType):
        return reads(wanted.keyType, written.keyType) and reads(wanted.valueType, written.valueType)
    if isinstance(wanted, DecimalType) and isinstance(written, DecimalType):
        whole = wanted.precision - wanted.scale, written.precision - written.scale
        return wanted.scale >= written.scale and whole[0] >= whole[1]
    for types in _WIDER:
        if isinstance(written, types) and isinstance(wanted, types):
            return types.index(type(wanted)) >= types.index(type(written))
    return wanted == written


def check_types(where: str, now: StructType, earlier: StructType) -> None:
    """Refuse columns that could not be read from the files of earlier epochs."""
    for column in earlier:
        if column.name in now.names and not reads(now[column.name].dataType, column.dataType):
            raise ConfigError(
                f"{where} has the column '{column.name}' with type "
                f"{column.dataType.simpleString()}, the output with type "
                f"{now[column.name].dataType.simpleString()}; cast it, or name another place"
            )


def with_earlier(now: Type, earlier: DataType) -> Type:
    """A type, and what structs in it had earlier.

    >>> from godwit.spark.types import to_spark
    >>> from godwit.model.schema import parse
    >>> now, earlier = (to_spark(parse(f"a struct<{x}: int>, {x} int")) for x in "xy")
    >>> with_earlier(now, earlier).simpleString()
    'struct<a:struct<x:int,y:int>,x:int,y:int>'
    """
    merged: DataType = now
    if isinstance(now, StructType) and isinstance(earlier, StructType):
        there = {part.name: part for part in earlier}
        parts = [
            StructField(
                part.name,
                with_earlier(part.dataType, there.pop(part.name, part).dataType),
                part.nullable,
                part.metadata,
            )
            for part in now
        ]
        merged = StructType([*parts, *there.values()])
    elif isinstance(now, ArrayType) and isinstance(earlier, ArrayType):
        merged = ArrayType(with_earlier(now.elementType, earlier.elementType), now.containsNull)
    elif isinstance(now, MapType) and isinstance(earlier, MapType):
        merged = MapType(
            with_earlier(now.keyType, earlier.keyType),
            with_earlier(now.valueType, earlier.valueType),
            now.valueContainsNull,
        )
    return cast(Type, merged)
