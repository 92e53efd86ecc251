"""What the Delta sink writes, and what it refuses."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.schema import Field, PrimitiveType
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


def append(uri: str) -> None:
    write_deltalake(uri, pa.table({"k": ["x"], "n": [0], "epoch": [9]}), mode="append")


def overwrite(uri: str) -> None:
    write_deltalake(uri, pa.table({"k": ["x"], "n": [0], "epoch": [9]}), mode="overwrite")


def delete(uri: str) -> None:
    DeltaTable(uri).delete("n = 1")


def add_column(uri: str) -> None:
    DeltaTable(uri).alter.add_columns([Field("more", PrimitiveType("string"))])


OTHERS: list[tuple[Callable[[str], None], list[Row]]] = [
    (append, [("a", 1), ("b", 2), ("x", 0)]),
    (overwrite, [("b", 2), ("x", 0)]),
    (delete, [("b", 2)]),
    (add_column, [("a", 1), ("b", 2)]),
]


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize(("change", "left"), OTHERS)
def test_another_writer_comes_in_between(
    uri: str, tmp_path: Path, key: str | None, change: Callable[[str], None], left: list[Row]
) -> None:
    sink = started(gw.delta(uri, key=key), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    times: list[int] = []

    def meanwhile() -> None:
        times.append(1)
        if len(times) == 1:
            change(uri)

    sink.take(outputs(1, COLUMNS, ("b", 2), meanwhile=meanwhile), "q/1/1")
    sink.take(outputs(1, COLUMNS, ("b", 2)), "q/1/1")
    assert table(uri, "k", "n") == left
    assert len(times) == (2 if key or change is add_column else 1)  # files are added as they are


@pytest.mark.parametrize("key", [None, "k"])
def test_a_column_is_added_to_the_table_while_the_query_runs(
    uri: str, tmp_path: Path, key: str | None
) -> None:
    sink = started(gw.delta(uri, key=key), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    add_column(uri)
    sink.take(outputs(1, COLUMNS, ("b", 2)), "q/1/1")
    assert table(uri, "k", "n", "more") == [("a", 1, None), ("b", 2, None)]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_column_is_taken_from_the_table_while_the_query_runs(
    uri: str, tmp_path: Path, key: str | None
) -> None:
    sink = started(gw.delta(uri, key=key), COLUMNS, tmp_path)
    fewer = pa.table({"k": ["x"], "epoch": [9]})
    write_deltalake(uri, fewer, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(ConfigError, match="no column 'n'"):
        sink.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")


def test_a_column_that_the_table_makes_of_others(uri: str, tmp_path: Path) -> None:
    made_of = {"delta.generationExpression": "n + 1"}
    fields = [Field("k", PrimitiveType("string")), Field("n", PrimitiveType("long"))]
    fields.append(Field("more", PrimitiveType("long"), metadata=made_of))
    DeltaTable.create(uri, Schema(fields))
    sink = started(gw.delta(uri), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    assert table(uri, "k", "n", "more") == [("a", 1, 2)]
    with pytest.raises(ConfigError, match="the column 'more' of others, which a merge by key"):
        started(gw.delta(uri, key="k"), COLUMNS, tmp_path)


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


NOT_WRITTEN = ("domainMetadata", "rowTracking", "identityColumns", "icebergCompatV1")


@pytest.mark.parametrize(
    ("feature", "key"),
    [*((feature, None) for feature in NOT_WRITTEN), ("rowTracking", "k")],
)
def test_a_table_that_the_package_cannot_write_is_refused(
    uri: str, tmp_path: Path, feature: str, key: str | None
) -> None:
    made(uri, k=pa.string(), n=pa.int64())
    (log,) = Path(uri, "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] |= {"minWriterVersion": 7, "writerFeatures": [feature]}
    log.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(ConfigError, match=f"cannot be used: .*(?i:{feature})"):
        started(gw.delta(uri, key=key), COLUMNS, tmp_path)


def test_what_cannot_work_is_refused_at_the_start(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="key column 'word' is not in the output: k, n"):
        started(gw.delta(uri, key="word"), COLUMNS, tmp_path)
    with pytest.raises(ConfigError, match=r"'l' is of type list.*no nested columns: cast it"):
        started(gw.delta(uri, key="l"), "l array<int>", tmp_path)
    with pytest.raises(ConfigError, match=r"'x' is of type double, whose NaN .* cast it"):
        started(gw.delta(uri, key="x"), "x double", tmp_path)
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
