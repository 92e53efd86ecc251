"""What windows and two inputs need before an operator: once as DataFrame code, once for Arrow.

Both ways give the same rows; Arrow's is for simulations, which have no Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from godwit.errors import ConfigError
from godwit.model.keys import Mask, flat
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

    Those of an earlier operator are replaced; `keeping` them, they have other names from then on. A
    record without a time is in no window, and comes once.
    """

    time: str
    window: Sliding
    keeping: bool = False

    def __call__(self, rows: DataFrame) -> DataFrame:
        length, slide = (f"{n} microseconds" for n in (self.window.length, self.window.slide))
        time, given = _or_zero(rows, self.time), column(self.time).isNotNull()
        spans = sf.window(time, length, slide)
        placed = rows.select("*", spans.alias("_window"))
        if self.window.slide < self.window.length:
            placed = placed.where(given | (sf.col("_window.start") == _zero(rows, self.time)))
        return placed.select(
            *_renamed(rows.columns, keeping=self.keeping),
            sf.when(given, sf.col("_window.start")).alias(START),
            sf.when(given, sf.col("_window.end")).alias(END),
        )

    def columns(self, schema: pa.Schema) -> pa.Schema:
        names = given_names(schema.names)
        kept = [field for field in schema if field.name not in names]
        if self.keeping:
            kept = [field.with_name(names.get(field.name, field.name)) for field in schema]
        kind = schema.field(self.time).type
        return pa.schema([*kept, pa.field(START, kind), pa.field(END, kind)])

    def records(self, rows: pa.Table) -> pa.Table:
        length, slide = self.window.length, self.window.slide
        times, given = _moments(rows.column(self.time))
        back = np.arange(-(-length // slide)) * slide
        starts = (times - times % slide)[:, None] - back
        within = (times[:, None] < starts + length) & (given[:, None] | (starts == 0))
        index, which = np.nonzero(within)
        chosen = starts[index, which]
        spans = {START: chosen, END: chosen + length}
        return self.placed(rows.take(pa.array(index)), spans, given[index])

    def placed(
        self, rows: pa.Table, spans: Mapping[str, npt.NDArray[np.int64]], given: Mask
    ) -> pa.Table:
        """Rows with these columns, null where there is no time."""
        kind, names = rows.schema.field(self.time).type, given_names(rows.column_names)
        columns = {names.get(name, name): rows.column(name) for name in rows.column_names}
        columns |= {name: pa.array(at, mask=~given).cast(kind) for name, at in spans.items()}
        schema = self.columns(rows.schema)
        return pa.table([columns[name] for name in schema.names], schema=schema)


@dataclass(frozen=True, slots=True)
class AssignPane:
    """Gives each record the columns `window_start`, where its pane begins, and `window_end`, where
    the last of its windows ends; otherwise like `Assign`. The length of panes is in microseconds.
    """

    time: str
    window: Sliding
    pane: int
    keeping: bool = False

    def __call__(self, rows: DataFrame) -> DataFrame:
        time, given = _or_zero(rows, self.time), column(self.time).isNotNull()
        spans = ((self.pane, "_pane"), (self.window.slide, "_last"))
        placed = rows
        for length, name in spans:  # Spark takes one in a select
            span = sf.window(time, f"{length} microseconds")
            placed = placed.select("*", span.alias(name))
        return placed.select(
            *_renamed(rows.columns, keeping=self.keeping),
            sf.when(given, sf.col("_pane.start")).alias(START),
            sf.when(given, self._later(rows, sf.col("_last.start"))).alias(END),
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
        return self._like.columns(schema)

    def records(self, rows: pa.Table) -> pa.Table:
        times, given = _moments(rows.column(self.time))
        starts, last = times - times % self.pane, times - times % self.window.slide
        return self._like.placed(rows, {START: starts, END: last + self.window.length}, given)

    @property
    def _like(self) -> Assign:
        return Assign(self.time, self.window, self.keeping)


def given_names(columns: Sequence[str]) -> dict[str, str]:
    """What the columns are called that windows replace, if they are kept."""
    return {name: f"_given_{name}" for name in (START, END) if name in columns}


def _renamed(columns: Sequence[str], *, keeping: bool) -> list[Column]:
    names = given_names(columns)
    return [
        column(name).alias(names.get(name, name))
        for name in columns
        if keeping or name not in names
    ]


def _zero(rows: DataFrame, time: str) -> Column:
    """1970 in the type of a column."""
    kind = rows.schema[time].dataType
    if isinstance(kind, TimestampType):
        return sf.timestamp_micros(sf.lit(0))
    return sf.lit("1970-01-01 00:00:00").cast(kind)


def _or_zero(rows: DataFrame, time: str) -> Column:
    """Without nulls: Spark leaves out records that are in no window."""
    return sf.coalesce(column(time), _zero(rows, time))


def _moments(times: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], Mask]:
    """Times in microseconds, zero where there is none; and where there is one."""
    micros, given = flat(times).cast(pa.int64()), flat(times).is_valid()
    return micros.fill_null(0).to_numpy(), given.to_numpy(zero_copy_only=False)


@dataclass(frozen=True, slots=True)
class Lasting:
    """Leaves out records that are in no session: those with no time `until`, after their own."""

    time: str
    until: str

    def __call__(self, rows: DataFrame) -> DataFrame:
        time = column(self.time)
        return rows.where(time.isNull() | (column(self.until) > time))

    def columns(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def records(self, rows: pa.Table) -> pa.Table:
        time = rows.column(self.time)
        return rows.filter(pc.or_kleene(time.is_null(), pc.greater(rows.column(self.until), time)))


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
