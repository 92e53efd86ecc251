"""Folding the records of each key with functions that numpy computes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from godwit.aggregates import prefold as prefolding
from godwit.aggregates.bind import bind
from godwit.aggregates.folds import Batch, Fold, TimedFold
from godwit.aggregates.functions import Function
from godwit.aggregates.int128 import TooWideError
from godwit.errors import ConfigError, OperatorError
from godwit.model.description import OperatorDescription
from godwit.model.schema import check_names, to_ddl
from godwit.model.time import Duration
from godwit.operators import definition
from godwit.operators.base import Changes, Hashes, Prefold, TableView
from godwit.operators.convert import elements
from godwit.state.keys import Mask, distinct, flat
from godwit.state.table import UPSERT, TableSpec

TABLE = "value"


@dataclass(frozen=True)
class Aggregate:
    """One row of results for each key, and an output row for each key of an epoch."""

    name: str
    key: pa.Schema
    functions: Mapping[str, Function]
    folds: Mapping[str, Fold]
    input: pa.Schema
    time: str | None
    delay: int | None = None
    inputs: ClassVar[int] = 1

    @classmethod
    def of(
        cls,
        name: str,
        key: str | Sequence[str],
        functions: Mapping[str, Function],
        input: pa.Schema,
        *,
        time: str | None = None,
        delay: Duration | None = None,
    ) -> Self:
        """The aggregate over records of schema `input`, whose results `functions` names.

        >>> from godwit.aggregates.functions import avg, count
        >>> schema = pa.schema({"word": pa.string(), "length": pa.int32()})
        >>> words = Aggregate.of("words", "word", {"n": count(), "mean": avg("length")}, schema)
        >>> words.output.names, words.tables[0].value.names
        (['word', 'n', 'mean'], ['n', 'mean_sum', 'mean_count'])
        """
        with definition.defining(name):
            if not functions:
                raise ConfigError("it computes nothing; give it at least one function")
            moment = definition.time_field(time, input)
            folds = {
                column: _fold(column, function, input, moment)
                for column, function in functions.items()
            }
            keys = definition.key_schema(key, input)
            read = [*keys.names, time, *(function.column for function in functions.values())]
            used = pa.schema([input.field(c) for c in dict.fromkeys(read) if c is not None])
            allowed = definition.watermark_delay(moment, delay)
            self = cls(name, keys, dict(functions), folds, used, time, allowed)
            definition.check_table(self.tables[0])
            check_names(self.output)
            to_ddl(self.output)
            return self

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        columns = [
            pa.field(name + suffix, kind)
            for name, fold in self.folds.items()
            for suffix, kind in fold.state.items()
        ]
        return (TableSpec(TABLE, self.key, pa.schema([]), pa.schema(columns)),)

    @cached_property
    def output(self) -> pa.Schema:
        results = [pa.field(name, fold.output) for name, fold in self.folds.items()]
        return pa.schema([*self.key, *results])

    @property
    def horizon(self) -> tuple[str, int]:
        return definition.own_time(self.time)

    @property
    def ordered(self) -> bool:
        return any(fold.ordered for fold in self.folds.values())

    @cached_property
    def prefold(self) -> Prefold | None:
        found = list(zip(self.functions.items(), self.folds.values(), strict=True))
        if not all(
            prefolding.is_possible(function, fold, self.input) for (_, function), fold in found
        ):
            return None
        functions = {
            column: part
            for (name, function), fold in found
            for column, part in prefolding.functions(name, function, fold).items()
        }
        time = None if self.delay is None else self.time
        kept = [self.input.field(name) for name in dict.fromkeys([*self.key.names, time]) if name]
        state = self.tables[0].value
        partial = [field.with_name(prefolding.partial_column(field.name)) for field in state]
        folded = replace(
            self,
            folds={name: prefolding.merging(name, fold) for name, fold in self.folds.items()},
            input=pa.schema([*kept, *partial, (definition.RECORDS, pa.int64())]),
            time=time,
        )
        return Prefold(functions, folded)

    def describe(self) -> OperatorDescription:
        functions = {
            name: f"{function} by {self.time}" if isinstance(fold, TimedFold) else str(function)
            for (name, function), fold in zip(
                self.functions.items(), self.folds.values(), strict=True
            )
        }
        described = definition.describe("aggregate", self.key, self.tables, self.output)
        return replace(described, functions=functions)

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
        batch = Batch(records, groups)
        found, old = view.get(groups.hashes, groups.keys)
        ops = np.full(len(groups.hashes), UPSERT, np.int8)
        columns = [pa.array(groups.hashes), pa.array(ops), *groups.keys.columns]
        for name, fold in self.folds.items():
            with self._naming(name, epoch, groups.keys):
                before = [flat(old.column(name + suffix)) for suffix in fold.state]
                columns += fold.fold(batch, before)
        return found, pa.table(columns, schema=self.tables[0].schema)

    def results(self, epoch: int, rows: pa.Table) -> pa.Table:
        """Keys and results of rows of the state."""
        keys = rows.select(self.key.names)
        columns = keys.columns
        for name, fold in self.folds.items():
            with self._naming(name, epoch, keys):
                parts = [flat(rows.column(name + suffix)) for suffix in fold.state]
                columns.append(fold.result(parts))
        return pa.table(columns, schema=self.output)

    @contextmanager
    def _naming(self, name: str, epoch: int, keys: pa.Table) -> Iterator[None]:
        """Let a result that outgrew its type name its key."""
        try:
            yield
        except TooWideError as error:
            (key,) = elements(keys.slice(error.index, 1), "Key")
            cause = f"{name} = {self.functions[name]} outgrew its type, {error.kind}"
            raise OperatorError(self.name, repr(key), cause, epoch=epoch) from None


def _fold(column: str, function: Function, input: pa.Schema, time: pa.Field | None) -> Fold:
    if not isinstance(function, Function):
        raise ConfigError(f"'{column}' must be a function such as count(), not {function!r}")
    if function.column is not None:
        definition.find(str(function), function.column, input)
    try:
        return bind(function, input, time)
    except ConfigError as error:
        raise ConfigError(f"{column} = {function}: {error}") from None
