"""Which files a query has not read, by Spark's log and the directories of its sources."""

import json
import os
import threading
from pathlib import Path
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.inspect.overview import Overview
from godwit.inspect.report import EpochReport
from godwit.model.unread import UnreadFiles
from godwit.spark import unread_files
from godwit.spark.unread_files import FileSource, SeenFiles, UnreadWatch
from godwit.storage.local import LocalStore
from tests.support.feed import Feed


def log_of(directory: Path, name: str, *paths: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": f"file://{quote(path)}", "batchId": 0}) for path in paths]
    (directory / name).write_text("\n".join(["v1", *lines]))


def test_a_log_is_read_once_and_a_compact_file_stands_for_those_before(tmp_path: Path) -> None:
    seen = SeenFiles(LocalStore(tmp_path))
    log_of(tmp_path, "0", "/in put/a")
    log_of(tmp_path, ".1.tmp", "/not/yet")
    seen.update()
    assert seen.paths == {"/in put/a"}
    (tmp_path / "0").write_text("unreadable, and not read again")
    log_of(tmp_path, "1", "/b")
    seen.update()
    assert seen.paths == {"/in put/a", "/b"}
    (tmp_path / "1").unlink()
    log_of(tmp_path, "9.compact", "/in put/a", "/b", "/c")
    log_of(tmp_path, "10", "/d")
    seen.update()
    assert seen.paths == {"/in put/a", "/b", "/c", "/d"}
    late = SeenFiles(LocalStore(tmp_path))
    late.update()
    assert late.paths == seen.paths


def test_the_files_that_spark_would_read(tmp_path: Path) -> None:
    for name in ("a.txt", "b.csv", "_c.txt", ".d.txt", "day=1/e.txt", "deep/f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def found(source: FileSource) -> set[str]:
        return {os.path.relpath(file.path, tmp_path) for file in source.files()}

    assert found(FileSource(str(tmp_path))) == {"a.txt", "b.csv", "day=1/e.txt"}
    assert found(FileSource(str(tmp_path), "*.txt")) == {"a.txt", "day=1/e.txt"}
    every = {"a.txt", "day=1/e.txt", "deep/f.txt"}
    assert found(FileSource(str(tmp_path), "*.txt", deep=True)) == every
    assert found(FileSource(f"{tmp_path}/d*")) == {"day=1/e.txt", "deep/f.txt"}
    assert found(FileSource(f"{tmp_path}/none")) == set()


def test_what_waits_is_counted_beside_the_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_files, "SECONDS", 0.0)
    directory = tmp_path / "in put"
    directory.mkdir()
    for number, name in enumerate("abc"):
        (directory / name).touch()
        os.utime(directory / name, (number, number))
    log_of(tmp_path / "spark/sources/0", "0", str(directory / "a"))
    log_of(tmp_path / "spark/sources/1", "0", "/ticks/1")
    watch = UnreadWatch([FileSource(str(directory))], LocalStore(tmp_path / "spark" / "sources"))

    def looked() -> UnreadFiles:
        watch.look()
        assert watch._looking is not None
        watch._looking.join()
        assert watch.known is not None
        return watch.known

    known = looked()
    assert known.files == 2
    assert known.seconds > 50 * 365 * 24 * 3600  # since 1970
    log_of(tmp_path / "spark/sources/0", "1", str(directory / "b"), str(directory / "c"))
    assert looked() == UnreadFiles(0)


def test_nothing_is_known_before_spark_has_a_log(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    watch = UnreadWatch([FileSource(str(tmp_path))], LocalStore(tmp_path / "spark" / "sources"))
    watch.look()
    assert watch._looking is not None
    watch._looking.join()
    assert watch.known is None


def test_nobody_looks_where_no_source_is_of_files(tmp_path: Path) -> None:
    watch = UnreadWatch([], LocalStore(tmp_path))
    assert watch.look() is None
    assert watch._looking is None


@pytest.mark.spark
def test_a_query_over_files_tells_how_many_wait(
    spark: SparkSession, tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink of an epoch waits until the look that began with the epoch has ended."""
    monkeypatch.setattr(unread_files, "SECONDS", 0.0)
    reports: list[EpochReport] = []
    for word in "abc":
        feed.add([{"word": word}])

    started = threading.Event()

    def wait(*_: object) -> None:
        started.wait()
        watch = query._engine.unread
        assert watch._looking is not None
        watch._looking.join()

    query = (
        gw.stream(feed.stream(spark))
        .aggregate("counts", key="word", n=gw.count())
        .to(gw.foreach_batch(wait))
        .start(tmp_path / "checkpoint", workers=1, listener=reports.append)
    )
    started.set()
    query.process_all_available()
    query.stop()
    assert [report.unread and report.unread.files for report in reports] == [2, 1, 0]
    assert "2 files waiting, the oldest for " in str(reports[0])
    known = Overview.of(tmp_path / "checkpoint").unread
    assert known is not None
    assert known.files == 1  # as of the start of the newest epoch


@pytest.mark.spark
def test_the_sources_of_a_plan(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("in put", "other"):
        (tmp_path / name).mkdir()
    text = spark.readStream.option("pathGlobFilter", "*.txt").text(f"{tmp_path}/in put")
    deep = spark.readStream.option("recursiveFileLookup", True).text(f"file://{tmp_path}/other")
    rate = spark.readStream.format("rate").load().selectExpr("string(value) AS value")
    assert set(FileSource.all(text.union(deep).union(rate).where("value != ''"))) == {
        FileSource(f"{tmp_path}/in put", "*.txt"),
        FileSource(f"{tmp_path}/other", deep=True),
    }
    assert FileSource.all(rate) == ()
