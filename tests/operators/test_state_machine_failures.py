"""How state machines fail, and what they refuse."""

import pickle
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from godwit.errors import ConfigError, DamagedFileError, OperatorError
from godwit.operators import Form, List, Map, StateMachine, Value
from godwit.operators.base import Operator
from tests.support.machines import INPUT, count, machine
from tests.support.tables import DictTable, Row, Worker


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
        (lambda s: setattr(s.one, "m", 1), r"'State\(n, t, xs, p\)' object has no attribute 'm'"),
        (lambda s: s.one.m, r"'State\(n, t, xs, p\)' object has no attribute 'm'"),
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
    assert operator.describe().to_json() == {
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
