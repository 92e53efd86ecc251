"""State that is given at the start."""

import numpy as np
import pyarrow as pa
import pytest

from godwit.errors import OperatorError
from godwit.operators import List, StateMachine
from godwit.operators.initial_state import Load
from godwit.state.view import View

INPUT = pa.schema({"k": pa.string(), "x": pa.int64()})
MACHINE = StateMachine.of(
    "lists", "k", lambda k, v, s: s.items.append(v.x), {"items": List("x long")}, "x long", INPUT
)


def load(positions: list[int], first: float = 10) -> pa.Table:
    """The rows of the first delta, for two elements of one list and one of another."""
    (spec,) = MACHINE.tables
    hashes = np.array([1, 1, 2], np.uint64)
    records = pa.table({"k": ["a", "a", "b"], "_pos": positions, "x": [first, 20, 30]})
    view = View(spec, lambda segment: [])
    return Load(MACHINE, "items").process(-1, hashes, records, {"items": view}).deltas["items"]


def test_a_list_counts_from_zero_so_that_what_is_appended_comes_after_it() -> None:
    rows = load([7, 5 << 32, 9])
    assert rows.select(["k", "_pos", "x"]).to_pydict() == {
        "k": ["a", "a", "b"],
        "_pos": [0, 1, 0],
        "x": [10, 20, 30],
    }


def test_an_element_that_stands_twice_is_refused() -> None:
    with pytest.raises(OperatorError, match="stands twice"):
        load([7, 7, 9])


def test_a_value_that_does_not_fit_is_refused_with_its_column() -> None:
    with pytest.raises(OperatorError, match="column 'x' of the initial state does not fit int64"):
        load([7, 8, 9], first=0.5)
