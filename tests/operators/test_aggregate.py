"""Aggregates against folds in plain Python."""

import math
import pickle
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit.operators as ops
from godwit.errors import ConfigError, OperatorError
from godwit.operators import Aggregate, AggregateOperator
from godwit.operators.base import Operator
from tests.support.aggregate_oracle import KINDS, NUMBERS, model, order
from tests.support.tables import STORES, DictTable, Hasher, Row, RunTable, Table, Worker


def results(worker: Worker, epochs: Sequence[Sequence[Row]]) -> list[dict[Any, Row]]:
    return [{row[0]: row[1:] for row in worker.feed(rows)} for rows in epochs]


@STORES
@given(data=st.data())
def test_matches_the_model(
    table: Callable[..., Table], hasher: Hasher, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(list(KINDS)))
    type_, values = KINDS[kind]
    schema = pa.schema({"k": pa.int64(), "v": type_})
    row = st.tuples(st.sampled_from([None, 1, 2, 3]), st.none() | values)
    epochs = data.draw(st.lists(st.lists(row, max_size=8), max_size=4))
    functions = {"rows": ops.count(), "present": ops.count("v"), "low": ops.min("v")}
    functions |= {"high": ops.max("v"), "tail": ops.last("v"), "head": ops.first("v")}
    if kind in NUMBERS:
        functions |= {"total": ops.sum("v"), "mean": ops.avg("v")}
    operator = AggregateOperator.of("a", "k", functions, schema)
    worker = Worker(operator, schema, table=table, hasher=hasher)

    seen: dict[int | None, list[Any]] = {}
    for rows, found in zip(epochs, results(worker, epochs), strict=True):
        for key, value in sorted(rows, key=lambda row: (row[1] is None, order(row[1]))):
            seen.setdefault(key, []).append(value)
        assert found.keys() == {key for key, _ in rows}
        for key, result in found.items():
            assert list(result) == [model(f, type_, seen[key]) for f in functions.values()]


def test_result_types_are_sparks() -> None:
    schema = pa.schema({"k": pa.int64()} | {name: kind for name, (kind, _) in KINDS.items()})
    columns = {f"sum_{i}": ops.sum(name) for i, name in enumerate(NUMBERS)}
    columns |= {f"avg_{i}": ops.avg(name) for i, name in enumerate(NUMBERS)}
    found = [str(field.type) for field in AggregateOperator.of("a", "k", columns, schema).output][
        1:
    ]
    assert found[:7] == ["int64"] * 3 + ["double"] * 2 + ["decimal128(17, 2)", "decimal128(38, 5)"]
    assert found[7:] == ["double"] * 5 + ["decimal128(11, 6)", "decimal128(34, 9)"]


def test_nan_is_the_largest_number_and_zero_has_no_sign() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.float64()})
    worker = Worker(
        AggregateOperator.of("a", "k", {"low": ops.min("v"), "high": ops.max("v")}, schema), schema
    )
    nan, inf = math.nan, math.inf
    (found,) = results(worker, [[(1, nan), (1, 5.0), (2, nan), (2, None), (3, -0.0), (4, -inf)]])
    assert found[1][0] == 5.0
    assert math.isnan(found[1][1])
    assert all(map(math.isnan, found[2]))
    assert math.copysign(1, found[3][0]) == 1
    assert found[4] == (-inf, -inf)
    (found,) = results(worker, [[(2, 1.0), (4, nan)]])
    assert found[2][0] == 1.0
    assert math.isnan(found[2][1])
    assert found[4][0] == -inf


def test_only_the_order_dependent_are_ordered() -> None:
    schema = pa.schema({"k": pa.int64(), "n": pa.int64(), "x": pa.float64()})

    def ordered(function: Aggregate) -> bool:
        return AggregateOperator.of("a", "k", {"f": function}, schema).ordered

    assert not any(map(ordered, [ops.count(), ops.sum("n"), ops.avg("n"), ops.min("x")]))
    assert all(map(ordered, [ops.first("n"), ops.last("n"), ops.sum("x"), ops.avg("x")]))


