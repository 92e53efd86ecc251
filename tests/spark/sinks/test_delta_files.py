"""Files that are added to a Delta table are what the table would have written itself."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.exceptions import DeltaError
from deltalake.schema import Field, PrimitiveType

import godwit as gw
from godwit.model.schema import parse
from godwit.spark.sinks.arrow_sink import Outputs
from godwit.spark.sinks.delta_files import empty_copy
from tests.support.arrow_outputs import Row, outputs, started

COLUMNS = "k string, n bigint"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def made(uri: str, **properties: Any) -> DeltaTable:
    columns = Schema.from_arrow(pa.schema({"k": pa.string(), "n": pa.int64()}))
    return DeltaTable.create(uri, columns, **properties)


def deliver(uri: str, directory: Path, columns: str, *rows: Row) -> DeltaTable:
    started(gw.delta(uri), columns, directory).take(outputs(0, columns, *rows), "q/0/1")
    return DeltaTable(uri)


EXACT = Decimal("12345678901234567890.123456789012345678")
NARROW = {
    "s": ["", '\x00"\\', "ü" * 40, "\U0010ffff" * 40],
    "n": [-(2**63), 2**63 - 1, 2**53 + 1],
    "f": [-0.0, 0.1, 1e300],
    "c": [Decimal("-99999999999.9999"), Decimal("0.0001"), Decimal("99999999999.9999")],
    "y": [date(1, 1, 1), date(1960, 2, 29), date(9999, 12, 31)],
    "z": [datetime(1, 1, 1, 0, 0, 0, 1, UTC), datetime(2026, 1, 1, 0, 0, 0, 999999, UTC)],
    "zn": [datetime(1960, 1, 1, 0, 0, 0, 999999), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "x": [b"", b"\xff" * 40],
    "b": [True, False],
}
TYPES = (
    "s string, n bigint, f double, c decimal(15,4), y date, z timestamp, zn timestamp_ntz, "
    "x binary, b boolean"
)


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        (TYPES, NARROW),
        ("n bigint, c decimal(38,18)", {"n": [1, 2, 3], "c": [EXACT, -EXACT, Decimal(0)]}),
        ("n bigint, c decimal(10,5)", {"n": [1, 2], "c": [Decimal("0.00001"), Decimal(7)]}),
        ("n bigint, c decimal(20,0)", {"n": [1, 2], "c": [Decimal(10**20 - 1), Decimal(7)]}),
        ("n bigint, f double, e float", {"n": [1, 2], "f": [float("inf"), 7.0], "e": [0.1, 7.0]}),
        ("n bigint, f double", {"n": [5], "f": [float("nan")]}),
    ],
)
def test_a_filter_finds_each_value(
    uri: str, tmp_path: Path, columns: str, values: dict[str, list[Any]]
) -> None:
    """A reader skips files by their statistics: alone, in one file with others, and with nulls."""
    names = parse(columns)
    DeltaTable.create(uri, Schema.from_arrow(names.append(pa.field("epoch", pa.int64()))))
    sink = started(gw.delta(uri), columns, tmp_path)
    length = max(map(len, values.values()))
    rows = list(
        zip(*(each + [None] * (length - len(each)) for each in values.values()), strict=True)
    )
    nothing = (None,) * len(values)
    files = [*([row] for row in rows), rows, [nothing, *rows], [nothing]]
    for epoch, file in enumerate(files):
        sink.take(outputs(epoch, columns, *file), f"q/{epoch}/1")
    there = DeltaTable(uri).to_pyarrow_dataset()
    everything = there.to_table()
    for name in values:
        for value in {str(value): value for value in everything[name]}.values():
            has = pc.field(name) == value if value.is_valid else pc.field(name).is_null()
            expected = everything.filter(has).num_rows
            assert there.to_table(filter=has).num_rows == expected, (name, value)


NAN = pa.array([1.0, float("nan")])
FAR = [pa.array([value], pa.int64()) for value in (26 * 10**16, -8 * 10**16, -63 * 10**15)]
DAYS = [pa.array([value], pa.int32()) for value in (3_000_000, -800_000)]


@pytest.mark.parametrize(
    ("type_", "values", "has"),
    [
        ("struct<x: double>", pa.StructArray.from_arrays([NAN], ["x"]), "v.x > 5"),
        *(
            ("timestamp", days, pc.field("v") == days[0])
            for days in (each.cast(pa.timestamp("us", "UTC")) for each in FAR)
        ),
        *(
            ("date", days, pc.field("v") == days[0])
            for days in (each.cast(pa.date32()) for each in DAYS)
        ),
    ],
)
def test_a_filter_finds_what_no_bound_tells_of(
    uri: str, tmp_path: Path, type_: str, values: pa.Array, has: pc.Expression | str
) -> None:
    """Beside a NaN, bounds are those of the other numbers; a year has four digits."""
    batch = pa.RecordBatch.from_arrays([values], ["v"])
    sink = started(gw.delta(uri), f"v {type_}", tmp_path)
    sink.take(Outputs(0, len(batch), lambda: [batch]), "q/0/1")
    table = DeltaTable(uri)
    if isinstance(has, str):
        query = QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {has}")
        assert pa.table(query).num_rows == 1
    else:
        assert table.to_pyarrow_dataset().to_table(filter=has).num_rows == 1


@pytest.mark.parametrize(("type_", "values"), [("double", NAN), ("float", NAN.cast(pa.float32()))])
def test_beside_a_nan_the_log_has_no_bounds(
    uri: str, tmp_path: Path, type_: str, values: pa.Array
) -> None:
    batches = [pa.RecordBatch.from_arrays([values[number:][:1]], ["v"]) for number in (0, 1, 0)]
    sink = started(gw.delta(uri), f"v {type_}", tmp_path)
    sink.take(Outputs(0, 3, lambda: batches), "q/0/1")
    sink.take(Outputs(1, 1, lambda: batches[:1]), "q/1/1")
    told = pa.table(DeltaTable(uri).get_add_actions(flatten=True)).to_pylist()
    assert {file["num_records"]: file["max.v"] for file in told} == {3: None, 1: 1.0}


@pytest.mark.parametrize("key", [None, "n"])
def test_a_filter_finds_each_decimal_after_others_have_written(
    uri: str, tmp_path: Path, key: str | None
) -> None:
    """The package deltalake itself, when it merges by key or makes one file of several."""
    columns = "n bigint, c decimal(38,18)"
    sink = started(gw.delta(uri, key=key), columns, tmp_path)
    for epoch in range(2):
        sink.take(outputs(epoch, columns, (epoch, EXACT)), f"q/{epoch}/1")
    DeltaTable(uri).optimize.compact()
    has = pc.field("c") == pa.scalar(EXACT, pa.decimal128(38, 18))
    assert DeltaTable(uri).to_pyarrow_dataset().to_table(filter=has).num_rows == 2


def test_a_filter_finds_values_in_columns_of_columns(uri: str, tmp_path: Path) -> None:
    columns = "k string, r struct<n: bigint, c: decimal(38,18)>"
    rows = [("a", {"n": 2**53 + 1, "c": EXACT}), ("b", {"n": None, "c": -EXACT}), ("c", None)]
    table = deliver(uri, tmp_path, columns, *rows)
    for has in ("r.n = 9007199254740993", f"r.c = CAST('{EXACT}' AS DECIMAL(38,18))", "r IS NULL"):
        found = QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {has}")
        assert pa.table(found).num_rows == 1, has


def test_partitions_of_any_name(uri: str, tmp_path: Path) -> None:
    made(uri, partition_by=["k"])
    rows = [("a b/ü%:=", 1), ("", 2), (None, 3), ("..", 4)]
    table = deliver(uri, tmp_path, COLUMNS, *rows)
    found = table.to_pyarrow_table().select(["k", "n"]).to_pylist()
    # Delta takes an empty partition for null.
    assert {(row["k"] or None, row["n"]) for row in found} == {(k or None, n) for k, n in rows}


def test_the_log_counts_rows_and_nulls(uri: str, tmp_path: Path) -> None:
    table = deliver(uri, tmp_path, COLUMNS, ("a", 1), (None, 2), (None, 5))
    told = pa.table(table.get_add_actions(flatten=True)).to_pylist()[0]
    assert (told["num_records"], told["null_count.k"], told["null_count.n"]) == (3, 2, 0)
    assert (told["min.n"], told["max.n"], told["min.epoch"]) == (1, 5, 0)


def constraint(table: DeltaTable) -> None:
    table.alter.add_constraint({"small": "n < 5"})


def test_a_constraint_of_the_table_holds(uri: str, tmp_path: Path) -> None:
    constraint(made(uri))
    with pytest.raises(DeltaError, match="failed validation"):
        deliver(uri, tmp_path, COLUMNS, ("a", 1), ("b", 7))
    assert deliver(uri, tmp_path, COLUMNS, ("a", 1)).to_pyarrow_table()["n"].to_pylist() == [1]


def test_columns_that_have_other_names_in_files(uri: str, tmp_path: Path) -> None:
    made(uri, configuration={"delta.columnMapping.mode": "name"}, partition_by=["k"])
    table = deliver(uri, tmp_path, COLUMNS, ("a", 1), ("b", 2))
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT n FROM t WHERE k = 'b'"))
    assert found["n"].to_pylist() == [2]


def test_an_empty_copy_of_a_table_that_is_as_it_was_is_the_same(uri: str) -> None:
    """Else rows would be written anew whenever another writer was faster."""
    days = {f"delta.{name}RetentionDuration": "interval 3 days" for name in ("log", "deletedFile")}
    made(uri, configuration={"delta.columnMapping.mode": "name", **days})
    assert len({empty_copy(DeltaTable(uri)) for _ in range(10)}) == 1


def column(table: DeltaTable) -> None:
    table.alter.add_columns([Field("more", PrimitiveType("long"))])


@pytest.mark.parametrize("change", [column, constraint])
def test_a_table_that_changes_between_files_and_commit(
    uri: str, tmp_path: Path, change: Callable[[DeltaTable], None]
) -> None:
    """The rows are written anew, as the table wants them now."""
    sink = started(gw.delta(uri), COLUMNS, tmp_path)
    reads: list[int] = []

    def meanwhile() -> None:
        reads.append(1)
        if len(reads) == 1:
            change(DeltaTable(uri))

    sink.take(outputs(0, COLUMNS, ("a", 1), meanwhile=meanwhile), "q/0/1")
    assert DeltaTable(uri).to_pyarrow_table()["n"].to_pylist() == [1]
    assert len(reads) == 2


def test_no_directory_is_left_without_a_file(uri: str, tmp_path: Path) -> None:
    """No vacuum takes one."""
    sink = started(gw.delta(uri), COLUMNS, tmp_path)
    for epoch in range(2):
        sink.take(outputs(epoch, COLUMNS, ("a", epoch)), f"q/{epoch}/1")
    left = [path for path in Path(uri, "godwit").rglob("*") if path.is_dir()]
    assert len(left) == 2
    assert all(list(path.glob("*.parquet")) for path in left)


def test_vacuum_takes_what_no_commit_names(uri: str, tmp_path: Path) -> None:
    sink = started(gw.delta(uri), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    other = started(gw.delta(uri), COLUMNS, tmp_path)
    sink.take(
        outputs(
            1,
            COLUMNS,
            ("b", 2),
            meanwhile=lambda: other.take(outputs(1, COLUMNS, ("b", 2)), "q/1/1"),
        ),
        "q/1/1",
    )
    table = DeltaTable(uri)
    gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len(gone) == 1
    assert gone[0].startswith("godwit/q-1-1-")
    assert sorted(DeltaTable(uri).to_pyarrow_table()["n"].to_pylist()) == [1, 2]
    assert not list(Path(uri, "godwit").rglob("*.json"))
