"""State machines against dicts, lists and maps in plain Python."""

import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from godwit.errors import ConfigError, DamagedFileError, OperatorError
from godwit.operators import Form, List, Map, StateMachine, Value
from godwit.operators.base import Operator
from godwit.operators.cells import read_ahead
from godwit.operators.state_machine import Function
from tests.operators.tables import STORES, DictTable, Hasher, Row, Table, Worker

INPUT = pa.schema({"k": pa.string(), "v": pa.int64()})


def machine(
    function: Function,
    state: Any = "n long",
    output: str = "k string, n long",
    input: pa.Schema = INPUT,
    key: Any = "k",
    **options: Any,
) -> Worker:
    operator = StateMachine.of("m", key, function, state, output, input)
    return Worker(operator, input, **options)


def count(key: Any, value: Any, state: Any) -> list[Row]:
    state.n = (state.n or 0) + 1
    return [(key, state.n)]


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


def test_a_failure_names_operator_key_and_traceback() -> None:
    def helper() -> None:
        raise LookupError("no such thing")

    def step(key: Any, value: Any, state: Any) -> None:
        if value.v == 3:
            helper()

    worker = machine(step)
    worker.feed([("a", 1)])
    with pytest.raises(OperatorError) as failure:
        worker.feed([("a", 1), ("b", 3), ("c", 1)])
    error = failure.value
    assert (error.operator, error.key, error.epoch) == ("m", "'b'", 1)
    assert "LookupError: no such thing" in error.cause
    assert "in helper" in error.cause
    assert "state_machine.py" not in error.cause.replace(__file__, "")


def test_a_failure_in_a_generator_is_one_of_its_key() -> None:
    def step(key: Any, value: Any, state: Any) -> Iterator[Row]:
        yield key, 1
        raise StopAsyncIteration

    with pytest.raises(OperatorError, match="StopAsyncIteration"):
        machine(step).feed([("a", 1)])


def test_a_damaged_file_is_not_blamed_on_the_function() -> None:
    class Damaged(DictTable):
        def scan(self, hashes: Any, keys: pa.Table) -> Any:
            raise DamagedFileError("state/m/items/x.arrow", "truncated")

    def step(key: Any, value: Any, state: Any) -> list[Row]:
        return [(key, len(state.items))]

    worker = machine(step, {"items": List("x long")}, table=Damaged)
    with pytest.raises(DamagedFileError):
        worker.feed([("a", 1)])


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass(interrupt: type[BaseException]) -> None:
    def step(key: Any, value: Any, state: Any) -> None:
        raise interrupt

    with pytest.raises(interrupt):
        machine(step).feed([("a", 1)])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (5, "'int' object is not iterable .the function is called with"),
        ([("a",)], r"output: columns k, n: \('a',\) is no tuple of 2"),
        (("a", 1), "output: columns k, n: 'a' is no tuple of 2"),
        ("ab", "output: columns k, n: 'a' is no tuple of 2"),
        ([["a", 1]], r"output: columns k, n: \['a', 1\] is no tuple of 2"),
        ([("a", "1")], r"output: column 'n': '1' \(str\) is no int64"),
        ([("a", 1.0)], r"output: column 'n': 1.0 \(float\) is no int64"),
        ([("a", True)], r"output: column 'n': True \(bool\) is no int64"),
        ([(b"a", 1)], r"output: column 'k': b'a' \(bytes\) is no string"),
        ([("a", 1 << 70)], "output: column 'n': 1180591620717411303424 is no int64: "),
    ],
)
def test_wrong_outputs_name_the_key(result: Any, message: str) -> None:
    def step(key: Any, value: Any, state: Any) -> Any:
        return result if key == "b" else [(key, 1), (key, None)]

    with pytest.raises(OperatorError, match=message) as failure:
        machine(step).feed([("a", 1), ("b", 1), ("c", 1)])
    assert failure.value.key == "'b'"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: setattr(s.one, "n", "x"), r"column 'n' of state 'one': 'x' \(str\) is no int64"),
        (
            lambda s: setattr(s.one, "t", datetime(2020, 1, 1)),
            "column 't' of state 'one': datetime",
        ),
        (lambda s: setattr(s.one, "xs", [1.5]), r"column 'xs' of state 'one': 1.5 \(float\)"),
        (lambda s: setattr(s.one, "p", {"c": 1}), "column 'p' of state 'one'"),
        (lambda s: s.many.append(5), "columns a, b of state 'many': 5 is no tuple of 2"),
        (lambda s: s.many.append((1,)), "TypeError: Expected 2 arguments, got 1"),
        (lambda s: s.many.append((1, 2)), r"column 'b' of state 'many': 2 \(int\) is no string"),
        (lambda s: s.some.update({None: 1}), "column 'm' of state 'some': null"),
        (lambda s: s.some.update({1: 1}), r"column 'm' of state 'some': 1 \(int\) is no string"),
        (lambda s: setattr(s.one, "m", 1), "AttributeError: 'State' object has no attribute 'm'"),
        (lambda s: setattr(s, "one", 1), "AttributeError"),
    ],
)
def test_wrong_state_names_the_key(change: Callable[[Any], None], message: str) -> None:
    forms = {
        "one": Value("n long, t timestamp, xs array<long>, p struct<a:int>"),
        "many": List("a long, b string"),
        "some": Map("m string", "n long"),
    }
    worker = machine(lambda k, v, s: change(s) if k == "b" else None, forms)
    with pytest.raises(OperatorError, match=message) as failure:
        worker.feed([("a", 1), ("b", 1), ("c", 1)])
    assert failure.value.key == "'b'"


