"""Every sink, and one of a user's own, holds what its guarantee says."""

import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DayTimeIntervalType, StringType, StructField, StructType

import godwit as gw
from godwit.errors import ConfigError
from godwit.model.schema import parse
from godwit.spark.sinks import lake_sink
from godwit.spark.sinks.sink import FileTaker, Sink
from godwit.spark.types import to_spark
from tests.support import kafka, postgres

pytestmark = pytest.mark.spark

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

    @property
    def guarantee(self) -> str:
        return self.sink.guarantee

    def check(self, spark: SparkSession, schema: StructType, checkpoint: str) -> None:
        self.sink.check(spark, schema, checkpoint)

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        written = self.directory / uuid.uuid4().hex
        rows.write.parquet(str(written))
        outputs = sorted(str(path) for path in written.glob("*.parquet"))
        assert isinstance(self.sink, FileTaker)
        assert self.sink.deliver_files(epoch, outputs, commit)


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
        checkpoint = self.checkpoint / query
        (checkpoint / "spark").mkdir(parents=True, exist_ok=True)
        (checkpoint / "spark" / "metadata").write_text(f'{{"id": "{query}"}}')
        sink = self.sink()
        sink.check(spark, schema, str(checkpoint))
        return sink


def table_rows(rows: DataFrame) -> Rows:
    return [(row.epoch, row.n) for row in rows.collect()]


def delta_rows(table: Path) -> Rows:
    columns = DeltaTable(table).to_pyarrow_table().to_pydict()
    return list(zip(columns["epoch"], columns["n"], strict=True))


