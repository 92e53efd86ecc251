"""What Spark's plan of a streaming DataFrame consists of."""

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.errors import ConfigError

# Nodes that keep state between micro-batches when their input is a stream; others keep none.
_STATEFUL = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "GlobalLimit",
    "LocalLimit",
    "TransformWithState",
    "TransformWithStateInPySpark",
}


_SHUFFLING = re.compile(
    r"^[\s:|+-]*(?:Aggregate|Deduplicate|Distinct|Except|GlobalLimit|Intersect|Join|"
    r"RebalancePartitions|Repartition|Sort|Window)",
    re.MULTILINE,
)


def may_shuffle(rows: DataFrame) -> bool:
    """Is there a node of which Spark may make a shuffle?"""
    return _SHUFFLING.search(rows._jdf.queryExecution().analyzed().toString()) is not None


def stateful_node(rows: DataFrame) -> str | None:
    """The name of a node that keeps state in Spark, if there is one."""
    return _find(rows._jdf.queryExecution().analyzed())


def sources(rows: DataFrame) -> int:
    """How many sources Spark reads for a streaming DataFrame; one that it names twice is one."""
    return len(source_names(rows))


def source_names(rows: DataFrame) -> list[str]:
    """What Spark calls each source of a streaming DataFrame; one that it names twice is one."""
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    found = {leaf: None for leaf in map(leaves.apply, range(leaves.length())) if leaf.isStreaming()}
    return [re.sub(r"#\d+L?", "", leaf.toString()).splitlines()[0] for leaf in found]


def _find(plan: Any) -> str | None:
    if not plan.isStreaming():
        return None
    children = plan.children()
    inputs = [children.apply(i) for i in range(children.length())]
    name: str = plan.nodeName()
    if name in _STATEFUL or (name == "Join" and all(one.isStreaming() for one in inputs)):
        return name
    return next((found for one in inputs if (found := _find(one))), None)


def check_source(rows: DataFrame) -> None:
    """Refuse what a query cannot be over."""
    if not isinstance(rows, DataFrame):
        raise ConfigError(
            "godwit.stream takes a streaming DataFrame, spark.readStream..., or its columns, such "
            f"as 'user string, at timestamp', not {rows!r}"
        )
    if not rows.isStreaming:
        raise ConfigError("godwit.stream needs a streaming DataFrame: use spark.readStream")
    if stateful := stateful_node(rows):
        raise ConfigError(
            f"the streaming DataFrame keeps state in Spark ({stateful}), which would miss epochs "
            "that Godwit does not compute again after a restart; use an operator of Godwit instead"
        )


def schema_after(
    spark: SparkSession, code: Callable[..., DataFrame], *schemas: StructType
) -> StructType:
    """What DataFrame code makes of the columns of its inputs."""
    rows = code(*(spark.createDataFrame([], schema) for schema in schemas))
    check_frame(code, rows)
    return rows.schema


def check_frame(code: Callable[..., DataFrame], rows: DataFrame) -> None:
    """Refuse DataFrame code that returns something else."""
    if not isinstance(rows, DataFrame):
        name = getattr(code, "__name__", None) or repr(code)
        raise ConfigError(f"transform({name}) must return a DataFrame; it returned {rows!r}")
