"""Spark's schemas as Arrow schemas and back."""

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

from godwit.errors import ConfigError

_ATOMS: tuple[tuple[type[DataType], pa.DataType], ...] = (
    (NullType, pa.null()),
    (BooleanType, pa.bool_()),
    (ByteType, pa.int8()),
    (ShortType, pa.int16()),
    (IntegerType, pa.int32()),
    (LongType, pa.int64()),
    (FloatType, pa.float32()),
    (DoubleType, pa.float64()),
    (StringType, pa.string()),
    (BinaryType, pa.binary()),
    (DateType, pa.date32()),
    (TimestampType, pa.timestamp("us", tz="UTC")),
    (TimestampNTZType, pa.timestamp("us")),
    (DayTimeIntervalType, pa.duration("us")),
    (
        VariantType,
        pa.struct(
            [
                pa.field("value", pa.binary(), nullable=False),
                pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
            ]
        ),
    ),
)
_TEXTS = (StringType, CharType, VarcharType)


def to_arrow(schema: StructType) -> pa.Schema:
    """The columns as `mapInArrow` hands them over, with timestamps in UTC.

    Column metadata, collations, lengths of strings, the fields of an interval, and what can be null
    inside of a value, are not kept.

    >>> to_arrow(StructType([StructField("at", TimestampType()), StructField("n", LongType())]))
    at: timestamp[us, tz=UTC]
    n: int64
    """
    return pa.schema(
        [pa.field(f.name, _to_arrow(f.dataType, f.name), nullable=f.nullable) for f in schema]
    )


def to_spark(schema: pa.Schema) -> StructType:
    """The Spark schema of Arrow columns; a timestamp without a time zone is a `timestamp_ntz`.

    >>> to_spark(pa.schema({"n": pa.int64()})).simpleString()
    'struct<n:bigint>'
    """
    return StructType([_to_spark_field(field, field.name) for field in schema])


def _to_arrow(type_: DataType, column: str) -> pa.DataType:
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, _TEXTS):
        return pa.string()
    if isinstance(type_, ArrayType):
        element = _to_arrow(type_.elementType, column)
        return pa.list_(pa.field("element", element))
    if isinstance(type_, MapType):
        key = pa.field("key", _to_arrow(type_.keyType, column), nullable=False)
        value = _to_arrow(type_.valueType, column)
        return pa.map_(key, pa.field("value", value))
    if isinstance(type_, StructType):
        return pa.struct([pa.field(f.name, _to_arrow(f.dataType, column)) for f in type_])
    for spark, arrow in _ATOMS:
        if isinstance(type_, spark):
            return arrow
    raise ConfigError(
        f"column '{column}' is of type {type_.simpleString()}, which Godwit cannot hand to Python; "
        "cast it or leave it out"
    )


def _to_spark_field(field: pa.Field, column: str) -> StructField:
    return StructField(field.name, _to_spark(field.type, column), field.nullable)


def _to_spark(type_: pa.DataType, column: str) -> DataType:
    for spark, arrow in _ATOMS:
        if type_.equals(arrow, check_metadata=True):
            return spark()
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return TimestampType()
    if pa.types.is_decimal128(type_):
        return DecimalType(type_.precision, type_.scale)
    if pa.types.is_list(type_):
        nullable = type_.value_field.nullable
        return ArrayType(_to_spark(type_.value_type, column), nullable)
    if pa.types.is_map(type_):
        key, value = _to_spark(type_.key_type, column), _to_spark(type_.item_type, column)
        return MapType(key, value, type_.item_field.nullable)
    if pa.types.is_struct(type_):
        return StructType([_to_spark_field(field, column) for field in type_])
    raise ConfigError(f"column '{column}' is of Arrow type {type_}, which Spark does not have")
