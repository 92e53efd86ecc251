"""Windows that aggregate, or call a function when they close: which operator keeps what of them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from godwit.aggregates.base import Aggregate
from godwit.errors import ConfigError
from godwit.model.schema import to_ddl
from godwit.model.time import Duration
from godwit.operators.base import Horizon
from godwit.operators.definition import check_window_time, column_names, defining, find
from godwit.operators.event_machine import EventMachine
from godwit.operators.forms import Form, List, Value
from godwit.operators.panes import Panes, pane
from godwit.operators.sessions import Sessions
from godwit.operators.state_machine import StateMachine
from godwit.operators.user_function import check_function
from godwit.operators.windowed import Windowed
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
from godwit.spark.node import Step
from godwit.spark.windows import Assign, AssignPane, Lasting


def aggregated(
    schema: pa.Schema,
    name: str,
    window: Window,
    key: str | Sequence[str],
    functions: Mapping[str, Aggregate],
    time: str | None,
    delay: Duration | None,
) -> Sequence[Step]:
    """An operator that aggregates the records of windows, with what has to be done to records of
    `schema` before."""
    with defining(name):
        keys = column_names("key", key)
        if not isinstance(window, Sliding | Session):
            raise ConfigError(
                f"{window!r} does not aggregate; give tumbling, sliding or session, or see "
                "`windows`"
            )
        check_window_time(time, delay, schema)
        assert time is not None
        assert delay is not None
        if isinstance(window, Session) and isinstance(window.gap, str):
            _check_until(window.gap, time, keys, schema)
    options: dict[str, Any] = {"time": time, "delay": delay}
    if isinstance(window, Session):
        before = [Lasting(time, window.gap)] if isinstance(window.gap, str) else []
        return [*before, Sessions.define(name, keys, functions, schema, window, **options)]
    overlapping = window.slide < window.length
    assign = AssignPane(time, window, pane(window)) if overlapping else Assign(time, window)
    define = (Panes if overlapping else Windowed).define
    return [assign, define(name, keys, functions, assign.columns(schema), window, **options)]


def collect(
    schema: pa.Schema,
    name: str,
    window: Window,
    key: str | Sequence[str],
    apply: Callable[[Any, Any, Any], Any],
    output: str,
    time: str | None,
    delay: Duration | None,
) -> Sequence[Step]:
    """An operator that keeps the records of windows and applies a function to each that closes,
    with what has to be done to records of `schema` before."""
    before: list[Step] = []
    with defining(name):
        keys = column_names("key", key)
        check_function(apply)
        if isinstance(window, Counted):
            if delay is not None:
                raise ConfigError("a counted window has no event time; leave the delay out")
        else:
            check_window_time(time, delay, schema)
            if time in keys:
                raise ConfigError(f"its time '{time}' cannot be in the key")
        if isinstance(window, Session) and isinstance(window.gap, str):
            _check_until(window.gap, time or "", keys, schema)
            before = [Lasting(time or "", window.gap)]
    if isinstance(window, Sliding):
        assign = Assign(time or "", window)
        before, schema = [assign], assign.columns(schema)
        keys += [START, END]
    kept = [field for field in schema if field.name not in keys]
    columns = tuple(field.name for field in kept)
    records = List(to_ddl(pa.schema([field.with_nullable(True) for field in kept])))
    if isinstance(window, Counted):
        counting = ApplyCounted(apply, columns, window.records)
        state: dict[str, Form] = {"records": records, "open": Value("records long")}
        return [StateMachine.of(name, key, counting, state, output, schema, time=time)]
    assert time is not None
    assert delay is not None
    if isinstance(window, Session):
        moment = to_ddl(pa.schema([pa.field("notice", schema.field(time).type)]))
        gap = (
            columns.index(window.gap)
            if isinstance(window.gap, str)
            else timedelta(microseconds=window.gap)
        )
        function: Any = ApplySession(apply, columns, gap, columns.index(time))
        open, horizon = {"next": Value(moment)}, None
    else:
        function, open, horizon = (
            ApplySliding(apply, columns, tuple(keys[:-2])),
            {"open": Value("yes boolean")},
            Horizon(END, slide=window.slide),
        )
    machine = EventMachine.of(
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
    return [*before, machine]


def _check_until(until: str, time: str, keys: Sequence[str], input: pa.Schema) -> None:
    """Refuse a column that cannot say until when a record keeps its session open."""
    if until in keys:
        raise ConfigError(f"its column '{until}' cannot be in the key")
    kind, wanted = find("until", until, input).type, input.field(time).type
    if kind != wanted:
        raise ConfigError(f"column '{until}' is {kind}; it must be {wanted}, as '{time}' is")
