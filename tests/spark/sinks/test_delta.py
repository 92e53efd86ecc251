"""What the Delta sink writes, and what it refuses."""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

import godwit as gw
from godwit.errors import ConfigError
from tests.support.arrow_outputs import Row, outputs, started

COLUMNS = "k string, n bigint"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def table(uri: str, *columns: str) -> list[Row]:
    found = DeltaTable(uri).to_pyarrow_table().select(columns).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def made(uri: str, **columns: pa.DataType) -> None:
    DeltaTable.create(uri, Schema.from_arrow(pa.schema(columns)))


def test_an_epoch_is_one_commit_of_the_table(uri: str, tmp_path: Path) -> None:
    sink = started(gw.delta(uri), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1), ("b", 2)), "q/0/1")
    sink.take(outputs(1, COLUMNS), "q/1/1")
    sink.take(outputs(2, COLUMNS, ("a", 3)), "q/2/1")
    assert table(uri, "k", "n", "epoch") == [("a", 1, 0), ("a", 3, 2), ("b", 2, 0)]
    assert DeltaTable(uri).version() == 2


def test_two_names_of_a_table_are_one_place(tmp_path: Path, monkeypatch: Any) -> None:
    """Of two sinks with one table, the second would take each epoch for delivered."""
    monkeypatch.chdir(tmp_path)
    counts = gw.stream("k string").aggregate("counts", key="k", n=gw.count())
    for uri in ("table", "./table/", f"{tmp_path}/x/../table", f"file://{tmp_path}/table"):
        with pytest.raises(ConfigError, match=f"two streams end in the Delta table {tmp_path}/tab"):
            gw.query(counts.to(gw.delta(str(tmp_path / "table"))), counts.to(gw.delta(uri)))
    gw.query(counts.to(gw.delta("s3://lake/a")), counts.to(gw.delta("s3://lake/b")))


def test_with_a_key_the_table_has_the_newest_result_of_each_key(uri: str, tmp_path: Path) -> None:
    """The last one, where an epoch has several; null is a key like any other."""
    sink = started(gw.delta(uri, key="k"), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1), (None, 2), ("b", 3), ("a", 4)), "q/0/1")
    sink.take(outputs(1, COLUMNS, (None, 6), ("c", 5), (None, 7)), "q/1/1")
    assert table(uri, "k", "n", "epoch") == [("a", 4, 0), ("b", 3, 0), ("c", 5, 1), (None, 7, 1)]
    sink.take(outputs(1, COLUMNS, (None, 6), ("c", 5), (None, 7)), "q/1/1")
    assert DeltaTable(uri).version() == 2


def test_a_key_may_have_several_columns_with_any_name(uri: str, tmp_path: Path) -> None:
    columns = "`my ``key``` string, Day date, n bigint"
    sink = started(gw.delta(uri, key=["my `key`", "Day"]), columns, tmp_path)
    sink.take(outputs(0, columns, ("a", None, 1)), "q/0/1")
    sink.take(outputs(1, columns, ("a", None, 2)), "q/1/1")
    assert table(uri, "my `key`", "n") == [("a", 2)]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_table_without_epochs_is_filled_without(
    uri: str, tmp_path: Path, key: str | None
) -> None:
    """And columns that the output lacks are null."""
    made(uri, n=pa.int64(), more=pa.string(), k=pa.string())
    sink = started(gw.delta(uri, key=key), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    assert DeltaTable(uri).to_pyarrow_table().to_pylist() == [{"n": 1, "more": None, "k": "a"}]


def test_values_of_every_type_come_back(uri: str, tmp_path: Path) -> None:
    columns = (
        "b boolean, t tinyint, s smallint, i int, f float, d double, x binary, y date, "
        "z timestamp, zn timestamp_ntz, c decimal(10,2), l array<int>, m map<string,bigint>, "
        "r struct<a: int, b: array<string>>"
    )
    sink = started(gw.delta(uri), columns, tmp_path)
    sink.take(outputs(0, columns, (None,) * 14), "q/0/1")
    started(gw.delta(uri), columns, tmp_path)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 1


def test_two_drivers_that_deliver_the_same_commit_agree(uri: str, tmp_path: Path) -> None:
    """The other one gets in between this one's look and its commit."""
    other = started(gw.delta(uri), COLUMNS, tmp_path)

    def overtake() -> None:
        other.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")

    sink = started(gw.delta(uri), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1), meanwhile=overtake), "q/0/1")
    assert table(uri, "k", "n") == [("a", 1)]


