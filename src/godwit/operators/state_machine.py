"""A Python function for each record, with the state of the record's key."""

import gc
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.errors import ConfigError, GodwitError, OperatorError
from godwit.model.schema import check_names, parse
from godwit.operators import definition
from godwit.operators.base import Changes, Hashes, TableView
from godwit.operators.cells.base import Cells
from godwit.operators.convert import MisfitError, elements, row_class, rows, to_arrow, tuples
from godwit.operators.forms import Form, Value
from godwit.state.keys import Groups, distinct
from godwit.state.table import TableSpec

TABLE = "value"  # the only table of a state that is given as a schema string

_WINDOW_KEYS = 1 << 14
_WINDOW_RECORDS = 1 << 16
_COLLECT_AFTER = (1 << 16, 20, 100)

Function = Callable[[Any, Any, Any], Iterable[tuple[Any, ...]] | None]


@dataclass(frozen=True)
class StateMachine:
    """Calls `function(key, value, state)` for each record, in the order of (time, content).

    A key of one column is its value, else a named tuple; a value is a named tuple of the columns
    that are not in the key. The function may change the state, and returns rows of output or None.
    """

    name: str
    key: pa.Schema
    input: pa.Schema
    output: pa.Schema
    function: Function
    forms: Mapping[str, Form]
    single: bool  # the only form is handed over as it is, not as an attribute
    time: str | None

    @classmethod
    def of(
        cls,
        name: str,
        key: str | Sequence[str],
        function: Function,
        state: str | Mapping[str, Form],
        output: str,
        input: pa.Schema,
        *,
        time: str | None = None,
    ) -> Self:
        """The state machine over records of schema `input`.

        `state` is the columns of one value, or several states by name.
        """
        with definition.defining(name):
            self = cls(
                name,
                definition.key_schema(key, input),
                input,
                _output(output),
                function,
                _forms(state),
                isinstance(state, str),
                time,
            )
            definition.time_field(time, input)
            self._check()
            return self

    def _check(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"its function must be callable, not {self.function!r}")
        check_names(self.input)
        definition.check_attributes("input column", self.input.names)
        for spec in self.tables:
            definition.check_table(spec)

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        return tuple(form.spec(name, self.key) for name, form in self.forms.items())

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.input.names)

    @property
    def ordered(self) -> bool:
        return True

    def describe(self) -> dict[str, Any]:
        return definition.describe("state_machine", self.key, self.tables, self.output)

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        if not records.num_rows:
            return Changes()
        groups = distinct(hashes, records.select(self.key.names), ordered=True)
        cells = {name: form.open(epoch, groups, state[name]) for name, form in self.forms.items()}
        with _rare_collections():
            outputs = _Run(self, epoch, groups, list(cells.values())).outputs(records)
        return Changes({name: cell.delta() for name, cell in cells.items()}, outputs)


class _Run:
    """The calls of one worker and epoch, made for a window of keys at a time."""

    def __init__(
        self, machine: StateMachine, epoch: int, groups: Groups, cells: Sequence[Cells]
    ) -> None:
        self._machine = machine
        self._epoch = epoch
        self._groups = groups
        self._cells = cells

    def outputs(self, records: pa.Table) -> pa.Table:
        """Call the function for all records and take down the changes of state."""
        key = self._machine.key.names
        names = [name for name in self._machine.input.names if name not in key]
        values = rows(records.select(names), "Value")
        sizes = np.diff(self._groups.starts, append=records.num_rows)
        tables: list[pa.Table] = []
        for start, stop in _windows(self._groups.starts):
            tables.append(self._window(start, stop, sizes[start:stop].tolist(), values))
            try:
                for cells in self._cells:
                    cells.close()
            except MisfitError as error:
                raise self._failed(error.index, str(error)) from None
        return pa.concat_tables(tables)

    def _window(self, start: int, stop: int, sizes: list[int], values: Iterator[Any]) -> pa.Table:
        keys = elements(self._groups.keys.slice(start, stop - start), "Key")
        function = self._machine.function
        produced: list[Any] = []
        emit = self._emitter(produced)
        ends: list[int] = []
        try:
            for key, state, size in zip(keys, self._states(start, stop), sizes, strict=True):
                for value in islice(values, size):
                    result = function(key, value, state)
                    if result is not None:
                        emit(result)
                ends.append(len(produced))
        except GodwitError:  # of the engine, met while the function read its state
            raise
        except Exception as error:
            raise self._failed(start + len(ends), _cause(error)) from error
        try:
            return _table(produced, self._machine.output)
        except MisfitError as error:
            group = start + bisect_right(ends, error.index)
            raise self._failed(group, f"output: {error}") from None

    def _emitter(self, produced: list[Any]) -> Callable[[Iterable[Any]], None]:
        """Outputs are what they were when the function gave them: arrays may change afterwards."""
        if any(pa.types.is_nested(field.type) for field in self._machine.output):
            return lambda rows: produced.extend(map(deepcopy, rows))
        return produced.extend

    def _states(self, start: int, stop: int) -> Iterable[Any]:
        opened = [cells.open(start, stop) for cells in self._cells]
        if self._machine.single:
            return opened[0]
        make = row_class("State", tuple(self._machine.forms))._make
        return map(make, zip(*opened, strict=True))

    def _failed(self, group: int, cause: str) -> OperatorError:
        (key,) = elements(self._groups.keys.slice(group, 1), "Key")
        return OperatorError(self._machine.name, repr(key), cause, epoch=self._epoch)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let Python look for cyclic garbage once in ten thousands of objects, not in hundreds.

    A record makes a few objects, none of them in a cycle; looking for one took half of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _windows(starts: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of groups that bound the Python objects alive at a time; a group is never cut."""
    start = 0
    while start < len(starts):
        full = int(np.searchsorted(starts, starts[start] + _WINDOW_RECORDS))
        stop = min(max(full, start + 1), start + _WINDOW_KEYS, len(starts))
        yield start, stop
        start = stop


def _table(produced: Sequence[Any], output: pa.Schema) -> pa.Table:
    columns = tuples(produced, output)
    arrays = [to_arrow(*pair) for pair in zip(columns, output, strict=True)]
    return pa.table(arrays, schema=output)


def _cause(error: Exception) -> str:
    """The traceback from the user's function on."""
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    if inner is None and isinstance(error, TypeError):
        return (
            f"TypeError: {error} (the function is called with key, value and state, and returns "
            "an iterable of tuples, or None)"
        )
    return "".join(traceback.format_exception(type(error), error, inner))


def _forms(state: str | Mapping[str, Form]) -> Mapping[str, Form]:
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


def _output(ddl: str) -> pa.Schema:
    try:
        output = parse(ddl)
        check_names(output)
    except ConfigError as error:
        raise ConfigError(f"output: {error}") from None
    return output