PLACES = (
    "files",
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


@pytest.fixture(params=PLACES)
def place(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    if "large" in request.param:
        monkeypatch.setattr(lake_sink, "LARGE", 1)
    match request.param:
        case "files":
            yield Place(
                lambda: gw.files(out),
                lambda: table_rows(spark.read.parquet(str(out))),
                checkpoint,
                out.exists,
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
                lambda: FromFiles(gw.delta(str(out)), tmp_path / "outputs"),
                lambda: delta_rows(out),
                checkpoint,
                out.exists,
            )
        case "postgres" | "postgres by key":
            dsn = request.getfixturevalue("dsn")
            key = "k" if "key" in request.param else None
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
                lambda: FromFiles(gw.postgres(dsn, "counts"), tmp_path / "outputs"),
                lambda: postgres.query(dsn, "SELECT epoch, n FROM counts"),
                checkpoint,
            )
        case "iceberg" | "iceberg of files" | "iceberg of large files":
            url = f"sqlite:///{tmp_path}/db"
            lake = {"type": "sql", "uri": url, "warehouse": f"file://{tmp_path}"}

            def iceberg() -> Sink:
                sink = gw.iceberg("ns.counts", catalog="lake", properties=lake)
                return FromFiles(sink, tmp_path / "outputs") if "files" in request.param else sink

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


def test_it_is_a_sink_that_states_its_guarantee(spark: SparkSession, place: Place) -> None:
    sink = place.sink()
    assert isinstance(sink, Sink)
    assert sink.guarantee.startswith(("exactly once", "at least once"))


def test_an_epoch_that_is_delivered_again(spark: SparkSession, place: Place) -> None:
    """By the same process, and by one that goes on after its death."""
    sink = place.start(spark, "q")
    sink.deliver(0, rows(spark, 1, 2), "q/0/1", 2)
    sink.deliver(1, rows(spark, 3), "q/1/1", 1)
    sink.deliver(1, rows(spark, 3), "q/1/1", 1)
    delivered = place.delivered()
    if sink.guarantee.startswith("exactly once"):
        assert sorted(delivered) == [(0, 1), (0, 2), (1, 3)]
    assert set(delivered) == {(0, 1), (0, 2), (1, 3)}

    if "within this process" in sink.guarantee:
        return
    place.start(spark, "q").deliver(1, rows(spark, 3), "q/1/1", 1)
    later = place.delivered()
    if sink.guarantee.startswith("exactly once"):
        assert sorted(later) == sorted(delivered)
    assert (1, 3) in later


def test_an_epoch_without_rows(spark: SparkSession, place: Place) -> None:
    sink = place.start(spark, "q")
    sink.deliver(0, rows(spark), "q/0/1", 0)
    sink.deliver(0, rows(spark), "q/0/1", 0)
    sink.deliver(1, rows(spark, 1), "q/1/1", 1)
    sink.deliver(2, rows(spark), "q/2/1", 0)
    assert place.delivered() == [(1, 1)]


def test_a_driver_that_was_taken_over_wakes_up(spark: SparkSession, place: Place) -> None:
    """It changes nothing of what the later driver has delivered."""
    old, new = place.start(spark, "q"), place.start(spark, "q")
    if not lasts(old):
        return
    old.deliver(0, rows(spark, 1), "q/0/1", 1)
    new.deliver(0, rows(spark, 1), "q/0/1", 1)
    new.deliver(1, rows(spark, 2), "q/1/1", 1)
    new.deliver(2, rows(spark, 3), "q/2/2", 1)
    with suppress(ConfigError):
        old.deliver(1, rows(spark, 2), "q/1/1", 1)
    assert sorted(place.delivered()) == [(0, 1), (1, 2), (2, 3)]


def test_an_epoch_that_is_run_again_after_a_restore(spark: SparkSession, place: Place) -> None:
    """Its rows take the place of the earlier ones, or they are refused; there are never both."""
    sink = place.start(spark, "q")
    if not lasts(sink) or isinstance(sink, Sqlite):
        return
    sink.deliver(0, rows(spark, 1), "q/0/1", 1)
    sink.deliver(1, rows(spark, 2), "q/1/1", 1)
    sink.deliver(2, rows(spark, 3), "q/2/1", 1)
    for epoch in (1, 2):
        refusal = ""
        try:
            place.start(spark, "q").deliver(epoch, rows(spark, 7), f"q/{epoch}/2", 1)
        except ConfigError as error:
            refusal = str(error)
        if refusal:
            assert f"epoch {epoch}" in refusal or f"q/{epoch}/2" in refusal
            assert sorted(place.delivered()) == [(0, 1), (1, 2), (2, 3)]
        else:
            assert [row for row in place.delivered() if row[0] == epoch] == [(epoch, 7)]


def test_a_start_with_another_column(spark: SparkSession, place: Place) -> None:
    """It is refused by name before the first epoch, or its rows are delivered."""
    sink = place.start(spark, "q")
    if not lasts(sink) or isinstance(sink, Sqlite):
        return
    sink.deliver(0, rows(spark, 1), "q/0/1", 1)
    refusal = ""
    try:
        sink = place.start(spark, "q", to_spark(parse("k string, n bigint, extra string")))
    except ConfigError as error:
        refusal = str(error)
    if refusal:
        assert "extra" in refusal
    else:
        sink.deliver(1, rows(spark, 2).selectExpr("*", "'e' AS extra"), "q/1/1", 1)
        assert sorted(place.delivered()) == [(0, 1), (1, 2)]


def test_a_start_with_another_type(spark: SparkSession, place: Place) -> None:
    """It is refused by the column's name before the first epoch, or all rows can be read."""
    sink = place.start(spark, "q")
    if not lasts(sink) or isinstance(sink, Sqlite):
        return
    sink.deliver(0, rows(spark, 1), "q/0/1", 1)
    refusal = ""
    try:
        sink = place.start(spark, "q", to_spark(parse("k string, n string")))
    except ConfigError as error:
        refusal = str(error)
    if refusal:
        assert re.search(r"\W[n]\W.*type", refusal)
        sink = place.start(spark, "q")
        sink.deliver(1, rows(spark, 2), "q/1/1", 1)
    else:
        sink.deliver(1, rows(spark, 2).selectExpr("k", "CAST(n AS string) AS n"), "q/1/1", 1)
    assert sorted((epoch, int(n)) for epoch, n in place.delivered()) == [(0, 1), (1, 2)]


def test_an_output_that_is_refused_makes_nothing(spark: SparkSession, place: Place) -> None:
    """And another one can come in its place."""
    refuses = True
    try:
        place.start(spark, "q", place.unfit)
    except ConfigError:
        assert not place.is_made()
    else:
        refuses = False
    assert refuses == (place.sink().guarantee.startswith("exactly once") and not own(place))
    sink = place.start(spark, "q")
    sink.deliver(0, rows(spark, 1), "q/0/1", 1)
    assert place.delivered() == [(0, 1)]


def test_a_delivery_that_fails_in_the_middle(spark: SparkSession, place: Place) -> None:
    """Nothing of it is there, and once it is delivered, all of it is there once."""
    sink = place.start(spark, "q")
    sink.deliver(0, rows(spark, 1), "q/0/1", 1)
    if not isinstance(sink, FromFiles):  # files do not fail
        number = "IF(id = 3, raise_error('dies')::bigint, id)"
        failing = spark.range(2, 4, 1, 2).selectExpr("concat('k', id) AS k", f"{number} AS n")
        with pytest.raises(Exception, match="dies"):
            sink.deliver(1, failing, "q/1/1", 2)
        if "at least once" not in sink.guarantee:
            assert place.delivered() == [(0, 1)]
    sink.deliver(1, rows(spark, 2, 3), "q/1/1", 2)
    assert sorted(place.delivered())[-3:] == [(0, 1), (1, 2), (1, 3)]


def test_what_was_put_out_is_not_what_the_last_operator_counted(
    spark: SparkSession, place: Place
) -> None:
    """DataFrame code behind the last operator adds rows, and takes some away."""
    sink = place.start(spark, "q")
    sink.deliver(0, rows(spark, 1, 2), "q/0/1", 0)
    sink.deliver(1, rows(spark), "q/1/1", 5)
    assert sorted(place.delivered()) == [(0, 1), (0, 2)]


def test_outputs_of_another_query_in_the_same_place(spark: SparkSession, place: Place) -> None:
    """They are kept, unless the guarantee says that they are not."""
    first = place.start(spark, "first")
    first.deliver(0, rows(spark, 1), "first/0/1", 1)
    before = place.delivered()
    assert before == [(0, 1)]
    refusal = ""
    try:
        place.start(spark, "second").deliver(0, rows(spark, 2), "second/0/1", 1)
    except ConfigError as error:
        refusal = str(error)
    if "another query's output is refused" in first.guarantee:
        assert str(place.checkpoint / "first") in refusal
        assert place.delivered() == before
    else:
        assert (0, 2) in place.delivered()


def test_a_sink_takes_files_only_if_it_says_so(tmp_path: Path) -> None:
    """A method of the same name is not enough: it may be another thing altogether."""

    class Own(Sqlite):
        def deliver_files(self, paths: list[Path]) -> None: ...

    assert isinstance(gw.files(tmp_path), FileTaker)
    assert not isinstance(Own(tmp_path), FileTaker)
