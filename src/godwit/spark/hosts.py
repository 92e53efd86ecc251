"""Local directories, where executors are on several hosts: whether all of them have these."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import gethostbyname, gethostname

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from godwit.errors import ConfigError
from godwit.spark.dataflow import Dataflow
from godwit.spark.executors import ROUNDS, cores, is_alone, live
from godwit.spark.sinks.sink import TaskWriter
from godwit.storage.directories import is_marked, local_path, marked
from godwit.storage.store import Store
from godwit.worker.executor_process import executor_id


@dataclass
class LocalDirectories:
    """The local directories that tasks of a query write to."""

    flow: Dataflow
    checkpoint: Store
    _hosts: frozenset[str] = field(default=frozenset(), init=False)  # that have them

    def check(self, spark: SparkSession) -> None:
        """Raise ConfigError unless each is the same directory for all executors.

        Those on one host share them. If there seem to be more, a file is made in each, or where it
        would be made, and executors look for it: so what hosts have mounted is shared, too. As long
        as the hosts are the same, to check again costs one call.
        """
        there = hosts(spark.sparkContext)
        if there == self._hosts:
            return
        if len(set(map(_address, there))) > 1:
            for directory, what in self.found(spark).items():
                check_shared(spark, directory, what)
        self._hosts = there

    def found(self, spark: SparkSession) -> dict[Path, str]:
        """The directories, and what each of them is."""
        outputs = {
            directory: "output"
            for _, sink in self.flow.outlets
            if isinstance(sink, TaskWriter) and (directory := sink.directory(spark)) is not None
        }
        path = local_path(self.checkpoint)
        return outputs if path is None else outputs | {path: "checkpoint"}


def hosts(context: SparkContext) -> frozenset[str]:
    """Where the driver and its executors are, as Spark calls these hosts: one may have two names,
    such as its address."""
    if is_alone(context):
        return frozenset({gethostname()})
    managers = context._jsc.sc().getExecutorMemoryStatus().keys().mkString(",").split(",")
    return frozenset(one.rpartition(":")[0] for one in managers if one)


def _address(host: str) -> str:
    """What tells two names of one host from two hosts, if the name is known here."""
    try:
        return gethostbyname(host)
    except OSError:
        return host


def check_shared(spark: SparkSession, directory: Path, what: str) -> None:
    """Raise ConfigError if an executor does not see a file that is made in a directory now."""
    with marked(directory) as marker:
        blind = _blind(spark, marker)
    if blind:
        raise ConfigError(
            f"the {what} {directory} is on a disk of the driver's host, {gethostname()}, which "
            f"executors on {', '.join(sorted(blind))} do not see; name a place that all hosts "
            "reach, such as s3://bucket/path, or run all executors on the driver's host"
        )


def _blind(spark: SparkSession, marker: str) -> set[str]:
    """The hosts of executors that do not see a file, of those that have time to look."""
    seen, blind = set[str](), set[str]()
    for _ in range(ROUNDS):
        tasks = cores(spark.sparkContext)
        looking = spark.range(0, tasks, 1, tasks).mapInArrow(
            partial(_look, marker), "executor string, host string, sees boolean"
        )
        for row in looking.collect():
            seen.add(row.executor)
            if not row.sees:
                blind.add(row.host)
        if blind or live(spark.sparkContext) <= seen:
            break
    return blind


def _look(marker: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass  # Spark ends a Python process that leaves its input unread
    found = {"executor": [executor_id()], "host": [gethostname()], "sees": [is_marked(marker)]}
    yield pa.RecordBatch.from_pydict(found)
