"""What tasks read of outputs with Arrow is exactly what Spark's own reader reads."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from godwit.errors import DamagedFileError
from godwit.model.schema import parse
from godwit.spark import outputs
from godwit.spark.types import to_spark
from godwit.state import output
from godwit.state.output import OutputFiles
from godwit.storage.local import LocalStore
from tests.support.far_store import FarStore, far_store

pytestmark = pytest.mark.spark

MOMENT = datetime(2024, 2, 29, 12, 30, 0, 123456)
VALUES: dict[str, list[Any]] = {
    "boolean": [True],
    "tinyint": [-128],
    "smallint": [-(2**15)],
    "int": [-(2**31)],
    "bigint": [2**63 - 1],
    "float": [1.5, float("inf"), -0.0],
    "double": [1e300, float("-inf"), float("nan")],
    "string": ["größe", ""],
    "binary": [b"\0\xff", b""],
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [MOMENT.replace(tzinfo=UTC), datetime(1, 1, 2, tzinfo=UTC)],
    "timestamp_ntz": [MOMENT, datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "decimal(9,2)": [Decimal("-1234567.89")],
    "decimal(18,0)": [Decimal(10**18 - 1)],
    "decimal(38,18)": [Decimal("-12345678901234567890.123456789012345678")],
    "array<bigint>": [[1, None, 3], []],
    "array<array<timestamp>>": [[[MOMENT.replace(tzinfo=UTC)], None, []]],
    "map<string, decimal(10,3)>": [[("a", Decimal("1.500")), ("b", None)], []],
    "struct<x: int, y: array<struct<z: timestamp_ntz>>>": [
        {"x": None, "y": [{"z": MOMENT}, None]},
        {"x": 1, "y": None},
    ],
    "map<date, struct<a: binary, b: map<int, boolean>>>": [
        [(date(2024, 1, 1), {"a": b"a", "b": [(1, None)]})]
    ],
}
DDL = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(VALUES))


def table() -> pa.Table:
    """A row with the first value of each type, one with the second where there is one, nulls."""
    schema = parse(DDL)
    longest = max(map(len, VALUES.values()))
    columns = [
        pa.array([*values, *[None] * (longest + 1 - len(values))], field.type)
        for values, field in zip(VALUES.values(), schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def written(store: LocalStore | FarStore, *tables: pa.Table) -> OutputFiles:
    refs = (output.write(store, f"{n}.parquet", rows) for n, rows in enumerate(tables))
    return OutputFiles(store, tuple(refs))


def both(spark: SparkSession, directory: Path, *tables: pa.Table) -> tuple[DataFrame, DataFrame]:
    """Spark's reader, and tasks."""
    schema = to_spark(tables[0].schema)
    local = LocalStore(directory / "near")
    local.make()
    near = written(local, *tables)
    far = written(far_store(directory / "far"), *tables)
    return outputs.read(spark, near, schema), outputs.read(spark, far, schema)


def texts(rows: DataFrame) -> list[str]:
    return sorted(map(str, rows.collect()))


def test_every_type_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    own, ours = both(spark, tmp_path, table(), table().slice(0, 1), table().slice(0, 0))
    assert ours.schema == own.schema
    assert texts(ours) == texts(own)
    assert len(texts(ours)) == 5
    everything = [f"hex(to_json(struct({name})))" for name in own.columns]
    assert texts(ours.selectExpr(*everything)) == texts(own.selectExpr(*everything))
    hashed = ["xxhash64(" + ", ".join(n for n in own.columns if not _has_map(own, n)) + ")"]
    assert texts(ours.selectExpr(*hashed)) == texts(own.selectExpr(*hashed))


def _has_map(rows: DataFrame, name: str) -> bool:
    return "map<" in rows.schema[name].dataType.simpleString()


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_moments_do_not_depend_on_the_zone_of_the_session(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        own, ours = both(spark, tmp_path, table())
        moments = [n for n in own.columns if "timestamp" in own.schema[n].dataType.simpleString()]
        assert len(moments) == 4
        assert texts(ours.select(*moments)) == texts(own.select(*moments))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_columns_that_are_never_null_are_read_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    never = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    own, ours = both(spark, tmp_path, pa.table([[1]], never))
    assert ours.schema == own.schema
    assert texts(ours) == texts(own)


def test_they_are_read_in_part_twice_and_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    parts = [range(start, start + 70_000) for start in (0, 9)]
    tables = (pa.table({"n": [*part], "k": ["x"] * len(part)}) for part in parts)
    own, ours = both(spark, tmp_path, *tables)
    assert ours.count() == own.count() == 140_000
    assert ours.select("n").distinct().count() == 70_009
    pairs = ours.alias("a").join(ours.alias("b"), "n").where("n < 20").count()
    assert pairs == own.alias("a").join(own.alias("b"), "n").where("n < 20").count()
    assert outputs.read(spark, OutputFiles(far_store(tmp_path), ()), own.schema).count() == 0
    assert len(ours.limit(3).collect()) == 3


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_a_damaged_file_is_told(spark: SparkSession, tmp_path: Path, damage: str) -> None:
    files = written(far_store(tmp_path), pa.table({"n": [1, 2, 3]}))
    path = tmp_path / "0.parquet"
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage != "missing":
        data[10] ^= 1
        path.write_bytes(data if damage == "flipped" else data[:-1])
    told = {"flipped": "checksum", "truncated": "bytes, not", "missing": "missing"}[damage]
    with pytest.raises(DamagedFileError, match=rf"0\.parquet.*{told}"):
        list(files.batches())
    with pytest.raises(Exception, match=rf"DamagedFileError.*0\.parquet.*{told}"):
        outputs.read(spark, files, to_spark(parse("n bigint"))).collect()
