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
from godwit.operators.windows import counted, session, sliding, tumbling
from godwit.runtime.prometheus import PrometheusFile
from godwit.runtime.report import EpochReport, OperatorReport
from godwit.spark.handles import Migration, Scheduled
from godwit.spark.importing import SparkCheckpoint, spark_checkpoint
from godwit.spark.query import Query
from godwit.spark.reading import read_state
from godwit.spark.sinks import console, files, foreach_batch, memory, table
from godwit.spark.stream import Job, Stream, stream
from godwit.strategies import all_at_once, batched, fluid, matched, paced

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DamagedFileError",
    "EpochReport",
    "FencedError",
    "GodwitError",
    "IncompatibleError",
    "Job",
    "List",
    "Map",
    "Migration",
    "OperatorError",
    "OperatorReport",
    "PrometheusFile",
    "Query",
    "RefusedError",
    "Routing",
    "Scheduled",
    "SparkCheckpoint",
    "Stream",
    "Update",
    "Value",
    "all_at_once",
    "avg",
    "batched",
    "console",
    "count",
    "counted",
    "files",
    "first",
    "fluid",
    "foreach_batch",
    "last",
    "matched",
    "max",
    "memory",
    "min",
    "paced",
    "read_state",
    "restore",
    "session",
    "sliding",
    "spark_checkpoint",
    "stream",
    "sum",
    "table",
    "tumbling",
]
