"""Folding the records of each key with functions that numpy computes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from godwit.errors import ConfigError, OperatorError
from godwit.model.schema import check_names, to_ddl
from godwit.operators import definition
from godwit.operators.base import Changes, Hashes, TableView
from godwit.operators.bind import bind
from godwit.operators.convert import elements
from godwit.operators.folds import Batch, Fold, Timed
from godwit.operators.functions import Function
from godwit.operators.wide import TooWideError
from godwit.state.keys import distinct, flat
from godwit.state.table import UPSERT, TableSpec

TABLE = "value"


@dataclass(frozen=True)
class Aggregate:
    """One row of results for each key, and an output row for each key of an epoch."""

    name: str
    key: pa.Schema
    functions: Mapping[str, Function]
    folds: Mapping[str, Fold]
    time: str | None

    @classmethod
    def of(
        cls,
        name: str,
        key: str | Sequence[str],
        functions: Mapping[str, Function],
        input: pa.Schema,
        *,
        time: str | None = None,
    ) -> Self:
        """The aggregate over records of schema `input`, whose results `functions` names.

        >>> from godwit.operators.functions import avg, count
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
            self = cls(name, definition.key_schema(key, input), dict(functions), folds, time)
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

    @property
    def columns(self) -> tuple[str, ...]:
        read = [function.column for function in self.functions.values()]
        return tuple(dict.fromkeys(c for c in (*self.key.names, self.time, *read) if c is not None))

    @cached_property
    def output(self) -> pa.Schema:
        results = [pa.field(name, fold.output) for name, fold in self.folds.items()]
        return pa.schema([*self.key, *results])

    @property
    def ordered(self) -> bool:
        return any(fold.ordered for fold in self.folds.values())

    def describe(self) -> dict[str, Any]:
        functions = {
            name: f"{function} by {self.time}" if isinstance(fold, Timed) else str(function)
            for (name, function), fold in zip(
                self.functions.items(), self.folds.values(), strict=True
            )
        }
        described = definition.describe("aggregate", self.key, self.tables, self.output)
        return described | {"functions": functions}

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        if not records.num_rows:
            return Changes()
        groups = distinct(hashes, records.select(self.key.names), self.ordered)
        batch = Batch(records, groups)
        _, old = state[TABLE].get(groups.hashes, groups.keys)
        columns: list[pa.Array] = []
        results: list[pa.Array] = []
        for name, fold in self.folds.items():
            try:
                new = fold.fold(batch, [flat(old.column(name + suffix)) for suffix in fold.state])
                results.append(fold.result(new))
            except TooWideError as error:
                (key,) = elements(groups.keys.slice(error.index, 1), "Key")
                cause = f"{name} = {self.functions[name]} outgrew its type, {error.kind}"
                raise OperatorError(self.name, repr(key), cause, epoch=epoch) from None
            columns += new
        ops = np.full(len(groups.hashes), UPSERT, np.int8)
        delta = [pa.array(groups.hashes), pa.array(ops), *groups.keys.columns, *columns]
        return Changes(
            {TABLE: pa.table(delta, schema=self.tables[0].schema)},
            pa.table([*groups.keys.columns, *results], schema=self.output),
        )


def _fold(column: str, function: Function, input: pa.Schema, time: pa.Field | None) -> Fold:
    if not isinstance(function, Function):
        raise ConfigError(f"'{column}' must be a function such as count(), not {function!r}")
    if function.column is not None:
        definition.find(str(function), function.column, input)
    try:
        return bind(function, input, time)
    except ConfigError as error:
        raise ConfigError(f"{column} = {function}: {error}") from None
