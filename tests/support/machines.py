"""State machines for tests."""

from typing import Any

import pyarrow as pa

from godwit.operators import StateMachine
from godwit.operators.state_machine import Function
from tests.support.tables import Row, Worker

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
