"""A query that is refused at its start has made nothing: no checkpoint, no directory, no table."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

import godwit as gw
from tests.support import postgres
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

MISFIT = pa.schema({"word": pa.int64(), "n": pa.int64()})
SINKS = ("files", "delta", "postgres", "table", "iceberg")


class Targets:
    """A place for the outputs of each sink."""

    def __init__(self, spark: SparkSession, home: Path, dsn: str) -> None:
        self.spark, self.home, self.dsn = spark, home, dsn
        self.table = f"t{uuid.uuid4().hex}"
        self.lake = {"type": "sql", "uri": f"sqlite:///{home}.db", "warehouse": f"file://{home}"}
        self.catalog = load_catalog("lake", **self.lake)
        self.catalog.create_namespace("ns")

    def sinks(self) -> list[gw.Sink]:
        return [
            gw.files(self.home / "files"),
            gw.delta(self.home / "delta"),
            gw.postgres(self.dsn, "counts"),
            gw.table(self.table),
            gw.iceberg("ns.counts", catalog="lake", properties=self.lake),
        ]

    def misfit(self, sink: str) -> None:
        """Put something in the place of a sink that does not fit the output."""
        match sink:
            case "files":
                self.home.mkdir()
                (self.home / "files").touch()
            case "delta":
                DeltaTable.create(self.home / "delta", MISFIT)
            case "postgres":
                postgres.execute(self.dsn, "CREATE TABLE counts (word text)")
            case "table":
                self.spark.sql(f"CREATE TABLE {self.table} (word string)")
            case "iceberg":
                self.catalog.create_table("ns.counts", MISFIT)

    def made(self) -> set[str]:
        """The sinks in whose places something is."""
        (of_postgres,) = postgres.query(
            self.dsn, "SELECT to_regclass('counts'), to_regclass('godwit_commits')"
        )
        found = {
            "files": (self.home / "files").exists(),
            "delta": (self.home / "delta").exists(),
            "postgres": any(of_postgres),
            "table": self.spark.catalog.tableExists(self.table),
            "iceberg": self.catalog.table_exists("ns.counts"),
        }
        return {sink for sink, is_there in found.items() if is_there}


@pytest.fixture
def targets(spark: SparkSession, tmp_path: Path, dsn: str) -> Iterator[Targets]:
    targets = Targets(spark, tmp_path / "out", dsn)
    yield targets
    spark.sql(f"DROP TABLE IF EXISTS {targets.table}")


@pytest.mark.parametrize("refusing", [None, *SINKS])
def test_no_sink_makes_anything_if_one_refuses_the_output(
    refusing: str | None, targets: Targets, spark: SparkSession, tmp_path: Path
) -> None:
    words = gw.stream(Feed(tmp_path / "input", "word string").stream(spark))
    counts = words.aggregate("counts", key="word", n=gw.count())
    job = gw.query(*(counts.to(sink) for sink in targets.sinks()))
    checkpoint = tmp_path / "checkpoint"
    if refusing is None:
        job.start(checkpoint).stop()
        assert targets.made() == {*SINKS} - {"files"}  # which needs nothing before its first epoch
        return
    targets.misfit(refusing)
    with pytest.raises(gw.ConfigError):
        job.start(checkpoint)
    assert targets.made() == {refusing}
    assert not checkpoint.exists()