@pytest.mark.parametrize("kind", ["timestamp", "date", "int"])
@given(data=st.data())
def test_first_and_last_by_time_do_not_depend_on_epochs(kind: str, data: st.DataObject) -> None:
    type_, times = KINDS[kind]
    schema = pa.schema({"k": pa.int64(), "v": pa.int64(), "t": type_})
    moments = data.draw(st.lists(st.none() | times, max_size=12, unique=True))
    keys = [data.draw(st.integers(1, 3)) for _ in moments]
    rows = [(key, i or None, time) for i, (key, time) in enumerate(zip(keys, moments, strict=True))]
    cut = data.draw(st.integers(0, len(rows)))
    functions = {"head": ops.first("v"), "tail": ops.last("v")}
    worker = Worker(AggregateOperator.of("a", "k", functions, schema, time="t"), schema)
    found: dict[Any, Row] = {}
    for epoch in results(worker, [rows[:cut], rows[cut:]]):
        found |= epoch
    for key in set(keys):
        timed = sorted((t, v) for k, v, t in rows if k == key and t is not None)
        assert found[key] == ((timed[0][1], timed[-1][1]) if timed else (None, None))


def test_of_equal_times_the_first_stays_and_the_last_is_replaced() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.string(), "t": pa.int64()})
    functions = {"head": ops.first("v"), "tail": ops.last("v")}
    worker = Worker(AggregateOperator.of("a", "k", functions, schema, time="t"), schema)
    assert results(worker, [[(1, "a", 5)], [(1, "b", 5)]])[1] == {1: ("a", "b")}


def test_first_and_last_of_arrays() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.list_(pa.int64())})
    functions = {"head": ops.first("v"), "tail": ops.last("v")}
    worker = Worker(AggregateOperator.of("a", "k", functions, schema), schema)
    epochs = [[(1, None), (2, [1])], [(1, [2, 3]), (2, None)]]
    assert results(worker, epochs)[1] == {1: (None, [2, 3]), 2: ([1], None)}


def test_a_function_added_later_begins_with_nothing() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    before = Worker(AggregateOperator.of("a", "k", {"n": ops.count()}, schema), schema)
    before.feed([(1, 10), (1, 20)])
    functions = {"n": ops.count(), "s": ops.sum("v"), "m": ops.avg("v"), "f": ops.first("v")}
    now = AggregateOperator.of("a", "k", functions, schema)
    table = DictTable(now.tables[0])
    stored = before.tables["value"]
    assert isinstance(stored, DictTable)
    for key, entries in stored.rows.items():
        table.rows[key] = {(): (*entries[()], *[None] * 5)}
    worker = Worker(now, schema, tables={"value": table})
    assert worker.feed([(1, 30)]) == [(1, 3, 30, 30.0, 30)]


def test_composite_keys_with_nulls() -> None:
    schema = pa.schema({"a": pa.string(), "b": pa.decimal128(5, 1), "c": pa.timestamp("us", "UTC")})
    operator = AggregateOperator.of("x", ["a", "b", "c"], {"n": ops.count()}, schema)
    for table in (DictTable, RunTable):
        worker = Worker(operator, schema, table=table)
        moment = datetime(2020, 1, 1, tzinfo=UTC)
        keys = [("x", None, moment), (None, Decimal("1.5"), None), (None, None, None)]
        worker.feed(keys + keys[:1])
        found = {row[:3]: row[3] for row in worker.feed([*keys[1:], *keys])}
        assert found == {keys[0]: 3, keys[1]: 3, keys[2]: 3}


def test_a_column_may_be_key_and_argument() -> None:
    schema = pa.schema({"k": pa.int64()})
    worker = Worker(AggregateOperator.of("a", "k", {"total": ops.sum("k")}, schema), schema)
    assert worker.feed([(3,), (3,), (4,)]) in ([(3, 6), (4, 4)], [(4, 4), (3, 6)])


