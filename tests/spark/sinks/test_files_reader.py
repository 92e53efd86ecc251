"""Who reads what `gw.files` has delivered sees the rows of all epochs, as they are now."""

from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from godwit.errors import ConfigError
from godwit.model.schema import parse
from godwit.spark.sinks.files_reader import conformed
from godwit.storage.store import Store
from tests.support.far_store import far_store
from tests.support.log_samples import begun


@pytest.fixture(params=["local", "far"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> gw.Store | Path:
    """Both kinds of places have the same readers."""
    out = tmp_path / "out"
    return far_store(out) if request.param == "far" else out


def deliver(place: Store | Path, epoch: int, rows: DataFrame, checkpoint: Path) -> None:
    begun(checkpoint, "q")
    sink = gw.files(place)
    sink.check(rows.sparkSession, rows.schema, str(checkpoint))
    sink.deliver(epoch, rows, f"q/{epoch}/1", rows.count())


@pytest.mark.spark
def test_epochs_before_a_column_came_have_nulls(
    spark: SparkSession, place: Store | Path, tmp_path: Path
) -> None:
    """Also within structs, and a column that went is null in the epochs after."""
    first = spark.sql(
        "SELECT 1 AS n, 'a' AS k, named_struct('x', 1) AS s, array(named_struct('p', 1)) AS l"
    )
    later = spark.sql(
        "SELECT 2L AS n, named_struct('x', 2L, 'y', timestamp '2024-01-01') AS s, "
        "array(named_struct('p', 2, 'q', 'z'), null) AS l, map('m', 1) AS m"
    )
    deliver(place, 0, first, tmp_path / "checkpoint")
    deliver(place, 3, later, tmp_path / "checkpoint")
    found = gw.read_files(spark, place)
    types = {column.name: column.dataType.simpleString() for column in found.schema}
    assert types.pop("epoch") in ("int", "bigint")  # Spark guesses that of directories
    assert types == {
        "n": "bigint",
        "k": "string",
        "s": "struct<x:bigint,y:timestamp>",
        "l": "array<struct<p:int,q:string>>",
        "m": "map<string,int>",
    }
    rows = found.selectExpr(
        "epoch", "n", "k", "s.x", "string(s.y) AS y", "l.q", "size(l) AS z", "m"
    )
    assert sorted(map(tuple, rows.collect())) == [
        (0, 1, "a", 1, None, [None], 1, None),
        (3, 2, None, 2, "2024-01-01 00:00:00", ["z", None], 2, {"m": 1}),
    ]


@pytest.mark.spark
def test_other_readers_are_given_the_files(
    spark: SparkSession, place: Store | Path, tmp_path: Path
) -> None:
    for epoch in range(3):
        rows = spark.createDataFrame([(f"k{epoch}", epoch)], "k string, n bigint")
        deliver(place, epoch, rows, tmp_path / "checkpoint")
    files = [name.removeprefix("far:/") for name in gw.delivered_files(place)]
    assert len(files) >= 3
    told = "SELECT epoch, n FROM read_parquet(?, union_by_name = true) ORDER BY n"
    assert duckdb.execute(told, [files]).fetchall() == [(0, 0), (1, 1), (2, 2)]


def test_nothing_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no output of gw\.files; name the location"):
        gw.delivered_files(far_store(tmp_path))
    assert gw.delivered_files(tmp_path) == []


def test_rows_get_the_types_and_parts_of_later_ones() -> None:
    """Nulls stay nulls, on all levels, and slices are what they show."""
    old = parse(
        "i int, f float, d decimal(5,2), s struct<x: int>, l array<struct<x: int>>, "
        "m map<string, struct<x: int>>"
    )
    new = parse(
        "i bigint, f double, d decimal(9,3), s struct<x: bigint, y: string>, "
        "l array<struct<x: bigint, y: string>>, m map<string, struct<x: bigint, y: string>>, o date"
    )
    nulls = dict.fromkeys(old.names)
    one = {"i": 1, "f": 1.5, "d": Decimal("1.25"), "s": {"x": 1}, "l": [{"x": 2}, None]}
    two = {"i": 2, "f": 2.5, "d": None, "s": {"x": None}, "l": [], "m": [("b", None)]}
    given = [{**one, "i": 0, "m": []}, {**one, "m": [("a", {"x": 3})]}, nulls, two]
    rows = pa.RecordBatch.from_pylist(given, old).slice(1)
    found = conformed(rows, new)
    found.validate(full=True)
    assert found.schema == new
    told = found.to_pylist()
    assert told[0] == {
        "i": 1,
        "f": 1.5,
        "d": Decimal("1.250"),
        "s": {"x": 1, "y": None},
        "l": [{"x": 2, "y": None}, None],
        "m": [("a", {"x": 3, "y": None})],
        "o": None,
    }
    assert told[1] == dict.fromkeys(new.names)
    assert told[2]["s"] == {"x": None, "y": None}
    assert told[2]["l"] == []
    assert told[2]["m"] == [("b", None)]
