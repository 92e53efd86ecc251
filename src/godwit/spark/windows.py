"""What windows and two inputs need of Spark: DataFrame code before an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from godwit.errors import ConfigError
from godwit.model.schema import to_ddl
from godwit.model.time import Duration
from godwit.operators.definition import INPUT, check_window_time, defining, find
from godwit.operators.event_machine import EventMachine
from godwit.operators.events import Side
from godwit.operators.forms import List, Value
from godwit.operators.windows import (
    END,
    START,
    ApplyCounted,
    ApplySession,
    ApplySliding,
    Counted,
    Session,
    Sliding,
    Window,
)
from godwit.spark.route import column
from godwit.spark.types import to_arrow

if TYPE_CHECKING:
    from godwit.spark.stream import Stream


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


@dataclass(frozen=True, slots=True)
class Lasting:
    """Leaves out records that are in no session: those without a time `until`, after their own."""

    time: str
    until: str

    def __call__(self, rows: DataFrame) -> DataFrame:
        return rows.where(column(self.until) > column(self.time))


def side_by_side(
    left: DataFrame, right: DataFrame, shared: Sequence[str]
) -> tuple[DataFrame, tuple[Side, ...]]:
    """Two inputs as one, whose column `_input` says which; each has its own columns besides those
    that both share."""
    for name in shared:
        kinds = []
        for rows in (left, right):
            if name not in rows.columns:
                raise ConfigError(f"column '{name}' is not in both inputs")
            kinds.append(rows.schema[name].dataType)
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"column '{name}' is {kinds[0].simpleString()} on the left and "
                f"{kinds[1].simpleString()} on the right; cast one of them"
            )
    time = shared[-1]
    inputs, sides = [], []
    for number, (kind, rows) in enumerate((("left", left), ("right", right))):
        own = {f"{kind}_{name}": name for name in rows.columns if name not in shared}
        inputs.append(
            rows.select(
                sf.lit(number).cast("tinyint").alias(INPUT),
                *map(column, shared),
                *(column(name).alias(alias) for alias, name in own.items()),
            )
        )
        sides.append(Side(kind, {time: time, **own}))
    return inputs[0].unionByName(inputs[1], allowMissingColumns=True), tuple(sides)


def collect(
    stream: Stream,
    name: str,
    window: Window,
    key: str | Sequence[str],
    apply: Callable[[Any, Any, Any], Any],
    output: str,
    time: str | None,
    delay: Duration | None,
) -> Stream:
    """An operator that keeps the records of windows and applies a function to each that closes."""
    keys = [key] if isinstance(key, str) else list(key)
    schema = to_arrow(stream.schema)
    with defining(name):
        if isinstance(window, Counted):
            if delay is not None:
                raise ConfigError("a counted window has no event time; leave the delay out")
        else:
            check_window_time(time, delay, schema)
            if time in keys:
                raise ConfigError(f"its time '{time}' cannot be in the key")
        if isinstance(window, Session) and isinstance(window.gap, str):
            _check_until(window.gap, time or "", keys, schema)
            stream = stream.transform(Lasting(time or "", window.gap))
    if isinstance(window, Sliding):
        stream = stream.transform(Assign(time or "", window))
        schema = to_arrow(stream.schema)
        keys += [START, END]
    kept = [field for field in schema if field.name not in keys]
    columns = tuple(field.name for field in kept)
    records = List(to_ddl(pa.schema([field.with_nullable(True) for field in kept])))
    if isinstance(window, Counted):
        return stream.state_machine(
            name,
            key=key,
            function=ApplyCounted(apply, columns, window.records),
            state={"records": records, "open": Value("records long")},
            output=output,
            time=time,
        )
    assert time is not None
    assert delay is not None
    if isinstance(window, Session):
        moment = stream.schema[time].dataType.simpleString()
        gap = (
            columns.index(window.gap)
            if isinstance(window.gap, str)
            else timedelta(microseconds=window.gap)
        )
        function: Any = ApplySession(apply, columns, gap, columns.index(time))
        open, horizon = {"next": Value(f"notice {moment}")}, None
    else:
        function, open, horizon = (
            ApplySliding(apply, columns, tuple(keys[:-2])),
            {"open": Value("yes boolean")},
            (END, 0),
        )
    return stream.then(
        EventMachine.of(
            name,
            keys,
            function,
            {"records": records, **open},
            output,
            schema,
            time=time,
            delay=delay,
            notices="",
            horizon=horizon,
            window=str(window),
        )
    )


def _check_until(until: str, time: str, keys: Sequence[str], input: pa.Schema) -> None:
    """Refuse a column that cannot say until when a record keeps its session open."""
    if until in keys:
        raise ConfigError(f"its column '{until}' cannot be in the key")
    kind, wanted = find("until", until, input).type, input.field(time).type
    if kind != wanted:
        raise ConfigError(f"column '{until}' is {kind}; it must be {wanted}, as '{time}' is")