def test_an_epoch_without_records_changes_nothing() -> None:
    schema = pa.schema({"k": pa.int64()})
    worker = Worker(AggregateOperator.of("a", "k", {"n": ops.count()}, schema), schema)
    assert worker.feed([]) == []
    assert worker.written() == 0


def test_a_decimal_that_outgrows_its_type_names_the_key() -> None:
    schema = pa.schema({"k": pa.string(), "v": pa.decimal128(38, 0)})
    operator = AggregateOperator.of("totals", "k", {"total": ops.sum("v")}, schema)
    worker = Worker(operator, schema)
    worker.feed([("a", Decimal(10**38 - 1)), ("b", Decimal(1))])
    with pytest.raises(OperatorError, match=r"total = sum\(v\) outgrew.*38, 0") as failure:
        worker.feed([("a", Decimal(1)), ("b", Decimal(1))])
    assert (failure.value.key, failure.value.operator, failure.value.epoch) == ("'a'", "totals", 1)
    with pytest.raises(OperatorError):
        worker.feed([("c", Decimal(-(10**38) + 1))] * 10)


def test_describes_itself_and_pickles() -> None:
    schema = pa.schema({"k": pa.string(), "v": pa.int64()})
    operator = AggregateOperator.of("a", "k", {"n": ops.count(), "m": ops.avg("v")}, schema)
    assert isinstance(operator, Operator)
    assert operator.describe().to_json() == {
        "kind": "aggregate",
        "key": "`k` string",
        "output": "`k` string, `n` bigint, `m` double",
        "tables": {
            "value": {"sub": "", "value": "`n` bigint, `m_sum` decimal(38,0), `m_count` bigint"}
        },
        "functions": {"n": "count()", "m": "avg(v)"},
    }
    assert pickle.loads(pickle.dumps(operator)).describe() == operator.describe()


@pytest.mark.parametrize(
    ("name", "key", "functions", "message"),
    [
        ("", "k", {"n": ops.count()}, "operator name ''"),
        ("a/b", "k", {"n": ops.count()}, "operator name 'a/b'"),
        ("x", "q", {"n": ops.count()}, "operator 'x': key column 'q' is not in the input: k, s, d"),
        ("x", [], {"n": ops.count()}, "operator 'x': a key needs"),
        ("x", ["k", "k"], {"n": ops.count()}, "'k' and 'k' have the same name"),
        ("x", "d", {"n": ops.count()}, "key column 'd' is of type double"),
        ("x", "k", {}, "computes nothing"),
        ("x", "k", {"n": "count"}, "'n' must be a function such as count"),
        ("x", "k", {"n": ops.sum("q")}, r"sum\(q\) column 'q' is not in the input"),
        ("x", "k", {"n": ops.sum("s")}, r"n = sum\(s\): column 's' is of type string"),
        ("x", "k", {"n": ops.max("l")}, r"n = max\(l\): column 'l' is of type list"),
        ("x", "k", {"K": ops.count()}, "column 'K' of state 'value' is also a key column"),
        ("x", "k", {"_n": ops.count()}, "column '_n' begins with an underscore"),
        ("x", "k", {"n": ops.avg("d"), "N_count": ops.count()}, "'n_count' and 'N_count'"),
    ],
)
def test_refuses(name: str, key: Any, functions: Any, message: str) -> None:
    schema = pa.schema(
        {"k": pa.int64(), "s": pa.string(), "d": pa.float64(), "l": pa.list_(pa.int64())}
    )
    with pytest.raises(ConfigError, match=message):
        AggregateOperator.of(name, key, functions, schema)


def test_refuses_a_time_that_is_none() -> None:
    schema = pa.schema({"k": pa.int64(), "s": pa.string()})
    with pytest.raises(ConfigError, match="time column 's' is of type string"):
        AggregateOperator.of("x", "k", {"n": ops.first("k")}, schema, time="s")
