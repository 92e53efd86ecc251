"""A stream as a node of a graph: a source, DataFrame code, or an operator, over other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.operators.base import Operator
from godwit.spark.logical_plan import check_frame, check_source, schema_after
from godwit.spark.sinks.sink import Sink
from godwit.spark.types import to_arrow, to_spark
from godwit.spark.windows import Preparation

Transform = Callable[[DataFrame], DataFrame]
Code = Callable[..., DataFrame]  # of as many DataFrames as a node has inputs


@dataclass(frozen=True, slots=True)
class Source:
    """Where records come in; a simulation knows it by its name. It is idle after so many
    microseconds without a record; None: never."""

    name: str | None = None
    idle_after: int | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """An operator whose input has columns that are not known yet."""

    name: str
    define: Callable[[pa.Schema], Sequence[Step]]


@dataclass(frozen=True, slots=True)
class LateRecords:
    """The late records of an operator."""


Step = Source | Operator | Later | LateRecords | Code


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A stream: what a step makes of others.

    Before the first operator, `rows` is what Spark reads. Over a schema there are none, and once a
    step needs Spark, the columns that come out are not known either. `late` is the sink of late
    records that an operator has besides.
    """

    step: Step
    inputs: tuple[Node, ...] = ()
    schema: StructType | None = None
    rows: DataFrame | None = None
    late: Sink | None = None

    @property
    def is_operator(self) -> bool:
        return isinstance(self.step, Operator | Later)


def walk(*ends: Node) -> Iterator[Node]:
    """All nodes that lead to these, each once and behind its inputs."""
    seen: set[Node] = set()
    stack = [(node, False) for node in reversed(ends)]
    while stack:
        node, is_open = stack.pop()
        if node in seen:
            continue
        if is_open:
            seen.add(node)
            yield node
        else:
            stack.append((node, True))
            stack += [(one, False) for one in reversed(node.inputs)]


def coded(code: Code, *inputs: Node, spark: SparkSession | None = None) -> Node:
    """What DataFrame code makes of streams; a session tells which columns come out."""
    schemas = [one.schema for one in inputs if one.schema is not None]
    known = len(schemas) == len(inputs)
    schema = None
    if known and isinstance(code, Preparation):  # which refuses inputs that do not fit
        schema = to_spark(code.columns(*map(to_arrow, schemas)))
    frames = [one.rows for one in inputs if one.rows is not None]
    if len(frames) == len(inputs):
        rows = code(*frames)
        check_frame(code, rows)
        check_source(rows)
        return Node(code, inputs, rows.schema, rows)
    spark = spark or _session(inputs)
    if schema is None and known and spark is not None:
        schema = schema_after(spark, code, *schemas)
    return Node(code, inputs, schema)


def operated(input: Node, step: Operator | Later, late: Sink | None = None) -> Node:
    """What an operator makes of a stream; it is defined as soon as the columns are known."""
    if isinstance(step, Operator):
        return Node(step, (input,), to_spark(step.output), late=late)
    if input.schema is None:
        return Node(step, (input,), late=late)
    node = input
    for one in step.define(to_arrow(input.schema)):
        assert not isinstance(one, Source | LateRecords)
        node = operated(node, one, late) if isinstance(one, Operator | Later) else coded(one, node)
    return node


def defined(ends: Sequence[Node], spark: SparkSession | None) -> list[Node]:
    """The same streams, with what waits for columns that a session can tell."""
    found: dict[Node, Node] = {}
    for node in walk(*ends):
        inputs = tuple(found[one] for one in node.inputs)
        if node.schema is not None and inputs == node.inputs:
            found[node] = node
        elif isinstance(node.step, Operator | Later):
            found[node] = operated(inputs[0], node.step, node.late)
        else:
            assert not isinstance(node.step, Source | LateRecords)
            found[node] = coded(node.step, *inputs, spark=spark)
    return [found[end] for end in ends]


def _session(nodes: Sequence[Node]) -> SparkSession | None:
    frames = (node.rows for node in walk(*nodes) if node.rows is not None)
    return next((rows.sparkSession for rows in frames), None)
