"""What Spark's plan of a streaming DataFrame consists of."""

import re
from typing import Any

from pyspark.sql import DataFrame

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
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    found = [leaves.apply(i) for i in range(leaves.length())]
    return len({leaf for leaf in found if leaf.isStreaming()})


def _find(plan: Any) -> str | None:
    if not plan.isStreaming():
        return None
    children = plan.children()
    inputs = [children.apply(i) for i in range(children.length())]
    name: str = plan.nodeName()
    if name in _STATEFUL or (name == "Join" and all(one.isStreaming() for one in inputs)):
        return name
    return next((found for one in inputs if (found := _find(one))), None)
