"""Folding the records of each key with functions that numpy computes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from godwit.aggregates.base import Aggregate, AggregateInput, Columns, GroupedRecords
from godwit.aggregates.bound import BoundAggregate, partial_column
from godwit.aggregates.int128 import TooWideError
from godwit.errors import ConfigError, OperatorError
from godwit.model.description import OperatorDescription
from godwit.model.keys import Groups, Mask, Rows, distinct, flat
from godwit.model.schema import check_names, to_ddl
from godwit.model.time import Duration
from godwit.operators import definition
from godwit.operators.base import Changes, Hashes, Horizon, Prefold, TableView
from godwit.operators.conversion import elements
from godwit.state.table import UPSERT, TableSpec

TABLE = "value"


@dataclass(frozen=True)
class AggregateOperator:
    """One row of results for each key, and an output row for each key of an epoch."""

    name: str
    key: pa.Schema
    aggregates: tuple[BoundAggregate, ...]
    input: pa.Schema
    time: str | None
    delay: int | None = None
    prefolded: bool = False  # records come folded
    inputs: ClassVar[int] = 1

    @classmethod
    def of(
        cls,
        name: str,
        key: str | Sequence[str],
        functions: Mapping[str, Aggregate],
        input: pa.Schema,
        *,
        time: str | None = None,
        delay: Duration | None = None,
    ) -> Self:
        """The aggregates over records of schema `input`, whose results `functions` names.

        >>> import godwit.operators as ops
        >>> schema = pa.schema({"word": pa.string(), "length": pa.int32()})
        >>> functions = {"n": ops.count(), "mean": ops.avg("length")}
        >>> words = AggregateOperator.of("words", "word", functions, schema)
        >>> words.output.names, words.tables[0].value.names
        (['word', 'n', 'mean'], ['n', 'mean_sum', 'mean_count'])
        """
        with definition.defining(name):
            if not functions:
                raise ConfigError("it computes nothing; give it at least one function")
            moment = definition.time_field(time, input)
            bound = tuple(_bind(*function, input, time) for function in functions.items())
            keys = definition.key_schema(key, input)
            read = [*keys.names, time, *(c for one in bound for c in one.aggregate.columns)]
            used = pa.schema([input.field(c) for c in dict.fromkeys(read) if c is not None])
            self = cls(name, keys, bound, used, time, definition.watermark_delay(moment, delay))
            definition.check_table(self.tables[0])
            check_names(self.output)
            to_ddl(self.output)
            return self

    @property
    def functions(self) -> dict[str, Aggregate]:
        return {one.name: one.aggregate for one in self.aggregates}

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        columns = [field for one in self.aggregates for field in one.state.items()]
        return (TableSpec(TABLE, self.key, pa.schema([]), pa.schema(columns)),)

    @cached_property
    def output(self) -> pa.Schema:
        results = [pa.field(one.name, one.output) for one in self.aggregates]
        return pa.schema([*self.key, *results])

    @property
    def horizon(self) -> Horizon:
        return definition.own_time(self.time)

    @property
    def ordered(self) -> bool:
        return any(one.ordered for one in self.aggregates)

    @cached_property
    def prefold(self) -> Prefold | None:
        partials: dict[str, str] = {}
        for one in self.aggregates:
            if one.partials is None:
                return None
            partials |= {partial_column(name): text for name, text in one.partials.items()}
        time = None if self.delay is None else self.time
        kept = [self.input.field(name) for name in dict.fromkeys([*self.key.names, time]) if name]
        state = [field.with_name(partial_column(field.name)) for field in self.tables[0].value]
        schema = pa.schema([*kept, *state, (definition.RECORDS, pa.int64())])
        by = tuple(self.key.names)
        return Prefold(by, partials, replace(self, input=schema, time=time, prefolded=True))

    def describe(self) -> OperatorDescription:
        described = definition.describe("aggregate", self.key, self.tables, self.output)
        return replace(described, functions={one.name: one.description for one in self.aggregates})

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        if not records.num_rows:
            return Changes()
        _, delta = self.fold(epoch, hashes, records, state[TABLE])
        return Changes({TABLE: delta}, self.results(epoch, delta))

    def fold(
        self, epoch: int, hashes: Hashes, records: pa.Table, view: TableView
    ) -> tuple[Mask, pa.Table]:
        """The new rows of the records' keys, and which of them had one before."""
        groups = distinct(hashes, records.select(self.key.names), self.ordered)
        found, old = view.get(groups.hashes, groups.keys)
        return found, self.folded(epoch, groups, records, old)

    def folded(self, epoch: int, groups: Groups, records: pa.Table, old: pa.Table) -> pa.Table:
        """The new rows of groups of records, given the values that these had before, or null."""
        batch = GroupedRecords(records, groups, self.time)
        ops = np.full(len(groups.hashes), UPSERT, np.int8)
        columns = [pa.array(groups.hashes), pa.array(ops), *groups.keys.columns]
        for one in self.aggregates:
            with self._naming(one, epoch, groups.keys):
                before = [flat(old.column(name)) for name in one.state]
                fold = one.merge if self.prefolded else one.aggregate.fold
                columns += _checked(fold(batch, before), one.state.values(), len(groups.hashes))
        return pa.table(columns, schema=self.tables[0].schema)

    def merged(
        self, epoch: int, keys: pa.Table, which: Rows, state: pa.Table, other: pa.Table
    ) -> pa.Table:
        """The values of all records of `state` and, behind them in the order of time, `other`;
        row i is about key `which[i]`."""
        columns: list[pa.Array] = []
        for one in self.aggregates:
            with self._naming(one, epoch, keys, which):
                halves = (
                    [flat(half.column(name)) for name in one.state] for half in (state, other)
                )
                columns += _checked(one.merge_later(*halves), one.state.values(), len(which))
        return pa.table(columns, schema=self.tables[0].value)

    def results(self, epoch: int, rows: pa.Table) -> pa.Table:
        """Keys and results of rows of the state."""
        keys = rows.select(self.key.names)
        columns = keys.columns
        for one in self.aggregates:
            with self._naming(one, epoch, keys):
                state = [flat(rows.column(name)) for name in one.state]
                result = one.aggregate.result(state, one.output)
                columns += _checked([result], [one.output], rows.num_rows)
        return pa.table(columns, schema=self.output)

    @contextmanager
    def _naming(
        self, one: BoundAggregate, epoch: int, keys: pa.Table, which: Rows | None = None
    ) -> Iterator[None]:
        """Let a result that outgrew its type name its key, and a faulty aggregate itself."""
        try:
            yield
        except TooWideError as error:
            index = error.index if which is None else int(which[error.index])
            (key,) = elements(keys.slice(index, 1), "Key")
            cause = f"{one.name} = {one.aggregate} outgrew its type, {error.kind}"
            raise OperatorError(self.name, repr(key), cause, epoch=epoch) from None
        except _UnexpectedColumnsError as error:
            cause = f"{one.name} = {one.aggregate} returned {error}"
            raise OperatorError(self.name, "?", cause, epoch=epoch) from None


class _UnexpectedColumnsError(Exception):
    """Columns that an aggregate returned are not those that it announced."""


def _checked(columns: Columns, types: Iterable[pa.DataType], rows: int) -> Columns:
    found, expected = [column.type for column in columns], list(types)
    if found != expected:
        raise _UnexpectedColumnsError(f"columns of types {found}, and it announced {expected}")
    for column in columns:
        if len(column) != rows:
            raise _UnexpectedColumnsError(f"{len(column)} rows for {rows} groups")
    return columns


def _bind(name: str, function: Aggregate, input: pa.Schema, time: str | None) -> BoundAggregate:
    if not isinstance(function, Aggregate):
        raise ConfigError(f"'{name}' must be a function such as count(), not {function!r}")
    read = [definition.find(str(function), column, input) for column in function.columns]
    if time is not None and time not in function.columns:
        read.append(input.field(time))
    try:
        return BoundAggregate.of(name, function, AggregateInput(pa.schema(read), time))
    except ConfigError as error:
        raise ConfigError(f"{name} = {function}: {error}") from None
