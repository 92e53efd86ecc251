"""The steps of a job as a simulation runs them: operators, and functions of Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from godwit.api.stream import Both, Later, Stream
from godwit.errors import ConfigError
from godwit.model.options import closest_name
from godwit.operators.base import Operator
from godwit.spark.arrow import on_arrow
from godwit.spark.epoch import Step
from godwit.spark.types import to_arrow
from godwit.spark.windows import Preparation, SideBySide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Code = Callable[[pa.Table], pa.Table]
Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the records of a job come in: the columns of one input, or two inputs side by side."""

    inputs: tuple[pa.Schema, ...]
    code: tuple[Sequence[Code], ...] = ((),)
    join: SideBySide | None = None

    def batch(self, rows: Records, left: Records, right: Records) -> pa.Table:
        """The records of an epoch."""
        if self.join is None:
            if left or right:
                raise ConfigError("the job has one input: feed its records, without left and right")
            return _table(rows, self.inputs[0])
        if rows:
            raise ConfigError("the job has two inputs: feed records as left=[...] and right=[...]")
        sides = []
        for given, schema, code in zip((left, right), self.inputs, self.code, strict=True):
            table = _table(given, schema)
            for step in code:
                table = step(table)
            sides.append(table)
        return self.join.records(*sides)


def arrow_steps(stream: Stream, spark: SparkSession | None) -> tuple[Source, list[Operator | Code]]:
    """Where records come in and what becomes of them; refuses a step that needs Spark, if there is
    none."""
    if spark is None and stream._rows is not None:
        spark = stream._rows.sparkSession
    stream = stream._defined(spark)
    steps = [_runnable(step, spark) for step in stream._steps]
    if not isinstance(stream._source, Both):
        return Source((to_arrow(stream._source),)), steps
    inputs = [arrow_steps(side, spark) for side in (stream._source.left, stream._source.right)]
    code = [[step for step in steps if not isinstance(step, Operator)] for _, steps in inputs]
    schemas = tuple(source.inputs[0] for source, _ in inputs)
    return Source(schemas, tuple(code), stream._source.join), steps


def _runnable(step: Step | Later, spark: SparkSession | None) -> Operator | Code:
    if isinstance(step, Operator):
        return step
    if isinstance(step, Preparation):
        return step.records
    if spark is None or isinstance(step, Later):
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
