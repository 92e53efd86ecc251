"""Windows that call a function when they close: which operator keeps their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from godwit.errors import ConfigError
from godwit.model.schema import to_ddl
from godwit.model.time import Duration
from godwit.operators.definition import check_window_time, defining, find
from godwit.operators.event_machine import EventMachine
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
from godwit.spark.types import to_arrow
from godwit.spark.windows import Assign, Lasting

if TYPE_CHECKING:
    from godwit.api.stream import Stream


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