def test_a_driver_that_was_overtaken_by_two_epochs_is_refused(uri: str, tmp_path: Path) -> None:
    other = started(gw.delta(uri), COLUMNS, tmp_path)

    def overtake() -> None:
        other.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
        other.take(outputs(1, COLUMNS, ("b", 2)), "q/1/2")

    sink = started(gw.delta(uri), COLUMNS, tmp_path)
    with pytest.raises(ConfigError, match="another driver has taken it over"):
        sink.take(outputs(0, COLUMNS, ("a", 1), meanwhile=overtake), "q/0/1")
    assert table(uri, "k", "n") == [("a", 1), ("b", 2)]


def test_rows_of_another_writer_come_in_between(uri: str, tmp_path: Path) -> None:
    def write() -> None:
        foreign = {"k": "foreign", "n": 0, "epoch": None}
        schema = pa.schema({"k": pa.string(), "n": pa.int64(), "epoch": pa.int64()})
        write_deltalake(uri, pa.Table.from_pylist([foreign], schema), mode="append")

    sink = started(gw.delta(uri), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1), meanwhile=write), "q/0/1")
    sink.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    assert table(uri, "k", "n") == [("a", 1), ("foreign", 0)]


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ({"k": pa.string()}, "no column 'n' of type int64"),
        ({"k": pa.string(), "n": pa.int32()}, "'n' with type int32, the output with type int64"),
        ({"k": pa.string(), "n": pa.int64(), "epoch": pa.string()}, "'epoch' with type string"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    uri: str, tmp_path: Path, there: dict[str, Any], told: str
) -> None:
    made(uri, **there)
    with pytest.raises(ConfigError, match=told):
        started(gw.delta(uri), COLUMNS, tmp_path)


def test_a_column_that_must_not_be_null_is_refused(uri: str, tmp_path: Path) -> None:
    needed = pa.field("needed", pa.string(), nullable=False)
    there = pa.schema([("k", pa.string()), ("n", pa.int64()), needed])
    DeltaTable.create(uri, Schema.from_arrow(there))
    with pytest.raises(ConfigError, match="'needed', which must not be null"):
        started(gw.delta(uri), COLUMNS, tmp_path)


def test_what_cannot_work_is_refused_at_the_start(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="key column 'word' is not in the output: k, n"):
        started(gw.delta(uri, key="word"), COLUMNS, tmp_path)
    with pytest.raises(ConfigError, match=r"'l' is of type list.*no nested columns: cast it"):
        started(gw.delta(uri, key="l"), "l array<int>", tmp_path)
    with pytest.raises(ConfigError, match=r"'d' is of type .*, which a Delta table cannot have"):
        started(gw.delta(uri), StructType([StructField("d", DayTimeIntervalType())]), tmp_path)
    with pytest.raises(ConfigError, match="column 'Epoch'"):
        started(gw.delta(uri), "Epoch int", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"the Delta table .*file/table cannot be used"):
        started(gw.delta(str(tmp_path / "file" / "table")), COLUMNS, tmp_path)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigError, match=r"pip install 'godwit\[delta\]'"):
        started(gw.delta(uri), COLUMNS, tmp_path)


def test_credentials_are_not_shown() -> None:
    sink = gw.delta("s3://lake/counts", storage_options={"AWS_SECRET_ACCESS_KEY": "hush"})
    assert "hush" not in f"{sink} {sink!r}"
