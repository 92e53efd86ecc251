"""Where the outputs of an epoch go, one file a sink: a new one is a file and a line here."""

from godwit.spark.sinks.console import ConsoleSink, console
from godwit.spark.sinks.files import FilesSink, files
from godwit.spark.sinks.foreach_batch import FunctionSink, foreach_batch
from godwit.spark.sinks.memory import MemorySink, memory
from godwit.spark.sinks.sink import Sink
from godwit.spark.sinks.table import TableSink, table

__all__ = [
    "ConsoleSink",
    "FilesSink",
    "FunctionSink",
    "MemorySink",
    "Sink",
    "TableSink",
    "console",
    "files",
    "foreach_batch",
    "memory",
    "table",
]
