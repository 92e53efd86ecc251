"""Move the state of a running PySpark stream without stopping it."""

from godwit.errors import (
    CheckpointError,
    ConfigError,
    DamagedFileError,
    FencedError,
    GodwitError,
    IncompatibleError,
    OperatorError,
    RefusedError,
)
from godwit.log.restore import restore
from godwit.model.routing import Routing, Update
from godwit.operators.forms import List, Map, Value
from godwit.operators.functions import avg, count, first, last, max, min, sum
from godwit.spark.query import Migration, Query
from godwit.spark.reading import read_state
from godwit.spark.sinks import console, files, foreach_batch, memory, table
from godwit.spark.stream import Job, Stream, stream

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DamagedFileError",
    "FencedError",
    "GodwitError",
    "IncompatibleError",
    "Job",
    "List",
    "Map",
    "Migration",
    "OperatorError",
    "Query",
    "RefusedError",
    "Routing",
    "Stream",
    "Update",
    "Value",
    "avg",
    "console",
    "count",
    "files",
    "first",
    "foreach_batch",
    "last",
    "max",
    "memory",
    "min",
    "read_state",
    "restore",
    "stream",
    "sum",
    "table",
]
