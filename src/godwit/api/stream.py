"""Describing a query: a streaming DataFrame, stateful operators, DataFrame code, a sink."""

import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.aggregates.functions import Function
from godwit.api.query import Query
from godwit.api.windows import collect
from godwit.driver.control import INITIAL
from godwit.driver.driver import Driver
from godwit.errors import CheckpointError, ConfigError
from godwit.log import spark_log
from godwit.log.history import History
from godwit.log.layout import SPARK, TICKS
from godwit.model.time import Duration, micros
from godwit.operators.aggregate import Aggregate
from godwit.operators.base import Operator
from godwit.operators.definition import check_window_time, defining
from godwit.operators.event_machine import EventMachine
from godwit.operators.expiring import Expiring
from godwit.operators.forms import Form
from godwit.operators.state_machine import StateMachine
from godwit.operators.windowed import Windowed
from godwit.operators.windows import Sliding, Window
from godwit.spark.epoch import Engine, Listener, Step, Transform
from godwit.spark.executors import is_alone
from godwit.spark.importing import SparkCheckpoint, check_new, check_sources, go_on
from godwit.spark.initial_state import Initial, load, tables_of
from godwit.spark.logical_plan import sources, stateful_node
from godwit.spark.pinning import Pinning
from godwit.spark.settings import settings
from godwit.spark.settings_check import check
from godwit.spark.sinks import Sink
from godwit.spark.start_check import check_start
from godwit.spark.ticks import with_ticks
from godwit.spark.types import to_arrow, to_spark
from godwit.spark.unread_files import FileSource, UnreadWatch
from godwit.spark.update_stream import with_control
from godwit.spark.windows import Assign, side_by_side
from godwit.storage.local import Location
from godwit.worker.work import CacheSpec

# Spark keeps its log of a query by Hadoop's FileContext, which starts several shells a file where
# Hadoop's native library is missing. FileSystem starts none; Spark itself uses it elsewhere.
START_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",  # Spark would turn it off by itself, with a warning
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}
_STARTING = threading.Lock()  # starts share the user's session, whose settings they change


def stream(rows: DataFrame) -> "Stream":
    """Begin a query over a streaming DataFrame.

    `rows` may be any streaming DataFrame without a stateful operator of Spark's own in it.
    """
    if not rows.isStreaming:
        raise ConfigError("godwit.stream needs a streaming DataFrame: use spark.readStream")
    if stateful := stateful_node(rows):
        raise ConfigError(
            f"the streaming DataFrame keeps state in Spark ({stateful}), which would miss epochs "
            "that Godwit does not compute again after a restart; use an operator of Godwit instead"
        )
    return Stream(rows, (), rows.schema)


