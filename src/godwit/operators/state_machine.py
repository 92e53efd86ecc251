"""A Python function for each record, with the state of the record's key."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.errors import GodwitError, OperatorError
from godwit.model.description import OperatorDescription
from godwit.model.keys import Groups, distinct
from godwit.model.schema import check_names
from godwit.model.time import Duration
from godwit.operators import definition, user_function
from godwit.operators.base import Changes, Hashes, Horizon, TableView
from godwit.operators.cells.base import Cells
from godwit.operators.conversion import MisfitError, elements, rows
from godwit.operators.forms import Form
from godwit.state.table import TableSpec

_WINDOW_KEYS = 1 << 14
_WINDOW_RECORDS = 1 << 16
_USAGE = (
    "the function is called with key, value and state, and returns an iterable of tuples, or None"
)

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
    delay: int | None = None
    inputs: ClassVar[int] = 1
    prefold: ClassVar[None] = None

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
        delay: Duration | None = None,
    ) -> Self:
        """The state machine over records of schema `input`.

        `state` is the columns of one value, or several states by name.
        """
        with definition.defining(name):
            self = cls(
                name,
                definition.key_schema(key, input),
                input,
                user_function.schema_of("output", output),
                function,
                user_function.forms_of(state),
                isinstance(state, str),
                time,
                definition.watermark_delay(definition.time_field(time, input), delay),
            )
            self._check()
            return self

    def _check(self) -> None:
        user_function.check_function(self.function)
        check_names(self.input)
        definition.check_attributes("input column", self.input.names)
        for spec in self.tables:
            definition.check_table(spec)

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        return tuple(form.spec(name, self.key) for name, form in self.forms.items())

    @property
    def horizon(self) -> Horizon:
        return definition.own_time(self.time)

    @property
    def ordered(self) -> bool:
        return True

    def describe(self) -> OperatorDescription:
        return definition.describe("state_machine", self.key, self.tables, self.output)

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        if not records.num_rows:
            return Changes()
        groups = distinct(hashes, records.select(self.key.names), ordered=True)
        cells = {name: form.open(epoch, groups, state[name]) for name, form in self.forms.items()}
        with user_function.rare_collections():
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
        emit = user_function.emitter(self._machine.output, produced)
        states = user_function.states(
            self._cells, self._machine.forms, self._machine.single, start, stop
        )
        ends: list[int] = []
        try:
            for key, state, size in zip(keys, states, sizes, strict=True):
                for value in islice(values, size):
                    result = function(key, value, state)
                    if result is not None:
                        emit(result)
                ends.append(len(produced))
        except GodwitError:  # of the engine, met while the function read its state
            raise
        except Exception as error:
            cause = user_function.cause(error, __file__, _USAGE)
            raise self._failed(start + len(ends), cause) from error
        try:
            return user_function.table(produced, self._machine.output)
        except MisfitError as error:
            group = start + bisect_right(ends, error.index)
            raise self._failed(group, f"output: {error}") from None

    def _failed(self, group: int, cause: str) -> OperatorError:
        (key,) = elements(self._groups.keys.slice(group, 1), "Key")
        return OperatorError(self._machine.name, repr(key), cause, epoch=self._epoch)


def _windows(starts: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of groups that bound the Python objects alive at a time; a group is never cut."""
    start = 0
    while start < len(starts):
        full = int(np.searchsorted(starts, starts[start] + _WINDOW_RECORDS))
        stop = min(max(full, start + 1), start + _WINDOW_KEYS, len(starts))
        yield start, stop
        start = stop
