"""A dataflow as a simulation runs it: its code as functions of Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from godwit.errors import ConfigError
from godwit.model.options import closest_name
from godwit.operators.base import Operator
from godwit.spark.arrow import on_arrow
from godwit.spark.dataflow import Dataflow
from godwit.spark.node import Later, LateRecords, Node, Source, defined
from godwit.spark.types import to_arrow
from godwit.spark.windows import Preparation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Code = Callable[..., pa.Table]
Records = Sequence[Mapping[str, Any]]
Batch = tuple[pa.Table, ...]  # by source


@dataclass(frozen=True)
class ArrowFlow:
    """`flow`, and what its DataFrame code is for Arrow tables; `schemas` are those of its sources,
    which are fed by their `names`."""

    flow: Dataflow
    code: Mapping[Node, Code]
    schemas: Sequence[pa.Schema]
    names: Sequence[str]

    @classmethod
    def of(cls, flow: Dataflow, spark: SparkSession | None) -> ArrowFlow:
        """Refuses a step that needs Spark, if there is none."""
        frames = [node.rows for node in flow.sources if node.rows is not None]
        if spark is None and frames:
            spark = frames[0].sparkSession
        nodes = defined([node for node, _ in flow.ends], spark)
        ends = zip(nodes, (sink for _, sink in flow.ends), strict=True)
        flow = Dataflow(tuple(ends))
        code = {
            node: _runnable(node, spark)
            for node in flow.nodes
            if not isinstance(node.step, Source | Operator)
        }
        schemas = [to_arrow(node.schema) for node in flow.sources if node.schema is not None]
        return cls(flow, code, schemas, _names(flow))

    @cached_property
    def operators(self) -> dict[str, Operator]:
        return {
            name: node.step
            for name, node in self.flow.operators.items()
            if isinstance(node.step, Operator)
        }

    def batch(self, rows: Records, others: Mapping[str, Records]) -> Batch:
        """The records of an epoch: of the only source, or of sources by their names."""
        if len(self.names) == 1 and not others:
            return (_table(rows, self.schemas[0]),)
        told = ", ".join(f"{name}=[...]" for name in self.names)
        if len(self.names) == 1:
            raise ConfigError("the job has one input: feed its records, without a name")
        if rows:
            inputs = "two inputs" if len(self.names) == 2 else f"{len(self.names)} inputs"
            raise ConfigError(f"the job has {inputs}: feed records as {told}")
        for name in others:
            if name not in self.names:
                raise ConfigError(f"the job has no input '{name}': feed records as {told}")
        return tuple(
            _table(others.get(name, ()), schema)
            for name, schema in zip(self.names, self.schemas, strict=True)
        )

    def sources(self, batch: Batch) -> dict[Node, pa.Table]:
        """The tables of a batch by the nodes that they come in at."""
        return dict(zip(self.flow.sources, batch, strict=True))

    def table(self, node: Node, known: dict[Node, pa.Table]) -> pa.Table:
        """The rows of a node, of those that are known before; they are known then."""
        if node not in known:
            inputs = [self.table(one, known) for one in node.inputs]
            known[node] = self.code[node](*inputs)
        return known[node]


def _names(flow: Dataflow) -> list[str]:
    """How each source is fed; two without a name are left and right."""
    given = [node.step.name for node in flow.sources if isinstance(node.step, Source)]
    if len(given) == 1:
        return [given[0] or "rows"]
    if given == [None, None]:
        return ["left", "right"]
    if None in given or len(set(given)) < len(given):
        raise ConfigError(
            f"the job has {len(given)} sources: give each a name of its own, "
            "gw.stream(..., name='orders'), by which it is fed"
        )
    return [name for name in given if name is not None]


def _runnable(node: Node, spark: SparkSession | None) -> Code:
    step = node.step
    if isinstance(step, Preparation):
        return step.records
    if spark is None or isinstance(step, Source | Operator | Later | LateRecords):
        name = getattr(step, "__name__", None) or getattr(step, "name", None) or repr(step)
        raise ConfigError(
            f"transform({name}) is DataFrame code: give the simulation a session, "
            "Simulation(job, spark=...)"
        )
    return on_arrow(spark, step)


def _table(rows: Records, schema: pa.Schema) -> pa.Table:
    """Records as a table, if they have no other columns and types."""
    for name in dict.fromkeys(name for row in rows for name in row):
        if name not in schema.names:
            meant = closest_name(name, schema.names)
            hint = f"did you mean '{meant}'?" if meant else f"it has {', '.join(schema.names)}"
            raise ConfigError(f"the input has no column '{name}'; {hint}")
    columns = []
    for field in schema:
        try:
            columns.append(pa.array([row.get(field.name) for row in rows], field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise ConfigError(f"column '{field.name}' is {field.type}: {error}") from None
    return pa.table(columns, schema=schema)
