"""Functions of columns, where the histories do not go: what they are given, and how they fail."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import godwit as gw
from godwit.errors import ConfigError, IncompatibleError, OperatorError
from godwit.model.schema import parse
from godwit.operators.vectorised import Vectorised
from godwit.testing import Simulation
from tests.support.tables import STORES, Hasher, Worker

INPUT = parse("k string, n long")
BOTH = ("n long", "k string, n long")


def worker(
    function: Callable[..., Any],
    state: str = BOTH[0],
    output: str = BOTH[1],
    input: pa.Schema = INPUT,
    **options: Any,
) -> Worker:
    return Worker(Vectorised.of("v", "k", function, state, output, input), input, **options)


def add(records: pa.Table, starts: Any, state: pa.Table) -> Any:
    """The sum of all n of each key."""
    sums = np.add.reduceat(records["n"].to_numpy(), starts)
    n = state["n"].fill_null(0).to_numpy() + sums
    return {"n": n}, {"k": state["k"], "n": n}


@STORES
def test_state_stays_from_epoch_to_epoch(table: Any, hasher: Hasher) -> None:
    v = worker(add, table=table, hasher=hasher)
    assert sorted(v.feed([("a", 1), ("b", 2), ("a", 4)])) == [("a", 5), ("b", 2)]
    assert sorted(v.feed([("b", 1), ("c", 1)])) == [("b", 3), ("c", 1)]
    assert sorted(v.feed([("a", 1)])) == [("a", 6)]


@STORES
def test_records_come_by_key_and_then_by_content(table: Any, hasher: Hasher) -> None:
    seen: list[Any] = []

    def look(records: pa.Table, starts: Any, state: pa.Table) -> None:
        ends = [*starts.tolist()[1:], len(records)]
        for i, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
            rows = records.slice(start, end - start)
            assert set(rows["k"].to_pylist()) == {state["k"][i].as_py()}
            seen.append((state["k"][i].as_py(), rows["n"].to_pylist(), state["n"][i].as_py()))

    v = worker(look, table=table, hasher=hasher)
    assert v.feed([("a", 3), ("b", 1), (None, 7), ("a", None), ("a", 2), ("b", 0)]) == []
    assert len(seen) == 3
    assert all(
        one in seen for one in [("a", [2, 3, None], None), ("b", [0, 1], None), (None, [7], None)]
    )


def test_only_what_changed_is_written_and_a_state_of_nulls_leaves() -> None:
    def set_to(records: pa.Table, starts: Any, state: pa.Table) -> Any:
        return {"n": records["n"].take(pa.array(starts))}, None

    v = worker(set_to)
    v.feed([("a", 1), ("b", 2), ("c", None)])
    assert v.deltas["value"].num_rows == 2
    v.feed([("a", 1), ("b", None), ("c", None)])
    assert v.deltas["value"].select(["k", "_op"]).to_pylist() == [{"k": "b", "_op": 1}]
    v.feed([("a", 1), ("b", None)])
    assert v.deltas["value"].num_rows == 0


@pytest.mark.parametrize("returned", [None, (None, None)])
def test_nothing_may_come_of_it(returned: Any) -> None:
    v = worker(lambda records, starts, state: returned)
    assert v.feed([("a", 1)]) == []
    assert v.deltas.get("value", pa.table({})).num_rows == 0


ALL = (
    "flag boolean, tiny tinyint, n long, x double, f float, price decimal(7,2), word string, "
    "raw binary, day date, at timestamp, local timestamp_ntz, tags array<int>, "
    "place struct<x:double>, more map<string,int>"
)
VALUES: dict[str, Any] = {
    "flag": np.array([True]),
    "tiny": np.array([5]),  # of eight bytes
    "n": np.array([5], np.int8),
    "x": np.array([5]),
    "f": np.array([0.5]),
    "price": pa.array([Decimal("1.5")]),
    "word": np.array(["é"]),
    "raw": [b"x"],
    "day": np.array(["2026-01-01"], "M8[D]"),
    "at": np.array(["2026-01-01"], "M8[ns]"),
    "local": np.array(["2026-01-01"], "M8[s]"),
    "tags": [[1, 2]],
    "place": pa.array([{"x": 1}]),
    "more": np.array([[("a", 1)], None], object)[:1],
}


@pytest.mark.parametrize("wrap", [dict, pa.table], ids=["dict", "table"])
def test_columns_may_be_of_numpy_of_arrow_or_lists(wrap: Any) -> None:
    def make(records: pa.Table, starts: Any, state: pa.Table) -> Any:
        columns = {name: VALUES[name] for name in reversed(VALUES)}
        if wrap is pa.table:
            columns = {
                name: pa.array(value) for name, value in columns.items() if name != "more"
            } | {"more": pa.array(VALUES["more"].tolist(), parse(ALL).field("more").type)}
            columns["at"] = columns["at"].cast(pa.timestamp("ms", "UTC"))
        return wrap(columns), wrap({**columns})

    v = worker(make, ALL, ALL)
    for _ in range(2):
        (row,) = v.feed([("a", 1)])
        assert row == (
            *(True, 5, 5, 5.0, 0.5, Decimal("1.50"), "é", b"x"),
            datetime(2026, 1, 1).date(),
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1),
            *([1, 2], {"x": 1.0}, [("a", 1)]),
        )


ONE = {"k": ["a"], "n": [1]}
FAILURES: list[tuple[Any, str]] = [
    (5, "it returned a int, no pair"),
    (({"n": [1]},), "it returned a tuple, no pair"),
    (([1], None), "state: a list is no Arrow table and no dict of columns"),
    (({}, None), "state: column 'n' is missing"),
    (({"n": [1], "m": [2]}, None), "state: column 'm' is not one of: n"),
    (({"n": [1, 2]}, None), "state: column 'n' has 2 rows, not 1"),
    (({"n": np.array([0.5])}, None), "state: column 'n': double is no int64"),
    (({"n": np.array([True])}, None), "state: column 'n': bool is no int64"),
    (({"n": [0.5]}, None), r"state: column 'n': 0.5 \(float\) is no int64"),
    (({"n": np.array([[1]])}, None), "state: column 'n': only handle 1-dimensional arrays"),
    (({"n": np.array([1 << 63], np.uint64)}, None), "state: column 'n': .* not in range"),
    (({"n": 1}, None), "state: column 'n' is a int, and must be an array of numpy or Arrow"),
    ((None, {"n": [1]}), "outputs: column 'k' is missing"),
    ((pa.table([[1], [2]], ["n", "n"]), None), "state: of the columns n, n two have one name"),
    ((None, ONE | {"n": ["1"]}), r"outputs: column 'n': '1' \(str\) is no int64"),
    ((None, ONE | {"n": pa.array(["1"])}), "outputs: column 'n': string is no int64"),
    ((None, ONE | {"n": [1, 2]}), "outputs: column 'n' has 2 rows, not 1"),
]


@pytest.mark.parametrize(("returned", "message"), FAILURES)
def test_what_does_not_fit_names_operator_and_column(returned: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message) as failure:
        worker(lambda records, starts, state: returned).feed([("a", 1)])
    assert (failure.value.operator, failure.value.epoch) == ("v", 0)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("timestamp", pa.array([datetime(2026, 1, 1)]), r"timestamp\[us\] is no timestamp\[us, tz"),
        ("timestamp_ntz", np.array([1], "M8[ns]"), "would lose data"),
        ("array<int>", pa.array([[0.5]]), "list<item: double> is no list<element: int32>"),
        ("struct<x:int>", pa.array([{"y": 1}]), "struct<y: int64> is no struct<x: int32>"),
        ("decimal(3,1)", pa.array([Decimal("1.25")]), "would cause data loss"),
        ("decimal(7,2)", np.array([1]), r"int64 is no decimal128\(7, 2\)"),
        ("string", pa.array([b"x"]), "binary is no string"),
        ("long NOT NULL", [None], "null in a column that is NOT NULL"),
        ("long NOT NULL", pa.array([None], pa.int64()), "null in a column that is NOT NULL"),
    ],
)
def test_nothing_is_cut_or_reinterpreted(kind: str, value: Any, message: str) -> None:
    function = lambda records, starts, state: (None, {"x": value})  # noqa: E731
    with pytest.raises(OperatorError, match=f"outputs: column 'x': .*{message}"):
        worker(function, output=f"x {kind}").feed([("a", 1)])


def test_a_failure_of_the_function_shows_its_traceback() -> None:
    def broken(records: pa.Table, starts: Any, state: pa.Table) -> None:
        raise LookupError("no such thing")

    with pytest.raises(OperatorError, match="LookupError: no such thing") as failure:
        worker(broken).feed([("a", 1)])
    assert "in broken" in failure.value.cause
    assert "vectorised.py" not in failure.value.cause.replace(__file__, "")


def test_a_function_of_other_parameters_is_told_what_it_is_called_with() -> None:
    with pytest.raises(OperatorError, match="is called with records, starts and state"):
        worker(lambda records: None).feed([("a", 1)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "kk"}, "key column 'kk' is not in the input"),
        ({"time": "at"}, "time column 'at' is not in the input"),
        ({"delay": "1 s"}, "it has a delay, but no time"),
        ({"ttl": "1 s"}, "a ttl needs event time"),
        ({"function": 5}, "its function must be callable, not 5"),
        ({"state": {"n": gw.Value("n long")}}, "its state must be a schema string"),
        ({"state": "n lnog"}, "state 'value': type 'lnog' is not supported"),
        ({"state": "k long"}, "column 'k' of state 'value' is also a key column"),
        ({"output": "n lnog"}, "output: type 'lnog' is not supported"),
    ],
)
def test_what_cannot_work_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    given = {"key": "k", "function": add, "state": BOTH[0], "output": BOTH[1], **options}
    with pytest.raises(ConfigError, match=f"operator 'v': {message}"):
        gw.stream("k string, n long").vectorised("v", **given)


def job(state: str = "n long") -> Any:
    stream = gw.stream("k string, n long")
    return stream.vectorised("v", key="k", function=add, state=state, output="k string, n long").to(
        gw.files("out")
    )


def test_it_goes_on_with_its_state_and_no_other() -> None:
    sim = Simulation(job())
    sim.feed([{"k": "a", "n": 1}])
    sim.restart(job(), workers=3)
    sim.feed([{"k": "a", "n": 2}])
    assert sim.outputs()[-1] == {"k": "a", "n": 3}
    with pytest.raises(IncompatibleError, match="column 'n' of state 'value' was int64, now int32"):
        sim.restart(job("n int"))
    counts = gw.stream("k string, n long").aggregate("v", key="k", n=gw.count())
    with pytest.raises(IncompatibleError, match="its kind was 'vectorised', now 'aggregate'"):
        sim.restart(counts.to(gw.files("out")))


def test_keys_expire_by_a_ttl() -> None:
    columns = "k string, n long, at timestamp_ntz"
    output: dict[str, Any] = {
        "output": "k string, n long",
        "time": "at",
        "delay": "0 s",
        "ttl": "10 s",
    }
    stream = gw.stream(columns).vectorised("v", key="k", function=add, state="n long", **output)
    sim = Simulation(stream.to(gw.files("out")))
    for k, second in (("a", 0), ("b", 20), ("b", 21), ("a", 22)):
        sim.feed([{"k": k, "n": 1, "at": datetime(2026, 1, 1, 0, 0, second)}])
    assert sim.outputs()[-1] == {"k": "a", "n": 1}


def test_a_function_may_have_options() -> None:
    def scale(records: pa.Table, starts: Any, state: pa.Table, by: int) -> Any:
        return None, {"k": records["k"], "n": records["n"].to_numpy() * by}

    assert worker(partial(scale, by=3)).feed([("a", 2)]) == [("a", 6)]