@dataclass(frozen=True, slots=True)
class Stream:
    """A query so far; every method returns a longer one and changes nothing."""

    source: DataFrame
    steps: tuple[Step, ...]
    schema: StructType

    def aggregate(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        time: str | None = None,
        delay: Duration | None = None,
        ttl: Duration | None = None,
        window: Sliding | None = None,
        **functions: Function,
    ) -> "Stream":
        """Fold the records of each key; the output is each changed key with its new results.

        `time` names the column that orders the records of a key for `first` and `last`. With a
        `delay` it is the event time: records that are further behind the newest one are late and
        dropped. A key without a record for `ttl` leaves the state. With a `window`, the output is
        each key and window, when the window closes.
        """
        with defining(name):
            for result, function in functions.items():
                _check_option(result, function)
        if window is None:
            operator = Aggregate.of(
                name, key, functions, to_arrow(self.schema), time=time, delay=delay
            )
            return self.then(_expiring(operator, ttl))
        with defining(name):
            if ttl is not None:
                raise ConfigError("a window ends by itself; leave the ttl out")
            if not isinstance(window, Sliding):
                raise ConfigError("only tumbling and sliding windows aggregate; see `windows`")
            check_window_time(time, delay, to_arrow(self.schema))
        assigned = self.transform(Assign(time or "", window))
        schema = to_arrow(assigned.schema)
        return assigned.then(
            Windowed.define(name, key, functions, schema, window, time=time, delay=delay)
        )

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
    ) -> "Stream":
        """Call `function(key, value, state)` for each record; it returns rows of `output`.

        The records of a key come in the order of (epoch, `time`, content). The function may change
        `state` and nothing else. `delay` and `ttl` are as in `aggregate`.
        """
        schema = to_arrow(self.schema)
        operator = StateMachine.of(
            name, key, function, state, output, schema, time=time, delay=delay
        )
        return self.then(_expiring(operator, ttl))

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
    ) -> "Stream":
        """Call `function(events, notify)` once for each worker and epoch; it returns rows.

        `events` are records in the order of `time`, and due notices; each has kind, time, key,
        value and state. `notify(key, time, *values)` schedules a notice with the columns `notices`.
        `strict` holds records until the watermark has passed them, so that they come in the order
        of time from epoch to epoch, too.
        """
        return self.then(
            EventMachine.of(
                name,
                key,
                function,
                state,
                output,
                to_arrow(self.schema),
                time=time,
                delay=delay,
                notices=notices,
                strict=strict,
            )
        )

    def binary(
        self,
        name: str,
        other: "Stream",
        *,
        key: str | Sequence[str],
        function: Callable[[Any, Any], Any],
        state: str | Mapping[str, Form],
        output: str,
        time: str,
        delay: Duration = "0 s",
        notices: str | None = None,
        strict: bool = False,
    ) -> "Stream":
        """`unary` over two inputs, which share state, notices and routing.

        Both have the columns of `key` and `time`, of the same types. The kind of an event is "left"
        (this stream) or "right" (`other`). The watermark is that of the input that is behind.
        """
        with defining(name):
            if self.steps or other.steps:
                raise ConfigError(
                    "both inputs must be streams without a stateful operator before this one"
                )
            keys = [key] if isinstance(key, str) else list(key)
            both, sides = side_by_side(self.source, other.source, [*keys, time])
        joined = stream(both)
        return joined.then(
            EventMachine.of(
                name,
                key,
                function,
                state,
                output,
                to_arrow(joined.schema),
                time=time,
                delay=delay,
                notices=notices,
                strict=strict,
                sides=sides,
            )
        )

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
    ) -> "Stream":
        """Call `function(key, span, records)` when a window closes; it returns rows of `output`.

        `span` has the window's `start` and `end`; it is None for a counted window, which closes
        with its last record, has no event time and orders the records of an epoch by `time`.
        """
        return collect(self, name, window, key, function, output, time, delay)

    def transform(self, function: Transform) -> "Stream":
        """Ordinary DataFrame code between or after stateful operators; it must be deterministic."""
        if not self.steps:
            return stream(function(self.source))
        spark = self.source.sparkSession
        schema = function(spark.createDataFrame([], self.schema)).schema
        return replace(self, steps=(*self.steps, function), schema=schema)

    def to(self, sink: Sink) -> "Job":
        """End the query in a sink."""
        if not any(isinstance(step, Operator) for step in self.steps):
            raise ConfigError("this query keeps no state: use Spark's own writeStream for it")
        if not isinstance(sink, Sink):
            raise ConfigError(
                f"{sink!r} is no sink; use files, table, foreach_batch, console or memory of "
                "godwit, such as gw.files('output')"
            )
        return Job(self, sink)

    def start(self, *_: Any, **__: Any) -> NoReturn:
        """A query ends in a sink before it can start: `to` makes a `Job` of it."""
        raise ConfigError("end the query in a sink first: .to(gw.files('output')).start(...)")

    def then(self, operator: Operator) -> "Stream":
        """With any operator that was made for records of this stream's schema."""
        return replace(self, steps=(*self.steps, operator), schema=to_spark(operator.output))


