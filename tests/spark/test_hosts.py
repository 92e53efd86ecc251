"""Local directories, where executors are on several hosts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.errors import ConfigError
from godwit.model.schema import parse
from godwit.spark import hosts
from godwit.spark.dataflow import Dataflow
from godwit.spark.hosts import LocalDirectories, check_shared
from godwit.spark.sinks.lake_sink import LakeSink
from godwit.spark.sinks.sink import TaskWriter
from godwit.spark.types import to_spark
from godwit.storage.directories import marked
from godwit.storage.local import LocalStore
from godwit.storage.location import open_store
from tests.support.feed import Feed

pytestmark = pytest.mark.spark


@contextmanager
def elsewhere(path: Path) -> Iterator[str]:
    """A mark that no executor finds."""
    yield str(path / "nowhere")


def test_a_mark_is_where_a_directory_is_or_would_be(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "not" / "made"):
        with marked(directory) as mark:
            assert Path(mark).parent == tmp_path
        assert list(tmp_path.iterdir()) == []


def test_executors_that_see_a_directory_share_it(spark: SparkSession, tmp_path: Path) -> None:
    check_shared(spark, tmp_path / "out", "output")


def test_a_directory_that_executors_do_not_see_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "marked", elsewhere)
    told = rf"the output {tmp_path} is on a disk of the driver's host, .*, which executors on .* do"
    with pytest.raises(ConfigError, match=told):
        check_shared(spark, tmp_path, "output")


def test_it_is_looked_at_again_when_hosts_have_come(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = frozenset({"one"})
    monkeypatch.setattr(hosts, "hosts", lambda context: there)
    monkeypatch.setattr(hosts, "marked", elsewhere)
    local = LocalDirectories(Dataflow(()), LocalStore(tmp_path))
    local.check(spark)
    there |= {"two"}
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"the checkpoint {tmp_path} is on a disk"):
            local.check(spark)
    monkeypatch.setattr(hosts, "marked", marked)
    local.check(spark)
    monkeypatch.setattr(hosts, "marked", elsewhere)
    local.check(spark)


def test_what_tasks_write_to_is_known_of_each_sink(spark: SparkSession, tmp_path: Path) -> None:
    words = gw.stream(Feed(tmp_path / "input", "word string").stream(spark))
    counts = words.aggregate("counts", key="word", n=gw.count())
    job = gw.query(
        counts.to(gw.files(tmp_path / "files")),
        counts.to(gw.files("s3://bucket/out")),
        counts.to(gw.delta(f"file://{tmp_path}/del%20ta")),
        counts.to(gw.delta(tmp_path / "key", key="word")),
        counts.to(gw.delta("s3://lake/counts")),
        counts.to(gw.console()),
    )
    local = LocalDirectories(job._flow, open_store(tmp_path / "checkpoint"))
    assert local.found(spark) == {
        tmp_path / "files": "output",
        tmp_path / "del ta": "output",
        tmp_path / "checkpoint": "checkpoint",
    }


def test_what_tasks_write_to_of_a_table_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    sink = gw.table("default.to_be_made")
    assert isinstance(sink, TaskWriter)
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir"))
    assert str(sink.directory(spark)) == warehouse.removeprefix("file:")


def test_what_tasks_write_to_of_an_iceberg_table(spark: SparkSession, tmp_path: Path) -> None:
    """Where the warehouse is; once the table is made, where that is."""
    lake = {"type": "sql", "uri": f"sqlite:///{tmp_path}/db", "warehouse": f"file://{tmp_path}/ice"}
    sink = gw.iceberg("ns.counts", catalog="lake", properties=lake)
    assert isinstance(sink, LakeSink)
    schema = to_spark(parse("n bigint"))
    sink.refuse(spark, schema, tmp_path / "checkpoint")
    assert sink.directory(spark) == tmp_path / "ice"
    sink.check(spark, schema, tmp_path / "checkpoint")
    assert sink.directory(spark) == tmp_path / "ice" / "ns" / "counts"
