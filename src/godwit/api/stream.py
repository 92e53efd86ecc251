"""Describing a query: records, stateful operators, DataFrame code, a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from godwit.aggregates.base import Aggregate
from godwit.api.job import Job
from godwit.api.windows import collect
from godwit.errors import ConfigError
from godwit.model.options import closest_name
from godwit.model.schema import parse
from godwit.model.time import Duration
from godwit.operators.aggregate import AggregateOperator
from godwit.operators.base import Operator
from godwit.operators.definition import check_window_time, defining
from godwit.operators.event_machine import EventMachine
from godwit.operators.expiring import Expiring
from godwit.operators.forms import Form
from godwit.operators.state_machine import StateMachine
from godwit.operators.windowed import Windowed
from godwit.operators.windows import Sliding, Window
from godwit.spark.epoch import Step, Transform
from godwit.spark.logical_plan import check_source, schema_after
from godwit.spark.sinks.sink import Sink
from godwit.spark.types import to_arrow, to_spark
from godwit.spark.windows import Assign, Preparation, SideBySide

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def stream(rows: DataFrame | str) -> Stream:
    """Begin a query over a streaming DataFrame, or over a schema.

    `rows` may be any streaming DataFrame without a stateful operator of Spark's own in it. With a
    schema such as "user string, at timestamp" the query can be tested without Spark, but not
    started.

    >>> import godwit as gw
    >>> def job(views):  # job(spark.readStream...) is deployed, job("user string") is tested
    ...     counts = gw.stream(views).aggregate("counts", key="user", n=gw.count())
    ...     return counts.to(gw.files("output"))
    >>> from godwit.testing import Simulation
    >>> simulation = Simulation(job("user string"))
    >>> simulation.feed([{"user": "ann"}])
    >>> simulation.outputs()
    [{'user': 'ann', 'n': 1}]
    """
    if isinstance(rows, str):
        schema = to_spark(parse(rows))
        return Stream(schema, None, (), schema)
    check_source(rows)
    return Stream(rows.schema, rows, (), rows.schema)


@dataclass(frozen=True, slots=True)
class Stream:
    """A query so far; every method returns a longer one and changes nothing.

    `_source` is the columns of its records, or two streams. `_rows` is what Spark reads, behind the
    DataFrame code before the first operator. Over a schema there are no rows, and once a step needs
    Spark, the columns that come out are not known either.

    >>> import godwit as gw
    >>> views = gw.stream("user string, url string, at timestamp")
    >>> views.aggregate("counts", key="user", n=gw.count(), last=gw.last("url"), time="at")
    <Stream through counts>
    """

    _source: StructType | Both
    _rows: DataFrame | None
    _steps: tuple[Step | Later, ...]
    _schema: StructType | None

    def __repr__(self) -> str:
        names = [step.name for step in self._steps if isinstance(step, Operator | Later)]
        return f"<Stream through {', '.join(names) or 'no operator'}>"

    def aggregate(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        time: str | None = None,
        delay: Duration | None = None,
        ttl: Duration | None = None,
        window: Sliding | None = None,
        **functions: Aggregate,
    ) -> Stream:
        """Fold the records of each key; the output is each changed key with its new results.

        `time` names the column that orders the records of a key for `first` and `last`. With a
        `delay` it is the event time: records that are further behind the newest one are late and
        dropped. A key without a record for `ttl` leaves the state. With a `window`, the output is
        each key and window, when the window closes.
        """
        with defining(name):
            for result, function in functions.items():
                _check_option(result, function)

        def define(input: pa.Schema) -> Sequence[Step]:
            if window is None:
                operator = AggregateOperator.of(name, key, functions, input, time=time, delay=delay)
                return [_expiring(operator, ttl)]
            with defining(name):
                if ttl is not None:
                    raise ConfigError("a window ends by itself; leave the ttl out")
                if not isinstance(window, Sliding):
                    raise ConfigError("only tumbling and sliding windows aggregate; see `windows`")
                check_window_time(time, delay, input)
            assign = Assign(time or "", window)
            columns = assign.columns(input)
            return [
                assign,
                Windowed.define(name, key, functions, columns, window, time=time, delay=delay),
            ]

        return self._then(name, define)

    def state_machine(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        function: Callable[[Any, Any, Any], Any],
        state: str | Mapping[str, Form],
        output: str,
        time: str | None = None,
        delay: Duration | None = None,
        ttl: Duration | None = None,
    ) -> Stream:
        """Call `function(key, value, state)` for each record; it returns rows of `output`.

        The records of a key come in the order of (epoch, `time`, content). The function may change
        `state` and nothing else. `delay` and `ttl` are as in `aggregate`.
        """

        def define(input: pa.Schema) -> Sequence[Step]:
            operator = StateMachine.of(
                name, key, function, state, output, input, time=time, delay=delay
            )
            return [_expiring(operator, ttl)]

        return self._then(name, define)

    def unary(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        function: Callable[[Any, Any], Any],
        state: str | Mapping[str, Form],
        output: str,
        time: str,
        delay: Duration = "0 s",
        notices: str | None = None,
        strict: bool = False,
    ) -> Stream:
        """Call `function(events, notify)` once for each worker and epoch; it returns rows.

        `events` are records in the order of `time`, and due notices; each has kind, time, key,
        value and state. `notify(key, time, *values)` schedules a notice with the columns `notices`.
        `strict` holds records until the watermark has passed them, so that they come in the order
        of time from epoch to epoch, too.
        """

        def define(input: pa.Schema) -> Sequence[Step]:
            return [
                EventMachine.of(
                    name,
                    key,
                    function,
                    state,
                    output,
                    input,
                    time=time,
                    delay=delay,
                    notices=notices,
                    strict=strict,
                )
            ]

        return self._then(name, define)

    def binary(
        self,
        name: str,
        other: Stream,
        *,
        key: str | Sequence[str],
        function: Callable[[Any, Any], Any],
        state: str | Mapping[str, Form],
        output: str,
        time: str,
        delay: Duration = "0 s",
        notices: str | None = None,
        strict: bool = False,
    ) -> Stream:
        """`unary` over two inputs, which share state, notices and routing.

        Both have the columns of `key` and `time`, of the same types. The kind of an event is "left"
        (this stream) or "right" (`other`). The watermark is that of the input that is behind.
        """
        keys = [key] if isinstance(key, str) else list(key)
        join = SideBySide((*keys, time))
        with defining(name):
            if any(stream._has_operator for stream in (self, other)):
                raise ConfigError(
                    "both inputs must be streams without a stateful operator before this one"
                )
            both = _both(Both(self, other, join))

        def define(input: pa.Schema) -> Sequence[Step]:
            return [
                EventMachine.of(
                    name,
                    key,
                    function,
                    state,
                    output,
                    input,
                    time=time,
                    delay=delay,
                    notices=notices,
                    strict=strict,
                    sides=join.sides(input),
                )
            ]

        return both._then(name, define)

    def windows(
        self,
        name: str,
        window: Window,
        *,
        key: str | Sequence[str],
        function: Callable[[Any, Any, Any], Any],
        output: str,
        time: str | None = None,
        delay: Duration | None = None,
    ) -> Stream:
        """Call `function(key, span, records)` when a window closes; it returns rows of `output`.

        `span` has the window's `start` and `end`; it is None for a counted window, which closes
        with its last record, has no event time and orders the records of an epoch by `time`.
        """

        def define(input: pa.Schema) -> Sequence[Step]:
            return collect(input, name, window, key, function, output, time, delay)

        return self._then(name, define)

    def transform(self, function: Transform) -> Stream:
        """Ordinary DataFrame code between or after stateful operators; it must be deterministic."""
        return self._with(function)

    def to(self, sink: Sink) -> Job:
        """End the query in a sink."""
        if not self._has_operator:
            raise ConfigError("this query keeps no state: use Spark's own writeStream for it")
        if not isinstance(sink, Sink):
            raise ConfigError(
                f"{sink!r} is no sink; use files, table, delta, iceberg, postgres, kafka, "
                "foreach_batch, console or memory of godwit, such as gw.files('output')"
            )
        return Job(self, sink)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "start":  # `to` makes a job of it, which has that
            raise ConfigError("end the query in a sink first: .to(gw.files('output')).start(...)")
        raise AttributeError(f"a Stream has no '{name}'", name=name, obj=self)

    @property
    def _steps_on_spark(self) -> tuple[Step, ...]:
        """What each epoch does: `_rows` has seen the code before the first operator."""
        steps = [step for step in self._steps if not isinstance(step, Later)]
        code = list(takewhile(lambda step: not isinstance(step, Operator), steps))
        return tuple(steps[len(code) :])

    def _defined(self, spark: SparkSession | None) -> Stream:
        """With the steps defined that wait for columns which only Spark can tell."""
        source = self._source
        if self._rows is not None or self._schema is not None:
            return self
        if isinstance(source, Both):
            left, right = source.left._defined(spark), source.right._defined(spark)
            stream = _both(Both(left, right, source.join))
        else:
            stream = Stream(source, None, (), source)
        for step in self._steps:
            if isinstance(step, Later):
                stream = stream._then(step.name, step.define)
            else:
                stream = stream._with(step, spark)
        return stream

    @property
    def _has_operator(self) -> bool:
        return any(isinstance(step, Operator | Later) for step in self._steps)

    def _then(self, name: str, define: Callable[[pa.Schema], Sequence[Step]]) -> Stream:
        """With the steps that an operator is defined as, for records of this stream."""
        if any(isinstance(one, Operator | Later) and one.name == name for one in self._steps):
            raise ConfigError(
                f"the query has an operator '{name}' already, and the name is an operator's "
                "identity: name this one differently"
            )
        if self._schema is None:
            return replace(self, _steps=(*self._steps, Later(name, define)))
        stream = self
        for step in define(to_arrow(self._schema)):
            stream = stream._with(step)
        return stream

    def _with(self, step: Step, spark: SparkSession | None = None) -> Stream:
        steps = (*self._steps, step)
        if isinstance(step, Operator):
            return replace(self, _steps=steps, _schema=to_spark(step.output))
        if self._rows is not None and not self._has_operator:
            rows = step(self._rows)
            check_source(rows)
            return replace(self, _steps=steps, _rows=rows, _schema=rows.schema)
        schema, spark = None, spark or (None if self._rows is None else self._rows.sparkSession)
        if self._schema is not None and isinstance(step, Preparation):
            schema = to_spark(step.columns(to_arrow(self._schema)))
        elif self._schema is not None and spark is not None:
            schema = schema_after(spark, self._schema, step)
        return replace(self, _steps=steps, _schema=schema)


@dataclass(frozen=True, slots=True)
class Both:
    """Two inputs of one operator."""

    left: Stream
    right: Stream
    join: SideBySide


@dataclass(frozen=True, slots=True)
class Later:
    """An operator whose input has columns that are not known yet."""

    name: str
    define: Callable[[pa.Schema], Sequence[Step]]


def then(stream: Stream, operator: Operator) -> Stream:
    """With an operator that was made for records of the stream's schema."""
    return stream._with(operator)


def _both(inputs: Both) -> Stream:
    """The records of two inputs."""
    left, right = inputs.left, inputs.right
    if (left._rows is None) != (right._rows is None):
        raise ConfigError("one input is a DataFrame and the other a schema; make both the same")
    if left._schema is None or right._schema is None:
        return Stream(inputs, None, (), None)
    columns = inputs.join.columns(to_arrow(left._schema), to_arrow(right._schema))
    if left._rows is None or right._rows is None:
        return Stream(inputs, None, (), to_spark(columns))
    rows = inputs.join(left._rows, right._rows)
    check_source(rows)
    return Stream(inputs, rows, (), rows.schema)


def _check_option(name: str, given: Any) -> None:
    """Suggest the option of `aggregate` that something which is no function may be meant for."""
    meant = closest_name(name, ("key", "time", "delay", "ttl", "window"))
    if meant and not isinstance(given, Aggregate):
        raise ConfigError(f"there is no option '{name}'; did you mean '{meant}'?")


def _expiring(operator: Operator, ttl: Duration | None) -> Operator:
    return operator if ttl is None else Expiring.define(operator, ttl)
