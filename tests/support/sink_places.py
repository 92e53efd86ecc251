"""Places for outputs, one for each way that a sink takes them. A new sink is a line in `PLACES`."""

import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DayTimeIntervalType, StringType, StructField, StructType

import godwit as gw
from godwit.model.schema import parse
from godwit.spark.sinks.sink import FileTaker, Sink
from godwit.spark.types import to_spark
from godwit.state import output
from godwit.state.output import OutputFiles
from godwit.storage.local import LocalStore
from godwit.storage.store import Store
from tests.support import kafka, postgres
from tests.support.far_store import far_store
from tests.support.log_samples import begun
from tests.support.object_servers import ObjectServer

SCHEMA = to_spark(parse("k string, n bigint"))

ANOTHER_EPOCH = to_spark(parse("k string, Epoch bigint"))
INTERVAL = StructType([StructField("k", StringType()), StructField("d", DayTimeIntervalType())])

Rows = list[tuple[int, int]]  # the epoch and number of each


class Sqlite:
    """A sink as a user writes it: the example in the docstring of `Sink`."""

    guarantee = "exactly once: rows and the id of their commit are one transaction"

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, spark: SparkSession, schema: StructType, checkpoint: str) -> None:
        with sqlite3.connect(self.path) as database:
            database.execute("CREATE TABLE IF NOT EXISTS counts (epoch, word, n)")
            database.execute("CREATE TABLE IF NOT EXISTS commits (id PRIMARY KEY)")

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        counts = [(epoch, row.k, row.n) for row in rows.collect()]
        with sqlite3.connect(self.path) as database:
            added = database.execute("INSERT OR IGNORE INTO commits VALUES (?)", [commit])
            if added.rowcount:
                database.executemany("INSERT INTO counts VALUES (?, ?, ?)", counts)

    def delivered(self) -> Rows:
        with sqlite3.connect(self.path) as database:
            return database.execute("SELECT epoch, n FROM counts").fetchall()


@dataclass
class FromFiles:
    """A sink that is given files: what a query without code behind its operators does."""

    sink: Sink
    directory: Path
    store: Callable[[Path], Store] = LocalStore  # that they are in

    @property
    def guarantee(self) -> str:
        return self.sink.guarantee

    def check(self, spark: SparkSession, schema: StructType, checkpoint: str) -> None:
        self.sink.check(spark, schema, checkpoint)

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        written = self.store(self.directory / uuid.uuid4().hex)
        assert isinstance(self.sink, FileTaker)
        assert self.sink.deliver_files(epoch, output_files(rows, written), commit)


@dataclass
class Place:
    """A place for outputs: how to make a sink that writes there, and what was delivered."""

    sink: Callable[[], Sink]
    delivered: Callable[[], Rows]
    checkpoint: Path
    is_made: Callable[[], bool] = lambda: False
    unfit: StructType = ANOTHER_EPOCH  # an output that the sink refuses

    def start(self, spark: SparkSession, query: str, schema: StructType = SCHEMA) -> Sink:
        """A sink of the query with this id, which has a checkpoint of its own."""
        begun(self.checkpoint / query, query)
        sink = self.sink()
        sink.check(spark, schema, str(self.checkpoint / query))
        return sink


def output_files(rows: DataFrame, store: Store) -> OutputFiles:
    """The rows as files of outputs in a store."""
    store.make()
    refs = []
    for number, part in enumerate(rows.toArrow().to_batches()):
        refs.append(output.write(store, f"{number}.parquet", pa.Table.from_batches([part])))
    return OutputFiles(store, tuple(refs))


def table_rows(rows: DataFrame) -> Rows:
    return [(row.epoch, row.n) for row in rows.collect()]


def delta_rows(table: Path) -> Rows:
    columns = DeltaTable(table).to_pyarrow_table().to_pydict()
    return list(zip(columns["epoch"], columns["n"], strict=True))


PLACES = (
    "files",
    "files in a store",
    "files in a store, of files",
    "files in a store, of large files",
    "files of files",
    "files of json",
    "table",
    "memory",
    "function",
    "console",
    "own",
    "delta",
    "delta by key",
    "delta of files",
    "delta of large files",
    "postgres",
    "postgres by key",
    "postgres of files",
    "iceberg",
    "iceberg of files",
    "iceberg of large files",
    "kafka",
)


def iceberg_rows(properties: dict[str, str]) -> Rows:
    catalog = load_catalog("lake", **properties)
    columns = catalog.load_table("ns.counts").scan().to_arrow().to_pydict()
    return list(zip(columns["epoch"], columns["n"], strict=True))


