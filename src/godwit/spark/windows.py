"""What windows and two inputs need before an operator: once as DataFrame code, once for Arrow.

Both ways give the same rows; Arrow's is for simulations, which have no Spark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from godwit.errors import ConfigError
from godwit.model.keys import flat
from godwit.model.schema import to_ddl
from godwit.operators.definition import INPUT
from godwit.operators.events import Side
from godwit.operators.windows import END, START, Sliding
from godwit.spark.route import column
from godwit.worker.work import plain


@runtime_checkable
class Preparation(Protocol):
    """A step of our own, which needs no Spark, over one input or several."""

    def __call__(self, *rows: DataFrame) -> DataFrame: ...

    def columns(self, *schemas: pa.Schema) -> pa.Schema:
        """The columns that come out, of records of `schemas`."""
        ...

    def records(self, *rows: pa.Table) -> pa.Table:
        """The rows that come out."""
        ...


@dataclass(frozen=True, slots=True)
class Assign:
    """Gives each record the columns `window_start` and `window_end`, once for each of its windows.

    Those of an earlier operator are replaced. Without a time a record is in no window.
    """

    time: str
    window: Sliding

    def __call__(self, rows: DataFrame) -> DataFrame:
        length, slide = (f"{n} microseconds" for n in (self.window.length, self.window.slide))
        spans = sf.window(column(self.time), length, slide)
        return rows.select("*", spans.alias("_window")).select(
            *(column(name) for name in rows.columns if name not in (START, END)),
            sf.col("_window.start").alias(START),
            sf.col("_window.end").alias(END),
        )

    def columns(self, schema: pa.Schema) -> pa.Schema:
        kept = [field for field in schema if field.name not in (START, END)]
        kind = schema.field(self.time).type
        return pa.schema([*kept, pa.field(START, kind), pa.field(END, kind)])

    def records(self, rows: pa.Table) -> pa.Table:
        length, slide = self.window.length, self.window.slide
        rows = rows.filter(pc.is_valid(rows.column(self.time)))
        times = flat(rows.column(self.time)).cast(pa.int64()).to_numpy(zero_copy_only=False)
        back = np.arange(-(-length // slide)) * slide
        starts = (times - times % slide)[:, None] - back
        index, which = np.nonzero(times[:, None] < starts + length)
        kind, chosen = rows.schema.field(self.time).type, starts[index, which]
        taken = rows.take(pa.array(index))
        spans = {START: chosen, END: chosen + length}
        columns = {name: taken.column(name) for name in rows.column_names if name not in spans}
        columns |= {name: pa.array(moments).cast(kind) for name, moments in spans.items()}
        return pa.table(columns, schema=self.columns(rows.schema))


@dataclass(frozen=True, slots=True)
class AssignPane:
    """Gives each record the columns `window_start`, where its pane begins, and `window_end`, where
    the last of its windows ends; otherwise like `Assign`. The length of panes is in microseconds.
    """

    time: str
    window: Sliding
    pane: int

    def __call__(self, rows: DataFrame) -> DataFrame:
        spans = ((self.pane, "_pane"), (self.window.slide, "_last"))
        placed = rows
        for length, name in spans:  # Spark takes one in a select
            span = sf.window(column(self.time), f"{length} microseconds")
            placed = placed.select("*", span.alias(name))
        return placed.select(
            *(column(name) for name in rows.columns if name not in (START, END)),
            sf.col("_pane.start").alias(START),
            self._later(rows, sf.col("_last.start")).alias(END),
        )

    def _later(self, rows: DataFrame, moment: Column) -> Column:
        """The length of a window later; without a time zone, in which a day may have 23 hours."""
        length = self.window.length
        if isinstance(rows.schema[self.time].dataType, TimestampType):
            return sf.timestamp_micros(sf.unix_micros(moment) + sf.lit(length))
        seconds, micros = divmod(length, 1_000_000)
        later = sf.make_dt_interval(secs=sf.expr(f"{seconds}.{micros:06d}BD"))
        return moment + later

    def columns(self, schema: pa.Schema) -> pa.Schema:
        return Assign(self.time, self.window).columns(schema)

    def records(self, rows: pa.Table) -> pa.Table:
        rows = rows.filter(pc.is_valid(rows.column(self.time)))
        times = flat(rows.column(self.time)).cast(pa.int64()).to_numpy(zero_copy_only=False)
        kind, slide = rows.schema.field(self.time).type, self.window.slide
        starts, ends = times - times % self.pane, times - times % slide
        columns = {name: rows.column(name) for name in rows.column_names}
        columns |= {START: pa.array(starts).cast(kind)}
        columns |= {END: pa.array(ends + self.window.length).cast(kind)}
        schema = self.columns(rows.schema)
        return pa.table([columns[name] for name in schema.names], schema=schema)


@dataclass(frozen=True, slots=True)
class Lasting:
    """Leaves out records that are in no session: those without a time `until`, after their own."""

    time: str
    until: str

    def __call__(self, rows: DataFrame) -> DataFrame:
        return rows.where(column(self.until) > column(self.time))

    def columns(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def records(self, rows: pa.Table) -> pa.Table:
        return rows.filter(pc.greater(rows.column(self.until), rows.column(self.time)))


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Two inputs as one, whose column `_input` says which; each has its own columns besides those
    that both share, of which the last is the time."""

    shared: Sequence[str]

    def __call__(self, left: DataFrame, right: DataFrame) -> DataFrame:
        inputs = [
            rows.select(
                sf.lit(number).cast("tinyint").alias(INPUT),
                *map(column, self.shared),
                *(column(name).alias(alias) for alias, name in self._own(kind, rows.columns)),
            )
            for number, (kind, rows) in enumerate((("left", left), ("right", right)))
        ]
        return inputs[0].unionByName(inputs[1], allowMissingColumns=True)

    def columns(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """The columns of both; refuses inputs that do not share what they must."""
        shared = []
        for name in self.shared:
            fields = [input.field(name) for input in (left, right) if name in input.names]
            if len(fields) < 2:
                raise ConfigError(f"column '{name}' is not in both inputs")
            if fields[0].type != fields[1].type:
                plain = [pa.schema([field.with_nullable(True)]) for field in fields]
                kinds = [to_ddl(one).removeprefix(f"`{name}` ") for one in plain]
                raise ConfigError(
                    f"column '{name}' is {kinds[0]} on the left and {kinds[1]} on the right; cast "
                    "one of them"
                )
            shared.append(fields[0].with_nullable(any(field.nullable for field in fields)))
        own = [
            pa.field(alias, input.field(name).type)
            for kind, input in (("left", left), ("right", right))
            for alias, name in self._own(kind, input.names)
        ]
        return pa.schema([pa.field(INPUT, pa.int8(), nullable=False), *shared, *own])

    def sides(self, schema: pa.Schema) -> tuple[Side, ...]:
        """Of records that are side by side: where the columns of each input are."""
        return tuple(
            Side(
                kind,
                {
                    self.shared[-1]: self.shared[-1],
                    **{
                        alias: alias.removeprefix(f"{kind}_")
                        for alias in schema.names[1 + len(self.shared) :]
                        if alias.startswith(f"{kind}_")
                    },
                },
            )
            for kind in ("left", "right")
        )

    def records(self, left: pa.Table, right: pa.Table) -> pa.Table:
        schema = self.columns(left.schema, right.schema)
        both = []
        for number, (kind, rows) in enumerate((("left", left), ("right", right))):
            names = {name: name for name in self.shared} | dict(self._own(kind, rows.column_names))
            columns = {alias: rows.column(name) for alias, name in names.items()}
            columns[INPUT] = pa.array(np.full(rows.num_rows, number, np.int8))
            missing = {field.name: pa.nulls(rows.num_rows, field.type) for field in schema}
            both.append(pa.table(missing | columns, schema=schema))
        return pa.concat_tables(both)

    def _own(self, kind: str, names: Sequence[str]) -> list[tuple[str, str]]:
        return [(f"{kind}_{name}", name) for name in names if name not in self.shared]


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of several inputs with the same columns, which may come in another order."""

    def __call__(self, *rows: DataFrame) -> DataFrame:
        return reduce(DataFrame.unionByName, rows)

    def columns(self, *schemas: pa.Schema) -> pa.Schema:
        first, *others = schemas
        for number, other in enumerate(others, start=2):
            for name in dict.fromkeys([*first.names, *other.names]):
                if (name in first.names) != (name in other.names):
                    has, lacks = (1, number) if name in first.names else (number, 1)
                    raise ConfigError(
                        f"union: column '{name}' is in stream {has}, but not in stream {lacks}; "
                        "select the same columns of each"
                    )
                kinds = [plain(schema.field(name).type) for schema in (first, other)]
                if kinds[0] != kinds[1]:
                    raise ConfigError(
                        f"union: column '{name}' is {kinds[0]} in stream 1 and {kinds[1]} in "
                        f"stream {number}; cast one of them"
                    )
        nullable = [any(schema.field(f.name).nullable for schema in schemas) for f in first]
        fields = zip(first, nullable, strict=True)
        return pa.schema([field.with_nullable(may_be_null) for field, may_be_null in fields])

    def records(self, *rows: pa.Table) -> pa.Table:
        first, *others = rows
        same = [other.select(first.column_names).cast(first.schema) for other in others]
        return pa.concat_tables([first, *same])
