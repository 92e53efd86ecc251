"""Move the state of a running PySpark stream without stopping it."""

from godwit.aggregates.functions import avg, count, first, last, max, min, sum
from godwit.api.handles import Migration, Scheduled
from godwit.api.query import Query
from godwit.api.stream import Job, Stream, stream
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
from godwit.inspect.prometheus import PrometheusFile
from godwit.inspect.report import EpochReport, OperatorReport, WorkerReport
from godwit.log.restore import restore
from godwit.migration.strategies import all_at_once, batched, fluid, matched, paced
from godwit.model.routing import Routing, Update
from godwit.model.unread import UnreadFiles
from godwit.operators.forms import List, Map, Value
from godwit.operators.windows import counted, session, sliding, tumbling
from godwit.spark.importing import SparkCheckpoint, spark_checkpoint
from godwit.spark.sinks import Sink, console, files, foreach_batch, memory, table
from godwit.spark.state_reader import read_state

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
    "Sink",
    "SparkCheckpoint",
    "Stream",
    "UnreadFiles",
    "Update",
    "Value",
    "WorkerReport",
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
