"""Records reach the worker of their bin, whatever the key's type, and come in a total order."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from godwit.model.hashing import hash_rows
from godwit.model.routing import Routing
from godwit.model.schema import parse
from godwit.spark import route as module
from godwit.spark.route import ordered, route
from godwit.spark.types import to_spark
from godwit.state.table import HASH

pytestmark = pytest.mark.spark

UTC = dt.UTC
MIN, MAX = -(1 << 63), (1 << 63) - 1

KEYS: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "tinyint": [0, 1, -1, -128, 127, None],
    "smallint": [0, -1, -32768, 32767, None],
    "int": [0, 1, -1, -(1 << 31), (1 << 31) - 1, None],
    "bigint": [0, 1, -1, MIN, MAX, None],
    "string": ["", "a", "ä", "\U0001f426", "godwit" * 20, "0123456789abcdef" * 2, None],
    "binary": [b"", b"\x00", b"\xff" * 31, bytes(range(256)), None],
    "date": [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
    "timestamp": [
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        dt.datetime(2024, 2, 29, 12, 30, 1, 5, UTC),
        None,
    ],
    "timestamp_ntz": [dt.datetime(1583, 1, 1), dt.datetime(2024, 2, 29, 12, 30, 1, 5), None],
    "decimal(10,2)": [Decimal("0.00"), Decimal("-99999999.99"), Decimal("1.50"), None],
    "decimal(18,0)": [Decimal(10**18 - 1), Decimal(1 - 10**18), None],
    "decimal(19,3)": [Decimal("0.000"), Decimal("-0.001"), Decimal("1234567890123456.789"), None],
    "decimal(38,0)": [Decimal(n) for n in (127, 128, -128, -129, 10**38 - 1, 1 - 10**38)],
}


def placed(df: DataFrame) -> pa.Table:
    """The records, with the partition in which they are and a number that grows within it."""
    partition = sf.spark_partition_id().alias("partition")
    return df.select("*", partition, sf.monotonically_increasing_id().alias("rank")).toArrow()


def in_order(df: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = placed(df).sort_by("rank").to_pylist()
    return rows


def check_places(table: pa.Table, key: list[str], routing: Routing) -> None:
    """Hash and partition of every record, computed without Spark."""
    hashes = hash_rows(table.select(key))
    assert np.array_equal(table[HASH].to_numpy().view(np.uint64), hashes)
    bins = hashes >> np.uint64(64 - routing.bits) if routing.bits else np.zeros_like(hashes)
    workers = routing.owners[bins.astype(np.int64)]
    assert table["partition"].to_pylist() == workers.tolist()


def random_routing(bins: int, workers: int) -> Routing:
    owners = np.random.default_rng(bins).integers(0, workers, bins, dtype=np.int32)
    return Routing(owners, workers)


def test_every_type_of_key_is_hashed_as_in_python(spark: SparkSession) -> None:
    """Each type alone, and all of them as one key; a null leaves the hash as it was."""
    longest = max(map(len, KEYS.values()))
    types = parse(", ".join(f"`{type_}` {type_}" for type_ in KEYS))
    padded = [values + [None] * (longest - len(values)) for values in KEYS.values()]
    table = pa.table([pa.array(c, f.type) for c, f in zip(padded, types, strict=True)], types)
    df = spark.createDataFrame(table, to_spark(types))

    single = df.select(*[module.KEY_HASH(sf.col(f"`{type_}`")).alias(type_) for type_ in KEYS])
    hashes = single.toArrow()
    for type_ in KEYS:
        expected = hash_rows(table.select([type_])).view(np.int64).tolist()
        assert hashes[type_].to_pylist() == expected, type_

    routing = random_routing(64, 3)
    check_places(placed(route(df, list(KEYS), routing)), list(KEYS), routing)


def test_composite_keys_with_nulls_and_odd_names(spark: SparkSession) -> None:
    schema = parse("id long, `a.b` string, `odd ``name``` int, amount decimal(20,2), other double")
    rows = [
        {
            "id": None if i % 3 == 0 else i,
            "a.b": None if i % 5 == 0 else str(i),
            "odd `name`": i % 7 or None,
            "amount": Decimal(i) / 4,
            "other": float(i),
        }
        for i in range(200)
    ]
    df = spark.createDataFrame(pa.Table.from_pylist(rows, schema), to_spark(schema))
    routing = random_routing(4096, 4)
    for key in (schema.names[:4], schema.names[3::-1], ["a.b"]):
        table = placed(ordered(route(df, key, routing), key))
        check_places(table, key, routing)
        assert table.column_names == [*schema.names, HASH, "partition", "rank"]


@pytest.mark.parametrize(
    "routing",
    [
        Routing.even(1, 1),
        Routing(np.array([2], np.int32), 4),
        Routing.even(2, 2),
        Routing.even(4096, 3),
        random_routing(4096, 5),
        Routing.even(1 << 20, 3),
        random_routing(1 << 20, 7),
    ],
    ids=lambda routing: f"{routing.bins}x{routing.workers}",
)
def test_any_number_of_bins(spark: SparkSession, routing: Routing) -> None:
    df = route(spark.range(0, 5000, 1, 2), ["id"], routing)
    assert df.rdd.getNumPartitions() == routing.workers
    table = placed(df)
    assert sorted(table["id"].to_pylist()) == list(range(5000))
    check_places(table, ["id"], routing)


def test_more_workers_than_a_short_can_number(spark: SparkSession) -> None:
    routing = Routing(np.array([40_000, 65_535], np.int32), 1 << 16)
    worker = module._destination(spark, routing, None, sf.col(HASH))
    df = spark.range(100).withColumn(HASH, sf.xxhash64("id")).select(HASH, worker.alias("worker"))
    assert all(row.worker == (65_535 if row[HASH] < 0 else 40_000) for row in df.collect())


def test_the_hash_can_be_left_behind(spark: SparkSession) -> None:
    routing = random_routing(1 << 8, 3)
    df = route(spark.range(0, 1000, 1, 2), ["id"], routing, with_hash=False)
    assert df.columns == ["id"]
    table = placed(df)
    check_places(
        table.append_column(HASH, pa.array(hash_rows(table.select(["id"])))), ["id"], routing
    )


def test_workers_without_records_have_empty_partitions(spark: SparkSession) -> None:
    df = route(spark.range(0), ["id"], Routing.even(16, 4))
    assert df.rdd.glom().map(len).collect() == [0, 0, 0, 0]


def test_the_table_of_owners_is_not_part_of_the_plan(spark: SparkSession) -> None:
    df = route(spark.range(10), ["id"], random_routing(1 << 20, 2))
    assert len(df._jdf.queryExecution().toString()) < 10_000


def test_the_table_of_a_routing_is_made_once(spark: SparkSession) -> None:
    routing = random_routing(1 << 16, 3)
    same = Routing(routing.owners.copy(), 3)
    other = routing.assign({5: (int(routing.owners[5]) + 1) % 3})
    table = module._destinations(spark, routing, None)
    assert table is module._destinations(spark, same, None)
    assert table is not module._destinations(spark, other, None)


def test_hashes_are_sorted_unsigned_and_equal_keys_lie_together(spark: SparkSession) -> None:
    df = spark.range(0, 4000, 1, 2).selectExpr("id % 500 AS k", "id AS v")
    rows = in_order(ordered(route(df, ["k"], Routing.even(16, 2)), ["k"]))
    order = [(row["partition"], row[HASH] % (1 << 64), row["v"]) for row in rows]
    assert order == sorted(order)
    assert len(order) == 4000


def test_colliding_keys_lie_apart(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    constant: Callable[..., Column] = lambda *columns: sf.lit(7).cast("long")  # noqa: E731
    monkeypatch.setattr(module, "KEY_HASH", constant)
    df = spark.range(0, 300, 1, 2).selectExpr("id % 3 AS k", "-id AS t", "id AS v")
    rows = in_order(ordered(route(df, ["k"], Routing.even(16, 2)), ["k"], "t"))
    assert {row[HASH] for row in rows} == {7}
    order = [(row["partition"], row["k"], row["t"]) for row in rows]
    assert order == sorted(order)


def test_time_orders_before_content(spark: SparkSession) -> None:
    values = [(1, "b", 3.0), (1, "a", 10.0), (1, "a", 9.0), (1, "c", None)]
    df = spark.createDataFrame(values, "k int, a string, t double")
    rows = in_order(ordered(route(df, ["k"], Routing.even(4, 1)), ["k"], "t"))
    assert [(row["t"], row["a"]) for row in rows] == [
        (3.0, "b"),
        (9.0, "a"),
        (10.0, "a"),
        (None, "c"),
    ]


CONTENTS = {
    "double": ["0.0D", "-0.0D", "double('NaN')", "double('Infinity')", "1.5D", "NULL"],
    "map": ["map('a', 1)", "map('b', 1)", "map('a', 2)", "map('a', 1, 'b', 1)", "map()", "NULL"],
    "null in map": ["map('a', 1)", "map('a', CAST(NULL AS int))", "NULL"],
    "micros in map": [
        "map(1, timestamp'2024-01-01 00:00:00.000001')",
        "map(1, timestamp'2024-01-01 00:00:00.000002')",
    ],
    "timestamp_ntz in map": [
        "map(1, timestamp_ntz'2024-01-01 00:00:00.000001')",
        "map(1, timestamp_ntz'2024-01-01 00:00:00.000002')",
    ],
    "variant": ["parse_json('1')", "parse_json('[1]')", "parse_json('{\"a\":1}')", "NULL"],
    "struct": ["struct(map(1, 2D), 1)", "struct(map(1, 3D), 1)", "struct(NULL, 1)", "NULL"],
    "array": ["array(0.0D, 1D)", "array(-0.0D, 1D)", "array()", "array(NULL)", "NULL"],
    "collation": ["'a' COLLATE UTF8_LCASE", "'A' COLLATE UTF8_LCASE", "'b' COLLATE UTF8_LCASE"],
    "interval": ["interval '1' day", "interval '2' day", "NULL"],
    "binary": ["X'00'", "X'FF'", "X''", "NULL"],
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_content_of_any_type_is_ordered_totally(spark: SparkSession, kind: str) -> None:
    """Whatever the order of arrival, different values come in one order."""
    values = CONTENTS[kind]
    orders = []
    for arrivals in (values * 2, values[::-1] * 2):
        query = " UNION ALL ".join(f"SELECT 1 AS k, {value} AS v" for value in arrivals)
        df = route(spark.sql(query).coalesce(1), ["k"], Routing.even(4, 1))
        orders.append([str(row.v) for row in ordered(df, ["k"]).collect()])
    assert orders[0] == orders[1]
    assert len(set(orders[0])) == len(values)
