"""Schemas survive the way to Arrow and back, and are those that Spark itself uses."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DayTimeIntervalType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    VarcharType,
    VariantType,
)

from godwit.errors import ConfigError
from godwit.model.schema import parse
from godwit.spark.types import to_arrow, to_spark
from godwit.worker.work import plain

DDL = """
    b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint NOT NULL, f float, d double, s string,
    bin binary, day date, ts timestamp, ntz timestamp_ntz, dec decimal(10,2), large decimal(38,0),
    list array<timestamp>, nested map<string, struct<a: array<long>, b: decimal(4,1)>>
"""


class Schema:
    """Yields the schema of the batches it gets, as a pickle."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"schema": [batch.schema.serialize().to_pybytes()]})


def test_a_schema_string_survives() -> None:
    schema = parse(DDL)
    assert to_arrow(to_spark(schema)).equals(schema)


@pytest.mark.spark
def test_the_arrow_types_are_those_that_map_in_arrow_hands_over(spark: SparkSession) -> None:
    schema = StructType(
        [
            *to_spark(parse(DDL)),
            StructField("variant", VariantType()),
            StructField("interval", DayTimeIntervalType()),
            StructField("exact", ArrayType(LongType(), containsNull=False)),
            StructField("full", MapType(StringType(), LongType(), valueContainsNull=False)),
        ]
    )
    nulls = [0 if field.name == "i64" else None for field in schema]
    df = spark.createDataFrame([tuple(nulls)], schema)
    (row,) = df.mapInArrow(Schema(), "schema binary").collect()
    handed = pa.ipc.read_schema(pa.py_buffer(row["schema"]))
    assert to_arrow(schema).names == handed.names
    assert to_arrow(schema).types == [plain(field.type) for field in handed]
    assert to_spark(handed) == schema


def test_what_arrow_does_not_know_is_not_kept() -> None:
    schema = StructType(
        [
            StructField("s", StringType("UTF8_LCASE"), True, {"comment": "text"}),
            StructField("v", VarcharType(5)),
            StructField("n", NullType()),
        ]
    )
    plain = StructType(
        [
            StructField("s", StringType()),
            StructField("v", StringType()),
            StructField("n", NullType()),
        ]
    )
    assert to_spark(to_arrow(schema)) == plain


def test_other_time_zones_are_timestamps_too() -> None:
    schema = pa.schema({"at": pa.timestamp("us", tz="Europe/Berlin")})
    assert to_arrow(to_spark(schema)) == parse("at timestamp")


def test_types_without_a_counterpart_are_refused_by_name() -> None:
    nested = ArrayType(StructType([StructField("part", CalendarIntervalType())]))
    with pytest.raises(ConfigError, match="column 'odd' is of type interval"):
        to_arrow(StructType([StructField("odd", nested)]))
    with pytest.raises(ConfigError, match="column 'odd' is of Arrow type uint64"):
        to_spark(pa.schema({"odd": pa.uint64()}))
