"""A Python function for all records of an epoch at once, with columns of records and of state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from godwit.errors import ConfigError, OperatorError
from godwit.model.description import OperatorDescription
from godwit.model.keys import Mask, equal
from godwit.model.schema import check_names
from godwit.model.time import Duration
from godwit.operators import definition, sorting, user_function
from godwit.operators.base import Changes, Hashes, Horizon, TableView
from godwit.operators.column_types import UnfitColumnsError, table_of
from godwit.operators.due_keys import deletions, in_order, rows_where
from godwit.operators.forms import Value
from godwit.state.table import UPSERT, TableSpec

_USAGE = (
    "the function is called with records, starts and state, and returns (state, outputs), or None"
)

Function = Callable[[pa.Table, npt.NDArray[np.int64], pa.Table], Any]


@dataclass(frozen=True)
class Vectorised:
    """Calls `function(records, starts, state)` once for each worker and epoch with records.

    The records of a key stand side by side, in the order of (time, content); those of key i begin
    at `starts[i]`. Row i of `state` has key i and its state, null where there is none. The function
    returns a state and outputs. A key whose state is null in all columns has none.
    """

    name: str
    key: pa.Schema
    input: pa.Schema
    output: pa.Schema
    function: Function
    state: pa.Schema
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
        state: str,
        output: str,
        input: pa.Schema,
        *,
        time: str | None = None,
        delay: Duration | None = None,
    ) -> Self:
        """The function over records of schema `input`."""
        with definition.defining(name):
            keys = definition.key_schema(key, input)
            if not isinstance(state, str):
                raise ConfigError(f"its state must be a schema string, not {state!r}")
            self = cls(
                name,
                keys,
                input,
                user_function.schema_of("output", output),
                function,
                Value(state).spec(user_function.TABLE, keys).value,
                time,
                definition.watermark_delay(definition.time_field(time, input), delay),
            )
            user_function.check_function(function)
            check_names(input)
            definition.check_table(self.tables[0])
            return self

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(user_function.TABLE, self.key, pa.schema([]), self.state),)

    @property
    def ordered(self) -> bool:
        return not sorting.can_sort(self.input)

    @property
    def horizon(self) -> Horizon:
        return definition.own_time(self.time)

    def describe(self) -> OperatorDescription:
        return definition.describe("vectorised", self.key, self.tables, self.output)

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        if not records.num_rows:
            return Changes()
        (spec,) = self.tables
        groups, records = sorting.in_order(
            hashes, records, self.key, self.time, ordered=self.ordered
        )
        known, before = state[spec.name].get(groups.hashes, groups.keys)
        given = pa.table(
            [*groups.keys.columns, *before.columns], [*self.key.names, *before.column_names]
        )
        after, outputs = self._call(epoch, records, groups.starts, given)
        produced = self._checked(epoch, "outputs", outputs, self.output, None)
        if after is None:
            return Changes(outputs=produced)
        values = self._checked(epoch, "state", after, self.state, len(known))
        exists = _any_given(values)
        write, gone = exists & ~_same(before, values), known & ~exists
        ops = np.full(len(known), UPSERT, np.int8)
        rows = [pa.array(groups.hashes), pa.array(ops), *groups.keys.columns, *values.columns]
        delta = in_order(
            rows_where(pa.table(rows, schema=spec.schema), write),
            deletions(spec, groups.hashes[gone], rows_where(groups.keys, gone)),
        )
        return Changes({spec.name: delta}, produced)

    def _call(
        self, epoch: int, records: pa.Table, starts: npt.NDArray[np.int64], state: pa.Table
    ) -> tuple[Any, Any]:
        """The state and the outputs that the function returns, as it gives them."""
        try:
            result = self.function(records, starts, state)
        except Exception as error:
            cause = user_function.cause(error, __file__, _USAGE)
            raise self._failed(epoch, cause) from error
        if result is None:
            return None, None
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._failed(epoch, f"it returned a {type(result).__name__}, no pair ({_USAGE})")
        return result

    def _checked(
        self, epoch: int, what: str, given: Any, schema: pa.Schema, rows: int | None
    ) -> pa.Table:
        try:
            return schema.empty_table() if given is None else table_of(given, schema, rows)
        except UnfitColumnsError as error:
            raise self._failed(epoch, f"{what}: {error}") from None

    def _failed(self, epoch: int, cause: str) -> OperatorError:
        return OperatorError(self.name, "?", cause, epoch=epoch)


def _any_given(values: pa.Table) -> Mask:
    """Which rows are not null in all columns?"""
    found = np.zeros(values.num_rows, np.bool_)
    for column in values.columns:
        found |= pc.is_valid(column).to_numpy()
    return found


def _same(before: pa.Table, after: pa.Table) -> Mask:
    """Which rows did not change? Arrow does not compare nested values: they count as changed."""
    if any(pa.types.is_nested(field.type) for field in before.schema):
        return np.zeros(before.num_rows, np.bool_)
    return equal(before, after)