def opened(
    name: str,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Place]:
    """The place of a name, as long as a test runs."""
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    match name:
        case "files":
            yield Place(
                lambda: gw.files(out),
                lambda: table_rows(spark.read.parquet(str(out))),
                checkpoint,
                out.exists,
            )
        case "files in a store" | "files in a store, of files" | "files in a store, of large files":
            server: ObjectServer = request.getfixturevalue("s3")
            store = server.store()

            def files() -> Sink:
                sink = gw.files(store)
                if "of" not in name:
                    return sink
                return FromFiles(sink, tmp_path, lambda directory: server.store(directory.name))

            yield Place(
                files,
                lambda: table_rows(gw.read_files(spark, store)),
                checkpoint,
                lambda: bool(store.list_files("")),
            )
        case "files of files":
            yield Place(
                lambda: FromFiles(gw.files(out), tmp_path / "outputs"),
                lambda: table_rows(spark.read.parquet(str(out))),
                checkpoint,
                out.exists,
            )
        case "files of json":
            yield Place(
                lambda: gw.files(out, "json"),
                lambda: table_rows(spark.read.json(str(out))),
                checkpoint,
                out.exists,
            )
        case "table":
            database = f"d{uuid.uuid4().hex}"
            spark.sql(f"CREATE DATABASE {database} LOCATION '{out}'")
            name = f"{database}.outputs"
            yield Place(
                lambda: gw.table(name),
                lambda: table_rows(spark.table(name)),
                checkpoint,
                lambda: spark.catalog.tableExists(name),
            )
            spark.sql(f"DROP DATABASE {database} CASCADE")
        case "memory":
            yield Place(
                lambda: gw.memory("remembered"),
                lambda: table_rows(spark.table("remembered")),
                checkpoint,
                lambda: spark.catalog.tableExists("remembered"),
            )
            spark.catalog.dropTempView("remembered")
        case "function":
            called: Rows = []

            def function(rows: DataFrame, epoch: int) -> None:
                called.extend((epoch, row.n) for row in rows.collect())

            yield Place(lambda: gw.foreach_batch(function), lambda: called, checkpoint)
        case "console":
            yield Place(gw.console, lambda: printed(capsys.readouterr().out), checkpoint)
        case "own":
            yield Place(lambda: Sqlite(out), lambda: Sqlite(out).delivered(), checkpoint)
        case "delta":
            yield Place(
                lambda: gw.delta(str(out)),
                lambda: delta_rows(out),
                checkpoint,
                out.exists,
                INTERVAL,
            )
        case "delta by key":
            yield Place(
                lambda: gw.delta(str(out), key="k"),
                lambda: delta_rows(out),
                checkpoint,
                out.exists,
            )
        case "delta of files" | "delta of large files":
            yield Place(
                lambda: FromFiles(gw.delta(str(out)), tmp_path / "outputs", far_store),
                lambda: delta_rows(out),
                checkpoint,
                out.exists,
            )
        case "postgres" | "postgres by key":
            dsn = request.getfixturevalue("dsn")
            key = "k" if "key" in name else None
            tables = "SELECT FROM pg_tables WHERE schemaname = current_schema()"
            yield Place(
                lambda: gw.postgres(dsn, "counts", key=key),
                lambda: postgres.query(dsn, "SELECT epoch, n FROM counts"),
                checkpoint,
                lambda: bool(postgres.query(dsn, tables)),
                to_spark(parse("k string, m map<string, int>")),
            )
        case "postgres of files":
            dsn = request.getfixturevalue("dsn")
            yield Place(
                lambda: FromFiles(gw.postgres(dsn, "counts"), tmp_path / "outputs", far_store),
                lambda: postgres.query(dsn, "SELECT epoch, n FROM counts"),
                checkpoint,
            )
        case "iceberg" | "iceberg of files" | "iceberg of large files":
            url = f"sqlite:///{tmp_path}/db"
            lake = {"type": "sql", "uri": url, "warehouse": f"file://{tmp_path}"}

            def iceberg() -> Sink:
                sink = gw.iceberg("ns.counts", catalog="lake", properties=lake)
                return FromFiles(sink, tmp_path / "outputs") if "files" in name else sink

            yield Place(
                iceberg,
                lambda: iceberg_rows(lake),
                checkpoint,
                lambda: bool(load_catalog("lake", **lake).list_namespaces()),
                INTERVAL,
            )
        case "kafka":
            servers = request.getfixturevalue("kafka_cluster")
            topic = request.getfixturevalue("topic")
            yield Place(
                lambda: kafka.quiet(topic, servers),
                lambda: [(row["epoch"], row["n"]) for row in kafka.values(servers, topic)],
                checkpoint,
            )


def printed(text: str) -> Rows:
    """The rows of tables below lines that tell their epoch."""
    found: Rows = []
    epoch = -1
    for line in text.splitlines():
        if told := re.fullmatch(r"epoch (\d+)", line):
            epoch = int(told[1])
        elif row := re.fullmatch(r"\|k\d+\s*\|(\d+)\s*\|", line):
            found.append((epoch, int(row[1])))
    return found


def lasts(sink: Sink) -> bool:
    """Whether it is exactly once over starts of the query."""
    return sink.guarantee.startswith("exactly once") and "this process" not in sink.guarantee


def own(place: Place) -> bool:
    return isinstance(place.sink(), Sqlite)


def rows(spark: SparkSession, *values: int) -> DataFrame:
    return spark.createDataFrame([(f"k{value}", value) for value in values], SCHEMA)
