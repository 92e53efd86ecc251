"""State machines against dicts, lists and maps in plain Python."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.operators import List, Map, StateMachine, Value
from godwit.operators.cells import read_ahead
from tests.support.machines import count, machine
from tests.support.tables import STORES, DictTable, Hasher, Row, Table, Worker


def test_counts() -> None:
    worker = machine(count)
    assert sorted(worker.feed([("a", 1), ("b", 1), ("a", 1)])) == [("a", 1), ("a", 2), ("b", 1)]
    assert worker.feed([("a", 1), (None, 1)]) in (
        [("a", 3), (None, 1)],
        [(None, 1), ("a", 3)],
    )


def test_a_generator_is_a_function_too() -> None:
    def twice(key: Any, value: Any, state: Any) -> Iterator[Row]:
        yield key, 1
        yield key, 2

    assert machine(twice).feed([("a", 1)]) == [("a", 1), ("a", 2)]


def test_records_come_in_the_order_of_time() -> None:
    schema = pa.schema({"k": pa.int64(), "a": pa.int64(), "t": pa.timestamp("us", tz="UTC")})
    seen: list[Any] = []
    operator = StateMachine.of(
        "m", "k", lambda k, v, s: seen.append(v), "n long", "n long", schema, time="t"
    )
    moments = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    Worker(operator, schema).feed([(1, 1, moments[2]), (1, 2, moments[0]), (1, 3, moments[1])])
    assert [(value.a, value.t) for value in seen] == [
        (2, moments[0]),
        (3, moments[1]),
        (1, moments[2]),
    ]
    assert seen[0].t.tzinfo is UTC
    assert operator.time == "t"


@STORES
@given(data=st.data())
def test_values_match_a_dict(
    table: Callable[..., Table], hasher: Hasher, data: st.DataObject
) -> None:
    """Each record is an instruction: add to the state, clear it, or leave it alone."""

    def step(key: Any, value: Any, state: Any) -> list[Row]:
        before = (state.exists, state.n, state.names and state.names[:])
        if value.v > 0:
            state.n = (state.n or 0) + value.v
            if state.names is None:
                state.names = []
            state.names.append(str(value.v))
        elif value.v == 0:
            state.clear()
        return [(key, *before, state.n)]

    row = st.tuples(st.sampled_from(["a", "b", None]), st.integers(-1, 2))
    epochs = data.draw(st.lists(st.lists(row, max_size=6), max_size=5))
    worker = machine(
        step,
        "n long, names array<string>",
        "k string, existed boolean, n long, names array<string>, now long",
        table=table,
        hasher=hasher,
    )
    model: dict[Any, tuple[int, list[str]]] = {}
    for rows in epochs:
        expected = []
        start = dict(model)
        for key, v in sorted(rows, key=lambda row: (str(row[0]), row[1])):
            n, names = model.get(key, (None, None))
            was = (key, key in model, n, names)
            if v > 0:
                model[key] = ((n or 0) + v, [*(names or []), str(v)])
            elif v == 0:
                model.pop(key, None)
            expected.append((*was, model.get(key, (None, None))[0]))
        found = worker.feed(rows)
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        changed = {k for k in start.keys() | model.keys() if start.get(k) != model.get(k)}
        assert worker.written() == len(changed)


@STORES
@given(data=st.data())
def test_lists_match_lists(
    table: Callable[..., Table], hasher: Hasher, data: st.DataObject
) -> None:
    """A record appends itself, clears the list, or reads it."""

    def step(key: Any, value: Any, state: Any) -> list[Row] | None:
        if value.v > 1:
            state.items.append((value.v, f"{key}{value.v}"))
        elif value.v == 1:
            state.items.clear()
        elif value.v == 0:
            return [(key, len(state.items), [item.a for item in state.items])]
        return None

    row = st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 9))
    epochs = data.draw(st.lists(st.lists(row, max_size=8, unique=True), max_size=5))
    worker = machine(
        step,
        {"items": List("a long, b string"), "other": Value("n long")},
        "k string, n long, items array<long>",
        table=table,
        hasher=hasher,
    )
    model: dict[Any, list[int]] = {}
    for rows in epochs:
        expected = []
        for key, v in sorted(rows, key=lambda row: (str(row[0]), row[1])):
            if v > 1:
                model.setdefault(key, []).append(v)
            elif v == 1:
                model[key] = []
            else:
                expected.append((key, len(model.get(key, [])), model.get(key, [])[:]))
        assert sorted(worker.feed(rows), key=repr) == sorted(expected, key=repr)
        assert worker.written("other") == 0
        appended = {row for row in rows if row[1] > 1}
        cleared = {row for row in rows if row[1] == 1}
        assert worker.written("items") == len(appended) + len(cleared)


def test_appending_does_not_read() -> None:
    worker = machine(lambda k, v, s: s.items.append(v.v), {"items": List("x long")})
    worker.feed([("a", i) for i in range(1000)])
    worker.feed([("a", -1)])
    table = worker.tables["items"]
    assert isinstance(table, DictTable)
    assert table.scans == 0
    assert worker.written("items") == 1
    assert [sub for (sub,) in sorted(table.rows[("a",)])] == [
        *range(1 << 32, (1 << 32) + 1000),
        2 << 32,
    ]


@pytest.mark.parametrize("rows_ahead", [1, 10, 1 << 16])
def test_reading_is_in_bulk(monkeypatch: pytest.MonkeyPatch, rows_ahead: int) -> None:
    monkeypatch.setattr(read_ahead, "_ROWS", rows_ahead)

    def step(key: Any, value: Any, state: Any) -> list[Row]:
        state.items.append(value.v)
        return [(key, sum(state.items))]

    worker = machine(step, {"items": List("x long")})
    worker.feed([(str(i), i) for i in range(2000)])
    found = worker.feed([(str(i), 1) for i in range(0, 2000, 2)])
    assert sorted(found) == sorted((str(i), i + 1) for i in range(0, 2000, 2))
    if rows_ahead > 1000:
        table = worker.tables["items"]
        assert isinstance(table, DictTable)
        assert table.scans < 20


@STORES
@given(data=st.data())
def test_maps_match_dicts(table: Callable[..., Table], hasher: Hasher, data: st.DataObject) -> None:
    schema = pa.schema({"k": pa.string(), "i": pa.int64(), "do": pa.string(), "m": pa.string()})

    def apply(map: Any, do: str, m: str, i: int) -> Any:
        match do:
            case "put":
                map[m] = i
            case "delete":
                map.pop(m, None)
            case "get":
                return [map.get(m)]
            case "has":
                return [int(m in map), len(map)]
            case "items":
                return sorted((*map.values(), *(ord(key) for key in map)))
            case "clear":
                map.clear()
        return None

    def step(key: Any, value: Any, state: Any) -> list[Row]:
        return [(key, value.i, apply(state.seen, value.do, value.m, value.i))]

    row = st.tuples(
        st.sampled_from(["a", None]),
        st.sampled_from(["put", "put", "delete", "get", "has", "items", "clear"]),
        st.sampled_from("xyz"),
    )
    epochs = data.draw(st.lists(st.lists(row, max_size=8), max_size=5))
    worker = machine(
        step,
        {"seen": Map("m string", "n long")},
        "k string, i long, result array<long>",
        schema,
        table=table,
        hasher=hasher,
    )
    model: dict[Any, dict[str, int]] = {}
    for rows in epochs:
        expected = [
            (key, i, apply(model.setdefault(key, {}), do, m, i))
            for i, (key, do, m) in enumerate(rows)
        ]
        found = worker.feed((key, i, do, m) for i, (key, do, m) in enumerate(rows))
        assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_a_put_writes_one_row_and_reads_nothing() -> None:
    def step(key: Any, value: Any, state: Any) -> None:
        state.seen[value.v] = (value.v, "x")
        assert state.seen[value.v] == (value.v, "x")
        del state.seen[-value.v]

    worker = machine(step, {"seen": Map("a long", "b long, c string")})
    worker.feed([("a", i) for i in range(1, 100)])
    worker.feed([("a", 7)])
    table = worker.tables["seen"]
    assert isinstance(table, DictTable)
    assert (table.scans, worker.written("seen")) == (0, 2)
    assert table.rows[("a",)][(7,)] == (7, "x")


def test_a_map_is_a_dict_to_python() -> None:
    def step(key: Any, value: Any, state: Any) -> list[Row]:
        state.seen.setdefault((1, "a"), 5)
        state.seen.update({(2, "b"): 6})
        with pytest.raises(KeyError):
            state.seen[(3, "c")]
        return [(str(dict(state.seen)), state.seen[(1, "a")])]

    worker = machine(step, {"seen": Map("a long, b string", "n long")})
    assert worker.feed([("k", 1)]) == [("{Key(a=1, b='a'): 5, Key(a=2, b='b'): 6}", 5)]


@STORES
def test_changes_in_place_are_noticed_in_every_form(
    table: Callable[..., Table], hasher: Hasher
) -> None:
    def step(key: Any, value: Any, state: Any) -> list[Row]:
        if value.v == 0:
            state.one.xs = [0]
            state.many.append(([0], 1))
            state.many.append(([9], 2))
            state.some["a"], state.some["b"] = [0], [9]
        elif value.v > 0:
            state.one.xs.append(value.v)
            next(iter(state.many)).xs.append(value.v)
            state.some["a"].append(value.v)
        lists = [state.one.xs, *(item.xs for item in state.many), *state.some.values()]
        return [(key, str(lists))]

    worker = machine(
        step,
        {
            "one": Value("xs array<long>"),
            "many": List("xs array<long>, y long"),
            "some": Map("m string", "xs array<long>"),
        },
        "k string, lists string",
        table=table,
        hasher=hasher,
    )
    worker.feed([("a", 0)])
    assert worker.feed([("a", 1)]) == [("a", "[[0, 1], [0, 1], [9], [0, 1], [9]]")]
    assert [worker.written(name) for name in ("one", "many", "some")] == [1, 1, 1]
    assert worker.feed([("a", -1)]) == [("a", "[[0, 1], [0, 1], [9], [0, 1], [9]]")]
    assert [worker.written(name) for name in ("one", "many", "some")] == [0, 0, 0]


ALL_TYPES = (
    "b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f4 float, f8 double, d decimal(30,5), "
    "s string, x binary, day date, t timestamp, ntz timestamp_ntz, l array<timestamp>, "
    "m map<string,int>, st struct<a:int,b:string>"
)
EXAMPLE: Row = (
    True,
    -1,
    -2,
    -3,
    1 << 60,
    0.5,
    0.1,
    Decimal("-1234567890123456789.12345"),
    "é",
    b"\0",
    date(1969, 7, 20),
    datetime(1969, 7, 20, 20, 17, 40, 5, tzinfo=UTC),
    datetime(1, 1, 1),
    [datetime(2020, 1, 1, tzinfo=UTC), None],
    [("a", 1), ("b", None)],
    {"a": 1, "b": None},
)


@STORES
def test_all_types_come_back_as_they_were(table: Callable[..., Table], hasher: Hasher) -> None:
    schema = pa.schema({"k": pa.string(), "go": pa.bool_()})
    names = [column.split()[0] for column in ALL_TYPES.split(", ")]

    def step(key: Any, value: Any, state: Any) -> list[Row]:
        if value.go:
            for name, example in zip(names, EXAMPLE, strict=True):
                setattr(state, name, example)
        return [tuple(getattr(state, name) for name in names)]

    worker = machine(step, ALL_TYPES, ALL_TYPES, schema, table=table, hasher=hasher)
    nothing = (None,) * len(names)
    assert worker.feed([("a", True), ("b", False)]) in ([EXAMPLE, nothing], [nothing, EXAMPLE])
    assert worker.written() == 1
    assert worker.feed([("a", False)]) == [EXAMPLE]
    assert worker.written() == 0


def test_input_of_all_kinds_is_python() -> None:
    schema = pa.schema(
        {
            "a": pa.decimal128(5, 2),
            "b": pa.binary(),
            "t": pa.timestamp("us", tz="UTC"),
            "day": pa.date32(),
            "xs": pa.list_(pa.int64()),
            "f": pa.float32(),
        }
    )
    seen: list[Any] = []
    worker = machine(
        lambda *call: seen.append(call[:2]), "n long", "n long", schema, key=["a", "b", "day"]
    )
    row = (
        Decimal("1.50"),
        b"x",
        datetime(2020, 1, 1, tzinfo=UTC),
        date(2020, 1, 1),
        [1, None],
        0.5,
    )
    worker.feed([row, (None,) * 6])
    (key, value), (none, nones) = sorted(seen, key=lambda call: call[0].a is None)
    assert (key, value) == ((row[0], row[1], row[3]), (row[2], row[4], row[5]))
    assert (key.b, value.xs) == (b"x", [1, None])
    assert (none, nones) == ((None,) * 3, (None,) * 3)


def test_many_keys_and_records_pass_the_windows() -> None:
    worker = machine(count)
    rows = [(str(i), i) for i in range(20_000)] + [("hot", i) for i in range(80_000)]
    found = worker.feed(rows)
    assert len(found) == 100_000
    assert [n for key, n in found if key == "hot"] == list(range(1, 80_001))
    assert worker.written() == 20_001


def test_a_key_is_all_there_need_be() -> None:
    schema = pa.schema({"k": pa.string()})
    seen: list[Any] = []
    worker = machine(lambda k, v, s: seen.append((k, v)), input=schema)
    worker.feed([("a",), ("a",)])
    assert seen == [("a", ()), ("a", ())]


def test_outputs_are_what_they_were_when_they_were_given() -> None:
    def step(key: Any, value: Any, state: Any) -> Iterator[Row]:
        state.xs = state.xs or []
        yield key, state.xs
        state.xs.append(value.v)
        yield key, state.xs

    worker = machine(step, "xs array<long>", "k string, xs array<long>")
    found = worker.feed([("a", 1), ("a", 2)])
    assert found == [("a", []), ("a", [1]), ("a", [1]), ("a", [1, 2])]
