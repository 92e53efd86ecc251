"""Move the state of a running PySpark stream without stopping it."""

from godwit.aggregates.approx_count_distinct import approx_count_distinct
from godwit.aggregates.approx_quantiles import approx_quantiles
from godwit.aggregates.average import avg
from godwit.aggregates.base import Aggregate, AggregateInput, GroupedRecords
from godwit.aggregates.booleans import any, every
from godwit.aggregates.collect_list import collect_list
from godwit.aggregates.count import count
from godwit.aggregates.extremes import max, min
from godwit.aggregates.first_last import first, last
from godwit.aggregates.sum import sum
from godwit.aggregates.top import top
from godwit.aggregates.variance import stddev, variance
from godwit.api.handles import Draining, Handover, Migration, MigrationProgress, Scheduled
from godwit.api.job import Job, query
from godwit.api.query import Query
from godwit.api.restore import restore
from godwit.api.stream import Stream, stream
from godwit.errors import (
    CheckpointError,
    ConfigError,
    DamagedFileError,
    FencedError,
    GodwitError,
    IncompatibleError,
    InfeasibleError,
    OperatorError,
    RefusedError,
)
from godwit.inspect.prometheus import PrometheusFile
from godwit.inspect.report import EpochReport, OperatorReport, ReplicaReport, WorkerReport
from godwit.migration.strategies import Strategy, all_at_once, batched, fluid, matched, paced
from godwit.model.options import AvailableNow, Options, available_now
from godwit.model.routing import Move, Routing, Update
from godwit.model.unread import UnreadFiles
from godwit.operators.events import Event
from godwit.operators.forms import List, Map, Value
from godwit.operators.windows import (
    Counted,
    Session,
    Sliding,
    Span,
    counted,
    session,
    sliding,
    tumbling,
)
from godwit.placement.slots import Held, Placement
from godwit.spark.sinks.console import console
from godwit.spark.sinks.delta import delta
from godwit.spark.sinks.files import files
from godwit.spark.sinks.files_reader import delivered_files, read_files
from godwit.spark.sinks.foreach_batch import foreach_batch
from godwit.spark.sinks.iceberg import iceberg
from godwit.spark.sinks.kafka import kafka
from godwit.spark.sinks.memory import memory
from godwit.spark.sinks.postgres import postgres
from godwit.spark.sinks.sink import Sink
from godwit.spark.sinks.table import table
from godwit.spark.spark_checkpoint import SparkCheckpoint, spark_checkpoint
from godwit.spark.state_reader import read_state
from godwit.storage.location import local_store, object_store
from godwit.storage.store import Store

__all__ = [
    "Aggregate",
    "AggregateInput",
    "AvailableNow",
    "CheckpointError",
    "ConfigError",
    "Counted",
    "DamagedFileError",
    "Draining",
    "EpochReport",
    "Event",
    "FencedError",
    "GodwitError",
    "GroupedRecords",
    "Handover",
    "Held",
    "IncompatibleError",
    "InfeasibleError",
    "Job",
    "List",
    "Map",
    "Migration",
    "MigrationProgress",
    "Move",
    "OperatorError",
    "OperatorReport",
    "Options",
    "Placement",
    "PrometheusFile",
    "Query",
    "RefusedError",
    "ReplicaReport",
    "Routing",
    "Scheduled",
    "Session",
    "Sink",
    "Sliding",
    "Span",
    "SparkCheckpoint",
    "Store",
    "Strategy",
    "Stream",
    "UnreadFiles",
    "Update",
    "Value",
    "WorkerReport",
    "all_at_once",
    "any",
    "approx_count_distinct",
    "approx_quantiles",
    "available_now",
    "avg",
    "batched",
    "collect_list",
    "console",
    "count",
    "counted",
    "delivered_files",
    "delta",
    "every",
    "files",
    "first",
    "fluid",
    "foreach_batch",
    "iceberg",
    "kafka",
    "last",
    "local_store",
    "matched",
    "max",
    "memory",
    "min",
    "object_store",
    "paced",
    "postgres",
    "query",
    "read_files",
    "read_state",
    "restore",
    "session",
    "sliding",
    "spark_checkpoint",
    "stddev",
    "stream",
    "sum",
    "table",
    "top",
    "tumbling",
    "variance",
]
