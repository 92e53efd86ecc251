"""Watermarks: of one operator, of a chain, of two inputs, and at the end of a stream."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from godwit.driver import event_time
from godwit.model.graph import Graph, Parents
from godwit.model.time import END, Clocks, latest


def operator(delay: int | None) -> Any:
    return SimpleNamespace(delay=delay)


def watermarks(
    operators: dict[str, Any],
    clocks: Mapping[str, Clocks],
    before: dict[str, int],
    finished: set[str],
    graph: Graph | None = None,
) -> dict[str, int]:
    """Of a chain, whose first operator has as many inputs as it has clocks."""
    first = next(iter(operators))
    chain = graph or Graph.chain(list(operators), len(clocks.get(first, (None,))))
    return event_time.watermarks(operators, chain, clocks, before, finished)


def test_the_clock_less_the_delay() -> None:
    assert watermarks({"a": operator(3)}, {"a": (10,)}, {}, set()) == {"a": 7}


def test_no_watermark_without_event_time_or_before_the_first_record() -> None:
    operators = {"a": operator(None), "b": operator(0)}
    assert watermarks(operators, {"a": (10,), "b": (None,)}, {}, set()) == {}
    assert watermarks(operators, {}, {}, set()) == {}


def test_it_never_goes_back() -> None:
    assert watermarks({"a": operator(5)}, {"a": (10,)}, {"a": 8}, set()) == {"a": 8}


def test_an_operator_starts_from_the_watermark_of_the_one_before_that_has_one() -> None:
    operators = {"a": operator(3), "b": operator(None), "c": operator(2)}
    clocks = {"a": (10,), "c": (1000,)}
    assert watermarks(operators, clocks, {}, set()) == {"a": 7, "c": 5}


def test_of_two_inputs_the_one_behind_counts() -> None:
    assert watermarks({"a": operator(1)}, {"a": (10, 4)}, {}, set()) == {"a": 3}
    assert watermarks({"a": operator(1)}, {"a": (10, None)}, {}, set()) == {}


def test_the_end_reaches_all_operators_behind() -> None:
    operators = {"a": operator(3), "b": operator(2)}
    assert watermarks(operators, {"a": (10,)}, {}, {"a"}) == {"a": END, "b": END}
    assert watermarks(operators, {"a": (12,)}, {"a": END, "b": END}, set()) == {"a": END, "b": END}


def test_of_operators_before_it_the_one_behind_counts() -> None:
    operators = {"a": operator(1), "b": operator(None), "c": operator(4), "d": operator(0)}
    graph = Graph(
        {
            "a": (Parents((), (0,)),),
            "b": (Parents(("a",)),),
            "c": (Parents((), (1,)),),
            "d": (Parents(("b",)), Parents(("c",))),
        }
    )
    clocks: dict[str, Clocks] = {"a": (10,), "c": (12,), "d": (100, 100)}
    assert watermarks(operators, clocks, {}, set(), graph) == {"a": 9, "c": 8, "d": 8}
    del clocks["c"]
    assert watermarks(operators, clocks, {}, set(), graph) == {"a": 9}


def test_what_puts_out_rows_behind_its_watermark_holds_those_behind_it_back() -> None:
    """A join's rows wait for others: the next operator expects them for as long."""
    operators = {"a": SimpleNamespace(delay=0, lag=6), "b": operator(1)}
    assert watermarks(operators, {"a": (10,)}, {}, set()) == {"a": 10, "b": 3}
    assert watermarks(operators, {"a": (10,)}, {}, {"a"}) == {"a": END, "b": END}


def test_where_a_source_comes_in_besides_its_clock_counts_too() -> None:
    operators = {"a": operator(1), "b": operator(0)}
    graph = Graph({"a": (Parents((), (0,)),), "b": (Parents(("a",)), Parents((), (1,)))})
    clocks: dict[str, Clocks] = {"a": (10,), "b": (7, 5)}
    assert watermarks(operators, clocks, {}, set(), graph) == {"a": 9, "b": 5}
    graph = Graph({"a": (Parents((), (0,)),), "b": (Parents(("a",), (1,)),)})
    assert watermarks(operators, {"a": (10,), "b": (7,)}, {}, set(), graph) == {"a": 9, "b": 7}


def test_the_clocks_of_workers_and_epochs() -> None:
    assert latest([(3, None), (5, None), (None, 2)]) == (5, 2)
