"""Calling a user's Python function: what it is given, what it gives, and how it fails."""

import gc
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pyarrow as pa

from godwit.errors import ConfigError
from godwit.model.schema import check_names, parse
from godwit.operators import definition
from godwit.operators.cells.base import Cells
from godwit.operators.conversion import row_class, to_arrow, tuples
from godwit.operators.forms import Form, Value

TABLE = "value"  # the only table of a state that is given as a schema string

_COLLECT_AFTER = (1 << 16, 20, 100)


def forms_of(state: str | Mapping[str, Form]) -> Mapping[str, Form]:
    """The states of a key by name, as a user gives them."""
    if isinstance(state, str):
        return {TABLE: Value(state)}
    if not isinstance(state, Mapping) or not state:
        raise ConfigError(
            f"its state must be a schema string, or a Value, List or Map by name, not {state!r}"
        )
    definition.check_attributes("state", state)
    check_names(pa.schema([pa.field(name, pa.int8()) for name in state]))
    for name, form in state.items():
        if not isinstance(form, Form):
            raise ConfigError(f"state '{name}' must be a Value, List or Map, not {form!r}")
    return dict(state)


def schema_of(what: str, ddl: str) -> pa.Schema:
    """The columns of rows that a function makes."""
    try:
        schema = parse(ddl)
        check_names(schema)
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None
    return schema


def check_function(function: Any) -> None:
    if not callable(function):
        raise ConfigError(f"its function must be callable, not {function!r}")


def states(
    cells: Sequence[Cells], names: Iterable[str], single: bool, start: int, stop: int
) -> Iterable[Any]:
    """The state of each key from `start` to `stop`: of a `single` form the cell itself, else all
    cells as attributes."""
    opened = [one.open(start, stop) for one in cells]
    if single:
        return opened[0]
    return map(row_class("State", tuple(names))._make, zip(*opened, strict=True))


def emitter(output: pa.Schema, produced: list[Any]) -> Callable[[Iterable[Any]], None]:
    """Outputs are what they were when the function gave them: arrays may change afterwards."""
    if any(pa.types.is_nested(field.type) for field in output):
        return lambda rows: produced.extend(map(deepcopy, rows))
    return produced.extend


def table(produced: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """Rows as tuples, in columns; raises MisfitError."""
    columns = tuples(produced, schema)
    arrays = [to_arrow(*pair) for pair in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def cause(error: Exception, caller: str, usage: str) -> str:
    """The traceback from the user's function on; `caller` is the file that called it."""
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename == caller:
        inner = inner.tb_next
    if inner is None and isinstance(error, TypeError):
        return f"TypeError: {error} ({usage})"
    return "".join(traceback.format_exception(type(error), error, inner))


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for cyclic garbage once in ten thousands of objects, not in hundreds.

    A record makes a few objects, none of them in a cycle; looking for one took half of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
