"""Records in their order, whatever the one in which they came."""

import random
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from godwit.model.hashing import hash_rows
from godwit.model.schema import parse
from godwit.operators.sorting import can_sort, in_order
from tests.support.tables import colliding

VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 0, 127],
    "int": [-(1 << 31), -1, 5],
    "long": [-(1 << 63), 0, (1 << 63) - 1],
    "float": [0.0, -0.0, 1.5, -2.5, float("inf"), float("-inf"), float("nan")],
    "double": [0.0, -0.0, 1e300, -1e-300, float("inf"), float("-inf"), float("nan")],
    "decimal(7,2)": [Decimal("-1.25"), Decimal("0.00"), Decimal("3.50")],
    "decimal(30,2)": [Decimal(10) ** 20, Decimal(-1), Decimal(2)],
    "string": ["", "a", "aa", "é", "b"],
    "binary": [b"", b"\x00", b"\xff", b"a"],
    "date": [date(1960, 1, 1), date(2026, 1, 1)],
    "timestamp": [datetime(1960, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)],
    "timestamp_ntz": [datetime(1960, 1, 1), datetime(2026, 1, 1)],
}


def place(value: Any) -> Any:
    """What a value is sorted by: nulls last, floats by their sign and bits."""
    if isinstance(value, float):
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        return False, bits if bits >= 0 else bits ^ ((1 << 63) - 1)
    return (True, 0) if value is None else (False, value)


@pytest.mark.parametrize("hashes", [hash_rows, colliding])
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("nulls", [False, True], ids=["given", "nulls"])
def test_the_order_is_by_time_and_content(kind: str, nulls: bool, hashes: Any) -> None:
    schema = parse(f"x {kind}, k string, at long, y int")
    chance = random.Random(3)
    choices = [*VALUES[kind], *([None] if nulls else [])]
    rows = [
        {
            "x": chance.choice(choices),
            "k": chance.choice(["a", "b", None]),
            "at": chance.choice([1, 2, *([None] if nulls else [])]),
            "y": chance.randrange(3),
        }
        for _ in range(200)
    ]
    rows = pa.Table.from_pylist(rows, schema=schema).to_pylist()
    expected = sorted(rows, key=lambda r: [place(r["at"]), place(r["x"]), r["y"]])
    key = pa.schema([schema.field("k")])
    for time, columns in (("at", ["x", "at", "y"]), (None, ["x", "y", "at"])):
        if time is None:
            expected.sort(key=lambda r: [place(r["x"]), r["y"], place(r["at"])])
        chance.shuffle(rows)
        table = pa.Table.from_pylist(rows, schema=schema).select(["k", *columns])
        groups, found = in_order(hashes(table.select(["k"])), table, key, time, ordered=False)
        ends = [*groups.starts.tolist()[1:], len(rows)]
        assert groups.keys.num_rows == 3
        for i, (start, end) in enumerate(zip(groups.starts.tolist(), ends, strict=True)):
            k = groups.keys["k"][i].as_py()
            right = [row for row in expected if row["k"] == k]
            mine = found.slice(start, end - start).to_pylist()
            assert list(map(repr, mine)) == [
                repr({name: row[name] for name in table.column_names}) for row in right
            ]


@pytest.mark.parametrize(
    ("columns", "here"),
    [(", ".join(f"x{i} {kind}" for i, kind in enumerate(VALUES)), True)]
    + [(f"x {kind}", False) for kind in ("array<int>", "map<int,int>", "struct<a:int>")],
)
def test_nested_columns_are_left_to_spark(columns: str, here: bool) -> None:
    assert can_sort(parse(columns)) is here


def test_there_may_be_no_records() -> None:
    table = parse("k string, at long").empty_table()
    hashes = hash_rows(table.select(["k"]))
    key = pa.schema([("k", pa.string())])
    groups, found = in_order(hashes, table, key, "at", ordered=False)
    assert (len(groups.starts), found.num_rows) == (0, 0)