def test_numpy_values_are_values() -> None:
    def step(key: Any, value: Any, state: Any) -> list[Row]:
        state.n = np.int64(state.n or 0) + np.int64(1)
        state.xs = np.array([1, 2, value.v])
        return [(key, np.int32(state.n))]

    worker = machine(step, "n long, xs array<long>")
    worker.feed([("a", 1)])
    assert worker.feed([("a", 3)]) == [("a", 2)]
    table = worker.tables["value"]
    assert isinstance(table, DictTable)
    assert table.rows == {("a",): {(): (2, [1, 2, 3])}}


def test_describes_itself_and_pickles() -> None:
    offset = 5
    forms: dict[str, Form] = {"one": Value("n long"), "many": List("x long")}
    forms["some"] = Map("m string", "n long")
    operator = StateMachine.of(
        "m", "k", lambda k, v, s: [(k, offset)], forms, "k string, n long", INPUT
    )
    assert isinstance(operator, Operator)
    assert operator.describe() == {
        "kind": "state_machine",
        "key": "`k` string",
        "output": "`k` string, `n` bigint",
        "tables": {
            "one": {"sub": "", "value": "`n` bigint"},
            "many": {"sub": "`_pos` bigint", "value": "`x` bigint"},
            "some": {"sub": "`m` string", "value": "`n` bigint"},
        },
    }
    pickled: bytes = cloudpickle.dumps(operator)  # type: ignore[no-untyped-call]
    worker = Worker(pickle.loads(pickled), INPUT)
    assert worker.feed([("a", 1)]) == [("a", 5)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a b"}, "operator name 'a b'"),
        ({"key": ["k", "q"]}, "operator 'm': key column 'q' is not in the input: k, v"),
        ({"function": 5}, "its function must be callable, not 5"),
        ({"state": "n lnog"}, "state 'value': type 'lnog' is not supported"),
        ({"state": "n long, N int"}, "'n' and 'N' have the same name"),
        ({"state": "K long"}, "column 'K' of state 'value' is also a key column"),
        ({"state": "n long not null"}, "column 'n' of state 'value' is NOT NULL"),
        ({"state": "exists boolean"}, "column of state 'value' 'exists' has the name of a method"),
        ({"state": "_n long"}, "'_n' must be a Python name"),
        ({"state": "`a b` long"}, "'a b' must be a Python name"),
        ({"state": "class long"}, "'class' must be a Python name"),
        ({"state": {}}, "its state must be"),
        ({"state": List("n long")}, "its state must be"),
        ({"state": {"a": "n long"}}, "state 'a' must be a Value, List or Map"),
        ({"state": {"a": Value("n long"), "A": Value("n long")}}, "'a' and 'A' have the same"),
        ({"state": {"a-b": Value("n long")}}, "state 'a-b' must be a Python name"),
        ({"state": {"a": Map("m double", "n long")}}, "key column 'm' is of type double"),
        ({"state": {"a": Map("m long", "M long")}}, "'m' and 'M' have the same name"),
        ({"output": "n"}, "operator 'm': output: "),
        ({"output": "n long, N long"}, "output: columns 'n' and 'N'"),
        ({"time": "q"}, "time column 'q' is not in the input"),
        ({"time": "k"}, "time column 'k' is of type string"),
        ({"input": pa.schema({"k": pa.string(), "a b": pa.int64()})}, "input column 'a b' must be"),
        ({"input": pa.schema({"k": pa.float32()})}, "key column 'k' is of type float"),
    ],
)
def test_refuses(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "name": "m",
        "key": "k",
        "function": count,
        "state": "n long",
        "output": "k string, n long",
        "input": INPUT,
    }
    with pytest.raises(ConfigError, match=message):
        StateMachine.of(**(arguments | change))
