"""Describing a query: a streaming DataFrame, stateful operators, DataFrame code, a sink."""

import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.log import spark_log
from godwit.log.files import Location
from godwit.log.history import History
from godwit.log.layout import SPARK, TICKS
from godwit.operators.aggregate import Aggregate
from godwit.operators.base import Operator
from godwit.operators.forms import Form
from godwit.operators.functions import Function
from godwit.operators.state_machine import StateMachine
from godwit.runtime.driver import Driver
from godwit.runtime.work import CacheSpec
from godwit.spark.engine import Engine, Listener, Step, Transform, load
from godwit.spark.plans import stateful_node
from godwit.spark.query import Query
from godwit.spark.route import column
from godwit.spark.settings import settings
from godwit.spark.sinks import Sink
from godwit.spark.tick import with_ticks
from godwit.spark.types import to_arrow, to_spark

# Spark keeps its log of a query by Hadoop's FileContext, which starts several shells a file where
# Hadoop's native library is missing. FileSystem starts none; Spark itself uses it elsewhere.
START_SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    )
}
_STARTING = threading.Lock()  # starts share the user's session, whose settings they change

Initial = Mapping[str, DataFrame | Mapping[str, DataFrame]]


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
        self, name: str, *, key: str | Sequence[str], time: str | None = None, **functions: Function
    ) -> "Stream":
        """Fold the records of each key; the output is each changed key with its new results.

        `time` names the column that orders the records of a key for `first` and `last`.
        """
        schema = to_arrow(self.schema)
        return self._with(Aggregate.of(name, key, functions, schema, time=time))

    def state_machine(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        function: Callable[[Any, Any, Any], Any],
        state: str | Mapping[str, Form],
        output: str,
        time: str | None = None,
    ) -> "Stream":
        """Call `function(key, value, state)` for each record; it returns rows of `output`.

        The records of a key come in the order of (epoch, `time`, content). The function may change
        `state` and nothing else.
        """
        schema = to_arrow(self.schema)
        return self._with(StateMachine.of(name, key, function, state, output, schema, time=time))

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
        return Job(self, sink)

    def _with(self, operator: Operator) -> "Stream":
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
        processing_time: str | None = None,
        available_now: bool = False,
        retention: int = 20,
        cache_bytes: int = 8 << 30,
        query_name: str | None = None,
        listener: Listener | None = None,
    ) -> Query:
        """Start the query, or go on with the one in `checkpoint`.

        `workers` and `bins` default to what the checkpoint says, in a new one to Spark's default
        parallelism and 4096. `initial` gives a new checkpoint's first state, by operator (and
        table). The last `retention` epochs can be read and restored. `cache_bytes` bounds the
        local files of an executor. `listener` is called with an `EpochReport` after each epoch;
        the logger `godwit` gets the same as a line.
        """
        source = self.stream.source
        spark = source.sparkSession
        path = Location.parse(checkpoint).path
        operators = [step for step in self.stream.steps if isinstance(step, Operator)]
        given = _tables(initial or {}, operators)
        self.sink.check(spark, self.stream.schema)
        spark_log.agree(path, path / SPARK, History(path))
        driver = Driver(
            path,
            operators,
            workers=workers,
            bins=bins,
            default_workers=spark.sparkContext.defaultParallelism,
            retention=retention,
            cache=CacheSpec(f"godwit-{uuid.uuid4().hex}", cache_bytes, _local_directory(spark)),
        )
        if given and driver.committed is None:
            with _STARTING:
                load(driver, given)
        engine = Engine(driver, self.stream.steps, self.sink, path / SPARK, listener)
        writer = (
            with_ticks(source, driver.root / TICKS)
            .writeStream.foreachBatch(engine)
            .option("checkpointLocation", f"file://{driver.spark_log()}")
        )
        if query_name:
            writer = writer.queryName(query_name)
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif processing_time:
            writer = writer.trigger(processingTime=processing_time)
        with _STARTING, settings(spark, START_SETTINGS):
            return Query(writer.start(), engine)


def _tables(initial: Initial, operators: Sequence[Operator]) -> dict[str, dict[str, DataFrame]]:
    """The initial state by operator and table, checked against the operators' tables."""
    tables = {operator.name: operator.tables for operator in operators}
    given: dict[str, dict[str, DataFrame]] = {}
    for name, state in initial.items():
        if name not in tables:
            raise ConfigError(f"initial state for unknown operator '{name}'")
        if isinstance(state, DataFrame):
            if len(tables[name]) > 1:
                names = ", ".join(spec.name for spec in tables[name])
                raise ConfigError(f"operator '{name}' has several tables; name them: {names}")
            state = {tables[name][0].name: state}
        given[name] = {}
        specs = {spec.name: spec for spec in tables[name]}
        for table, rows in state.items():
            if table not in specs:
                raise ConfigError(f"initial state for unknown table '{table}' of '{name}'")
            wanted = [*specs[table].key.names, *specs[table].sub.names, *specs[table].value.names]
            if missing := [column for column in wanted if column not in rows.columns]:
                raise ConfigError(
                    f"the initial state of '{name}' lacks column '{missing[0]}'; "
                    f"it must have {', '.join(wanted)}"
                )
            given[name][table] = _with_keys(name, rows.select(*wanted), specs[table].key)
    return given


def _with_keys(operator: str, rows: DataFrame, key: pa.Schema) -> DataFrame:
    """The rows with keys of the operator's types, since hashes differ from type to type."""
    given = to_arrow(rows.select(*map(column, key.names)).schema)
    for have, want in zip(given, key, strict=True):
        if have.type == want.type:
            continue
        integers = pa.types.is_integer(have.type) and pa.types.is_integer(want.type)
        if not integers or have.type.bit_width > want.type.bit_width:
            raise ConfigError(
                f"the initial state of '{operator}' has key column '{want.name}' of type "
                f"{have.type}, the operator's is {want.type}; cast it"
            )
        wider = to_spark(pa.schema([want]))[0].dataType
        rows = rows.withColumn(want.name, column(want.name).cast(wider))
    return rows


def _local_directory(spark: SparkSession) -> str | None:
    """On one machine: Spark's scratch directory. On a cluster each executor knows its own."""
    if not str(spark.sparkContext.master).startswith("local["):
        return None
    return spark.conf.get("spark.local.dir", None) or tempfile.gettempdir()
