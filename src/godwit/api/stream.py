"""Describing a query: records, stateful operators, DataFrame code, a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

import pyarrow as pa

from godwit.aggregates.base import Aggregate
from godwit.api.job import Job
from godwit.api.late import Keep, keeping_late, keeping_sides
from godwit.api.windows import aggregated, collect
from godwit.errors import ConfigError
from godwit.model.options import closest_name
from godwit.model.schema import parse
from godwit.model.time import Duration, micros
from godwit.operators.aggregate import AggregateOperator
from godwit.operators.base import Operator
from godwit.operators.deduplicate import Deduplicate
from godwit.operators.definition import column_names, defining
from godwit.operators.event_machine import EventMachine
from godwit.operators.expiring import Expiring
from godwit.operators.forms import Form
from godwit.operators.join import JoinOperator
from godwit.operators.joining import How, Joining, On
from godwit.operators.state_machine import StateMachine
from godwit.operators.vectorised import Function, Vectorised
from godwit.operators.windows import Session, Sliding, Window
from godwit.spark.dataflow import Dataflow
from godwit.spark.joining import JoinedSides
from godwit.spark.logical_plan import check_source
from godwit.spark.node import Code, Later, Node, Source, Step, Transform, coded, operated, walk
from godwit.spark.sinks.sink import Sink, check_is_sink
from godwit.spark.types import to_spark
from godwit.spark.windows import SideBySide, Union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stream(
    rows: DataFrame | str, *, name: str | None = None, idle_after: Duration | None = None
) -> Stream:
    """Begin a query over a streaming DataFrame, or over a schema.

    `rows` may be any streaming DataFrame without a stateful operator of Spark's own in it. With a
    schema such as "user string, at timestamp" the query can be tested without Spark, but not
    started. A simulation feeds a job with several sources by their `name`. A stream that shows no
    record for `idle_after` holds no watermark back until it shows one again.

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
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise ConfigError(f"a source is named like a variable of Python, not {name!r}")
    source = Source(name, None if idle_after is None else micros(idle_after))
    if source.idle_after is not None and source.idle_after <= 0:
        raise ConfigError(f"idle_after must be longer than nothing, not '{idle_after}'")
    if isinstance(rows, str):
        return Stream(Node(source, schema=to_spark(parse(rows))))
    check_source(rows)
    return Stream(Node(source, schema=rows.schema, rows=rows))


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A query so far; every method returns a longer one and changes nothing.

    Several operators may use a stream: Godwit reads its source once an epoch.

    >>> import godwit as gw
    >>> views = gw.stream("user string, url string, at timestamp")
    >>> views.aggregate("counts", key="user", n=gw.count(), last=gw.last("url"), time="at")
    <Stream through counts>
    """

    _node: Node

    def __repr__(self) -> str:
        names = [node.step.name for node in walk(self._node) if _is_operator(node.step)]
        return f"<Stream through {', '.join(names) or 'no operator'}>"

    def aggregate(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        time: str | None = None,
        delay: Duration | None = None,
        ttl: Duration | None = None,
        window: Sliding | Session | None = None,
        late: Sink | None = None,
        **functions: Aggregate,
    ) -> Stream:
        """Fold the records of each key; the output is each changed key with its new results.

        `time` names the column that orders the records of a key for `first`, `last` and
        `collect_list`. With a `delay` it is the event time: records that are further behind the
        newest one are late and dropped, as are those without a time; a sink `late` gets them as
        they came. A key without a record for `ttl` leaves the state. With a `window`, the output is
        each key and window, when the window closes; a record is late if its windows have closed, or
        of sessions the one that it would be alone.
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
            return aggregated(input, name, window, key, functions, time, delay)

        return self._then(name, define, late)

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
        late: Sink | None = None,
    ) -> Stream:
        """Call `function(key, value, state)` for each record; it returns rows of `output`.

        The records of a key come in the order of (epoch, `time`, content). The function may change
        `state` and nothing else. `delay`, `ttl` and `late` are as in `aggregate`.
        """

        def define(input: pa.Schema) -> Sequence[Step]:
            operator = StateMachine.of(
                name, key, function, state, output, input, time=time, delay=delay
            )
            return [_expiring(operator, ttl)]

        return self._then(name, define, late)

    def vectorised(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        function: Function,
        state: str,
        output: str,
        time: str | None = None,
        delay: Duration | None = None,
        ttl: Duration | None = None,
        late: Sink | None = None,
    ) -> Stream:
        """Call `function(records, starts, state)` once for each worker and epoch, with columns.

        `records` is an Arrow table, sorted by key, `time` and content; those of key i begin at
        `starts[i]`. Row i of the table `state` has key i and its state. The function returns the
        columns of (state, outputs). `delay`, `ttl` and `late` are as in `aggregate`.
        """

        def define(input: pa.Schema) -> Sequence[Step]:
            operator = Vectorised.of(
                name, key, function, state, output, input, time=time, delay=delay
            )
            return [_expiring(operator, ttl)]

        return self._then(name, define, late)

    def deduplicate(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        time: str | None = None,
        within: Duration | None = None,
        delay: Duration | None = None,
        late: Sink | None = None,
    ) -> Stream:
        """Give the first record of each key, with all its columns, and drop the others.

        The records of a key come in the order of (epoch, `time`, content). With `within`, one is a
        duplicate if the time last given is after its own less `within`, and a key leaves the state
        when the watermark is so much later; else keys stay. `delay` and `late` are as in
        `aggregate`.
        """

        def define(input: pa.Schema) -> Sequence[Step]:
            return [Deduplicate.of(name, key, input, time=time, within=within, delay=delay)]

        return self._then(name, define, late)

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
        late: Sink | None = None,
    ) -> Stream:
        """Call `function(events, notify)` once for each worker and epoch; it returns rows.

        `events` are records in the order of `time`, and due notices; each has kind, time, key,
        value and state. `notify(key, time, *values)` schedules a notice with the columns `notices`.
        `strict` holds records until the watermark has passed them, so that they come in the order
        of time from epoch to epoch, too. `late` is as in `aggregate`.
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

        return self._then(name, define, late)

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
        late: Sink | None = None,
    ) -> Stream:
        """`unary` over two inputs, which share state, notices and routing.

        Both have the columns of `key` and `time`, of the same types. The kind of an event is "left"
        (this stream) or "right" (`other`). The watermark is that of the input that is behind. What
        a sink `late` gets has a column `side` besides, which is "left" or "right".
        """
        with defining(name):
            join = SideBySide((*column_names("key", key), time))
            both = self._beside(other, join)

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

        return both._then(name, define, late, partial(keeping_sides, shared=join.shared))

    def join(
        self,
        name: str,
        other: Stream,
        *,
        on: On,
        how: How = "inner",
        within: tuple[Duration, Duration] | None = None,
        time: str | tuple[str, str] | None = None,
        delay: Duration | None = None,
        late: Sink | None = None,
    ) -> Stream:
        """Match the records of this stream, the left, with those of `other`, the right.

        `on` names the key columns; where the sides call them differently, give pairs, or a dict
        from left to right. `within=("-10 minutes", "5 minutes")` matches a left record with right
        ones from ten minutes before its `time` to five minutes after, bounds included. Every match
        comes out once, in the epoch of its second record. Rows of "left", "right", "full" and
        "anti" without a match come out when they can match no more. "semi" gives a left record at
        its first match. Without `within` only "inner" and "semi" are possible, and the state grows.
        `late` is as in `binary`.
        """
        with defining(name):
            joining = Joining.of(on, how, within, time, delay)
            both = self._beside(other, JoinedSides.of(joining))

        def define(input: pa.Schema) -> Sequence[Step]:
            return [JoinOperator.of(name, joining, input, delay)]

        keep = partial(keeping_sides, shared=joining.shared, time=joining.times[0])
        return both._then(name, define, late, keep)

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
        late: Sink | None = None,
    ) -> Stream:
        """Call `function(key, span, records)` when a window closes; it returns rows of `output`.

        `span` has the window's `start` and `end`; it is None for a counted window, which closes
        with its last record, has no event time and orders the records of an epoch by `time`. `late`
        is as in `aggregate`.
        """

        def define(input: pa.Schema) -> Sequence[Step]:
            return collect(input, name, window, key, function, output, time, delay)

        return self._then(name, define, late)

    def union(self, *others: Stream) -> Stream:
        """The records of this stream and of others with the same columns, in any order.

        >>> import godwit as gw
        >>> web, phone = gw.stream("user string"), gw.stream("user string")
        >>> web.union(phone).aggregate("counts", key="user", n=gw.count())
        <Stream through counts>
        """
        for other in others:
            if not isinstance(other, Stream):
                raise ConfigError(f"union takes streams of Godwit, not {type(other).__name__}")
        return self._of(Union(), self, *others) if others else self

    def transform(self, function: Transform) -> Stream:
        """Ordinary DataFrame code between or after stateful operators; it must be deterministic."""
        if not callable(function):
            raise ConfigError(f"transform takes a function of a DataFrame, not {function!r}")
        return self._of(function, self)

    def to(self, sink: Sink) -> Job:
        """End the stream in a sink; `gw.query` makes one query of several."""
        if not self._has_operator:
            raise ConfigError("this query keeps no state: use Spark's own writeStream for it")
        check_is_sink(sink)
        flow = Dataflow(((self._node, sink),))
        flow.check()
        return Job(flow)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "start":  # `to` makes a job of it, which has that
            raise ConfigError("end the query in a sink first: .to(gw.files('output')).start(...)")
        raise AttributeError(f"a Stream has no '{name}'", name=name, obj=self)

    @property
    def _has_operator(self) -> bool:
        return any(node.is_operator for node in walk(self._node))

    def _beside(self, other: Stream, join: SideBySide) -> Stream:
        """The records of two streams, for an operator with two inputs."""
        if not isinstance(other, Stream):
            raise ConfigError(
                f"its other input must be a stream of Godwit, not {type(other).__name__}"
            )
        return self._of(join, self, other)

    def _then(
        self,
        name: str,
        define: Callable[[pa.Schema], Sequence[Step]],
        late: Sink | None,
        keep: Keep | None = None,
    ) -> Stream:
        """With the steps that an operator is defined as, for records of this stream; if late ones
        have a sink, with one that keeps them."""
        if any(_is_operator(node.step) and node.step.name == name for node in walk(self._node)):
            raise ConfigError(
                f"the query has an operator '{name}' already, and the name is an operator's "
                "identity: name this one differently"
            )
        if late is None:
            return Stream(operated(self._node, Later(name, define)))
        with defining(name):
            check_is_sink(late, "late= takes a sink, but ")

        def keeping(input: pa.Schema) -> Sequence[Step]:
            return (keep or keeping_late)(define(input), input)

        return Stream(operated(self._node, Later(name, keeping), late))

    @staticmethod
    def _of(code: Code, *streams: Stream) -> Stream:
        return Stream(coded(code, *(stream._node for stream in streams)))


def then(stream: Stream, operator: Operator) -> Stream:
    """With an operator that was made for records of the stream's schema."""
    return Stream(operated(stream._node, operator))


def _check_option(name: str, given: Any) -> None:
    """Suggest the option of `aggregate` that something which is no function may be meant for."""
    meant = closest_name(name, ("key", "time", "delay", "ttl", "window", "late"))
    if meant and not isinstance(given, Aggregate):
        raise ConfigError(f"there is no option '{name}'; did you mean '{meant}'?")


def _expiring(operator: Operator, ttl: Duration | None) -> Operator:
    return operator if ttl is None else Expiring.define(operator, ttl)


def _is_operator(step: Step) -> TypeGuard[Operator | Later]:
    return isinstance(step, Operator | Later)
