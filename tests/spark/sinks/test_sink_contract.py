"""Every sink, and one of a user's own, holds what its guarantee says."""

import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import godwit as gw
from godwit.errors import ConfigError
from godwit.model.schema import parse
from godwit.spark.sinks.sink import FileTaker, Sink
from godwit.spark.types import to_spark

pytestmark = pytest.mark.spark

SCHEMA = to_spark(parse("k string, n bigint"))

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
class Place:
    """A place for outputs: how to make a sink that writes there, and what was delivered."""

    sink: Callable[[], Sink]
    delivered: Callable[[], Rows]
    checkpoint: Path

    def start(self, spark: SparkSession, query: str) -> Sink:
        """A sink of the query with this id, which has a checkpoint of its own."""
        checkpoint = self.checkpoint / query
        (checkpoint / "spark").mkdir(parents=True, exist_ok=True)
        (checkpoint / "spark" / "metadata").write_text(f'{{"id": "{query}"}}')
        sink = self.sink()
        sink.check(spark, SCHEMA, str(checkpoint))
        return sink


def table_rows(rows: DataFrame) -> Rows:
    return [(row.epoch, row.n) for row in rows.collect()]


@pytest.fixture(params=["files", "files of json", "table", "memory", "function", "console", "own"])
def place(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Place]:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    match request.param:
        case "files":
            yield Place(
                lambda: gw.files(out),
                lambda: table_rows(spark.read.parquet(str(out))),
                checkpoint,
            )
        case "files of json":
            yield Place(
                lambda: gw.files(out, "json"),
                lambda: table_rows(spark.read.json(str(out))),
                checkpoint,
            )
        case "table":
            database = f"d{uuid.uuid4().hex}"
            spark.sql(f"CREATE DATABASE {database} LOCATION '{out}'")
            name = f"{database}.outputs"
            yield Place(lambda: gw.table(name), lambda: table_rows(spark.table(name)), checkpoint)
            spark.sql(f"DROP DATABASE {database} CASCADE")
        case "memory":
            yield Place(
                lambda: gw.memory("remembered"),
                lambda: table_rows(spark.table("remembered")),
                checkpoint,
            )
        case "function":
            called: Rows = []

            def function(rows: DataFrame, epoch: int) -> None:
                called.extend((epoch, row.n) for row in rows.collect())

            yield Place(lambda: gw.foreach_batch(function), lambda: called, checkpoint)
        case "console":
            yield Place(gw.console, lambda: printed(capsys.readouterr().out), checkpoint)
        case "own":
            yield Place(lambda: Sqlite(out), lambda: Sqlite(out).delivered(), checkpoint)


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