@dataclass(frozen=True, slots=True)
class Job:
    """A whole query, ready to start."""

    stream: Stream
    sink: Sink

    def start(
        self,
        checkpoint: str | Path,
        *,
        workers: int | None = None,
        bins: int | None = None,
        initial: Initial | None = None,
        after: SparkCheckpoint | None = None,
        processing_time: str | None = None,
        available_now: bool = False,
        retention: int = 20,
        cache_bytes: int = 8 << 30,
        fetch_rate: float | None = None,
        replicas: int | None = None,
        query_name: str | None = None,
        listener: Listener | None = None,
        control: DataFrame | None = None,
    ) -> Query:
        """Start the query, or go on with the one in `checkpoint`.

        `workers` and `bins` default to what the checkpoint says, in a new one to Spark's default
        parallelism and 4096. A number of `workers` counts at the first start that names it: later
        ones that name it again leave the routing as migrations have made it. `initial` gives a new
        checkpoint's first state, by operator (and table). With `after`, a new checkpoint goes on
        from the offsets of a query of Spark's own, over the same sources. The last `retention`
        epochs can be read and restored. `cache_bytes` bounds the local files of an executor,
        `fetch_rate` how many bytes a second its processes read from the checkpoint together.
        Where workers are pinned to several executors, `replicas` others keep a copy of each one's
        state, by default one; what that needs of Spark's settings is checked.
        `listener` is called with an `EpochReport` after each epoch; the logger `godwit` gets the
        same as a line. `control` is a stream of updates: id, bin and worker, if wanted also
        operator, epoch (else the next one) and workers, their new number. Rows of one id that an
        epoch reads are one request, and an id counts once (the last 200 are remembered).
        """
        source = self.stream.source
        if after is not None:
            check_sources(after, sources(source))
        if control is not None:
            source = with_control(source, control)
        spark = source.sparkSession
        path = Location.to_write(checkpoint).path
        operators = [step for step in self.stream.steps if isinstance(step, Operator)]
        given = tables_of(initial or {}, operators)
        copies = check(spark.sparkContext, replicas)
        check_start(spark, operators, self.stream.schema, self.sink, path)
        history = History(path)
        spark_log.agree(path, path / SPARK, history)
        if not given and history.last() is None and INITIAL in history.intents():
            raise CheckpointError(
                str(path),
                "the load of its initial state was interrupted. Give the initial state again, or "
                "delete the checkpoint: it has published nothing",
            )
        if after is not None and history.last() is None:
            check_new(history)
            if after.operators and initial is None:
                raise ConfigError(
                    f"the query of Spark's checkpoint {after.path} has state; give it as "
                    "initial={...}, or initial={} to go on without it"
                )
        driver = Driver(
            path,
            operators,
            workers=workers,
            bins=bins,
            default_workers=spark.sparkContext.defaultParallelism,
            retention=retention,
            cache=CacheSpec(
                f"godwit-{uuid.uuid4().hex}", cache_bytes, _local_directory(spark), fetch_rate
            ),
            replicas=copies,
        )
        pinning = Pinning(spark)
        log = driver.spark_log()
        ticking = with_ticks(source, driver.root / TICKS)
        if driver.committed is None:
            with _STARTING:
                if after is not None:
                    go_on(driver, after, given, pinning, log, sources(ticking))
                elif given:
                    load(driver, given, pinning)
        engine = Engine(
            driver,
            self.stream.steps,
            self.sink,
            path / SPARK,
            pinning,
            UnreadWatch(FileSource.all(self.stream.source), path / SPARK),
            query_name=query_name,
            listener=listener,
            controlled=control is not None,
            interval=micros(processing_time) / 1e6 if processing_time else 0.0,
        )
        writer = ticking.writeStream.foreachBatch(engine).option(
            "checkpointLocation", f"file://{log}"
        )
        if query_name:
            writer = writer.queryName(query_name)
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif processing_time:
            writer = writer.trigger(processingTime=processing_time)
        with _STARTING, settings(spark, START_SETTINGS | _retaining(spark, retention)):
            return Query(writer.start(), engine, available_now=available_now)


def _retaining(spark: SparkSession, retention: int) -> dict[str, str]:
    """Spark's log reaches as far back as ours, so that every retained epoch can be restored."""
    name = "spark.sql.streaming.minBatchesToRetain"
    return {name: str(max(int(spark.conf.get(name) or 0), retention + 1))}


def _check_option(name: str, given: Any) -> None:
    """Suggest the option of `aggregate` that something which is no function may be meant for."""
    near = get_close_matches(name, ("key", "time", "delay", "ttl", "window"), n=1)
    if near and not isinstance(given, Function):
        raise ConfigError(f"there is no option '{name}'; did you mean '{near[0]}'?")


def _expiring(operator: Operator, ttl: Duration | None) -> Operator:
    return operator if ttl is None else Expiring.define(operator, ttl)


def _local_directory(spark: SparkSession) -> str | None:
    """On one machine: Spark's scratch directory. On a cluster each executor knows its own."""
    if not is_alone(spark.sparkContext):
        return None
    return (spark.conf.get("spark.local.dir", None) or tempfile.gettempdir()).split(",")[0]
