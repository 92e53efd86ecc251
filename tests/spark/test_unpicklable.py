"""A function that cannot be sent to executors is named, with what is in the way."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from godwit.errors import ConfigError
from godwit.operators import StateMachine
from godwit.operators.deduplicate import Deduplicate
from godwit.operators.vectorised import Vectorised
from godwit.spark.unpicklable import check_operators

SCHEMA = pa.schema({"word": pa.string()})
LOCK = threading.Lock()


class Client:
    """Holds something that belongs to a process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def step(self, key: Any, value: Any, state: Any) -> list[Any]:
        return []


def operator(function: Callable[..., Any]) -> StateMachine:
    return StateMachine.of("counts", "word", function, "n bigint", "n bigint", SCHEMA)


def closing_over(lock: Any) -> Callable[..., Any]:
    def step(key: Any, value: Any, state: Any) -> list[Any]:
        with lock:
            return []

    return step


def calling(helper: Callable[..., Any]) -> Callable[..., Any]:
    def outer(key: Any, value: Any, state: Any) -> Any:
        return helper(key, value, state)

    return outer


def with_default() -> Callable[..., Any]:
    def step(key: Any, value: Any, state: Any, lock: Any = LOCK) -> list[Any]:
        return []

    return step


def in_main(source: str, **values: Any) -> Callable[..., Any]:
    """A function as of a program, which is pickled with the globals that it names."""
    names = {"__name__": "__main__", **values}
    exec(source, names)
    function: Callable[..., Any] = names["step"]
    return function


SENT = "cannot be sent to executors: "
WAYS: dict[str, tuple[Callable[[], Callable[..., Any]], str]] = {
    "closure": (
        lambda: closing_over(threading.Lock()),
        f"its function `step` {SENT}the variable `lock` (a _thread.lock) cannot be pickled",
    ),
    "global": (
        lambda: in_main("def step(key, value, state):\n  return [g for g in [lock]]", lock=LOCK),
        f"its function `step` {SENT}the variable `lock` (a _thread.lock) cannot be pickled",
    ),
    "default": (
        with_default,
        f"its function `step` {SENT}the variable `lock` (a _thread.lock) cannot be pickled",
    ),
    "attribute": (
        lambda: closing_over(Client()),
        f"its function `step` {SENT}the variable `lock` (a {Client.__module__}.Client) holds "
        "`lock.lock` (a _thread.lock), which cannot be pickled",
    ),
    "container": (
        lambda: closing_over({"one": [threading.Lock()]}),
        f"its function `step` {SENT}the variable `lock` (a dict) holds `lock['one'][0]` "
        "(a _thread.lock), which cannot be pickled",
    ),
    "helper": (
        lambda: calling(closing_over(threading.Lock())),
        f"its function `step` {SENT}the variable `lock` (a _thread.lock) cannot be pickled",
    ),
    "partial": (
        lambda: partial(closing_over(threading.Lock())),
        f"its function `step` {SENT}the variable `lock` (a _thread.lock) cannot be pickled",
    ),
    "method": (
        lambda: Client().step,
        f"its function `step` {SENT}the variable `self` (a {Client.__module__}.Client) holds "
        "`self.lock` (a _thread.lock), which cannot be pickled",
    ),
    "generator": (
        lambda: closing_over(number for number in range(3)),
        f"its function `step` {SENT}the variable `lock` (a generator) cannot be pickled",
    ),
}


def test_a_session_is_not_to_be_made_inside_of_the_function() -> None:
    session = SparkSession.__new__(SparkSession)
    session.__dict__["lock"] = threading.Lock()
    with pytest.raises(ConfigError, match=r"SparkSession\) cannot be .* live on the driver only\."):
        check_operators([operator(closing_over(session))])


@pytest.mark.parametrize("way", WAYS)
def test_what_is_in_the_way_is_named(way: str) -> None:
    make, message = WAYS[way]
    with pytest.raises(ConfigError) as told:
        check_operators([operator(closing_over(7)), operator(make())])
    text = str(told.value)
    assert text.startswith(f"operator 'counts': {message}; make it inside of the function")
    assert "\n" not in text


def test_a_function_of_columns_is_looked_through_as_well() -> None:
    function, columns = closing_over(LOCK), "n bigint"
    vectorised = Vectorised.of("counts", "word", function, columns, columns, SCHEMA)
    with pytest.raises(ConfigError, match=r"its function `step` .* the variable `lock`"):
        check_operators([vectorised])


def test_what_can_be_sent_is_let_through() -> None:
    functions = [closing_over(7), closing_over(Client), calling(closing_over([1, {2: "3"}]))]
    operators = [operator(function) for function in functions]
    check_operators([*operators, Deduplicate.of("once", "word", SCHEMA)])
