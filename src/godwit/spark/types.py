"""Spark's schemas as Arrow schemas and back."""

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import StructField, StructType

from godwit.errors import ConfigError


def to_arrow(schema: StructType) -> pa.Schema:
    """The columns as `mapInArrow` hands them over, with timestamps in UTC.

    Column metadata, collations and the fields of an interval are not kept.
    """
    return pa.schema([_to_arrow_field(field) for field in schema])


def to_spark(schema: pa.Schema) -> StructType:
    """The Spark schema of Arrow columns; timestamps without a time zone are `timestamp_ntz`."""
    return from_arrow_schema(schema)


def _to_arrow_field(field: StructField) -> pa.Field:
    try:
        type_ = to_arrow_type(field.dataType, timezone="UTC")
    except PySparkTypeError as error:
        raise ConfigError(
            f"column '{field.name}' is of type {field.dataType.simpleString()}, which Spark cannot "
            "hand to Python as Arrow; cast it or leave it out"
        ) from error
    return pa.field(field.name, type_, nullable=field.nullable)
