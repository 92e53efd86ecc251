"""Aggregates over windows of event time, whose results come when the window closes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates.base import Aggregate
from godwit.errors import ConfigError
from godwit.model.description import OperatorDescription
from godwit.model.keys import flat
from godwit.model.time import Duration
from godwit.operators import definition
from godwit.operators.aggregate import TABLE, AggregateOperator
from godwit.operators.base import Changes, Hashes, Horizon, TableView, TimedView
from godwit.operators.due_keys import deletions, due_keys, in_order, keys_not_among, rows_where
from godwit.operators.windows import END, START, TIME, Sliding, Window
from godwit.operators.wrapper import Wrapper
from godwit.state.table import HASH, UPSERT, TableSpec
from godwit.state.timed import Moments, moments, timed_spec, waiting

CLOSING: Final = "_closing"


@dataclass(frozen=True)
class Closing(Wrapper):
    """`of`, an aggregate by key and window, whose outputs come when the watermark reaches a
    window's end."""

    of: AggregateOperator
    window: Window
    kind: ClassVar[str]

    @cached_property
    def output(self) -> pa.Schema:
        last = self.of.output.get_field_index(END)
        return self.of.output.insert(last + 1, self.of.output.field(END).with_name(TIME))

    def describe(self) -> OperatorDescription:
        described = definition.describe(self.kind, self.key, self.tables, self.output)
        functions = self.of.describe().functions
        return replace(described, functions=functions, window=str(self.window))

    def _outputs(self, epoch: int, closed: pa.Table) -> pa.Table:
        """The results of windows, those that ended first at the beginning."""
        ends = moments(closed.column(END))
        results = self.of.results(epoch, closed.take(pa.array(np.argsort(ends, kind="stable"))))
        last = pc.subtract(results.column(END), pa.scalar(1, pa.duration("us")))
        place = self.of.output.get_field_index(END) + 1
        return results.add_column(place, TIME, last).cast(self.output)


@dataclass(frozen=True)
class Windowed(Closing):
    """A row of state for each key and window.

    A record is late if its window has closed.
    """

    window: Sliding
    kind: ClassVar[str] = "windows"

    @classmethod
    def define(
        cls,
        name: str,
        key: str | Sequence[str],
        functions: Mapping[str, Aggregate],
        input: pa.Schema,
        window: Sliding,
        *,
        time: str | None,
        delay: Duration | None,
    ) -> Self:
        """Over records of schema `input`, which have the columns of their window already."""
        keys = [*([key] if isinstance(key, str) else key), START, END]
        operator = AggregateOperator.of(name, keys, functions, input, time=time, delay=delay)
        return cls(operator, window)

    @property
    def horizon(self) -> Horizon:
        return Horizon(END)

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        return *self.of.tables, timed_spec(CLOSING, self.key, pa.schema([]))

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        view, closing = state[TABLE], cast(TimedView, state[CLOSING])
        spec = self.of.tables[0]
        known, rows = np.empty(0, np.bool_), spec.schema.empty_table()
        if records.num_rows:
            known, rows = self.of.fold(epoch, hashes, records, view)
        hash, ends = flat(rows.column(HASH)).to_numpy(), moments(rows.column(END))
        until = closing.span.until
        ending = np.zeros(len(ends), np.bool_) if until is None else ends <= until
        others, keys = keys_not_among(due_keys(closing), hash, rows.select(self.key.names))
        closed = pa.concat_tables([rows_where(rows, ending), _stored(view, others, keys)])
        gone = rows_where(rows, ending & known)
        begun = ~known & ~ending
        return Changes(
            {
                TABLE: in_order(
                    rows_where(rows, ~ending),
                    deletions(spec, hash[ending & known], gone.select(self.key.names)),
                    deletions(spec, others, keys),
                ),
                CLOSING: waiting(
                    closing.spec,
                    epoch,
                    hash[begun],
                    ends[begun],
                    rows_where(rows, begun).select(self.key.names),
                    pa.table({}),
                ),
            },
            self._outputs(epoch, closed),
        )


def check_merges(operator: AggregateOperator, why: str) -> None:
    """Refuse an aggregate whose states cannot be merged."""
    for one in operator.aggregates:
        if not one.merges:
            with definition.defining(operator.name):
                raise ConfigError(
                    f"{one.name} = {one.aggregate}: {why} its states, and it has no merge; define "
                    "it, or collect the records with `windows`"
                )


def times(moments: Moments, kind: pa.DataType) -> pa.Array:
    """A column of timestamps; the opposite of `moments`."""
    return pa.array(moments).view(pa.timestamp("us")).cast(kind)


def _stored(view: TableView, hashes: Hashes, keys: pa.Table) -> pa.Table:
    """The rows of windows that no record of the epoch is for."""
    there, values = view.get(hashes, keys)
    ops = np.full(len(hashes), UPSERT, np.int8)
    columns = [pa.array(hashes), pa.array(ops), *keys.columns, *values.columns]
    return rows_where(pa.table(columns, schema=view.spec.schema), there)
