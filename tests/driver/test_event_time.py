"""Watermarks: of one operator, of a chain, of two inputs, and at the end of a stream."""

from types import SimpleNamespace
from typing import Any

from godwit.driver.event_time import watermarks
from godwit.model.time import END, latest


def operator(delay: int | None) -> Any:
    return SimpleNamespace(delay=delay)


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


def test_the_clocks_of_workers_and_epochs() -> None:
    assert latest([(3, None), (5, None), (None, 2)]) == (5, 2)
