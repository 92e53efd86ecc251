"""Caches of executors on real Spark: they outlive Python workers, and are not needed."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.log.history import History
from tests.support.counting import counting, state, words
from tests.support.damage import flip, new_files
from tests.support.feed import Feed
from tests.support.simulated import content

pytestmark = pytest.mark.spark


def test_the_cache_outlives_python_workers(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    """Spark ends Python workers that are idle for a minute; here they are ended at once."""
    query = counting(spark, feed, gw.memory("cache")).start(tmp_path / "checkpoint", workers=2)
    try:
        for _ in range(3):
            feed.add(words("a b c d e f"))
            query.process_all_available()
            end_python_workers(spark)
    finally:
        query.stop()
    manifests = [History(tmp_path / "checkpoint").manifest(epoch) for epoch in (1, 2)]
    for manifest in manifests:
        assert manifest is not None
        assert [receipt.fetched for receipt in manifest.receipts["counts"]] == [0, 0]
    assert state(spark, tmp_path / "checkpoint") == dict.fromkeys("abcdef", 3)


def test_a_lost_cache_costs_time_only_and_a_damaged_file_the_query(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    query = counting(spark, feed, gw.memory("lost")).start(checkpoint, workers=2)

    def lose_cache() -> None:
        shutil.rmtree(query._driver.cache.path)
        end_python_workers(spark)  # which have its files open

    try:
        for lost in (False, True):
            if lost:
                lose_cache()
            feed.add(words("a b c d e f"))
            query.process_all_available()
        assert state(spark, checkpoint) == dict.fromkeys("abcdef", 2)
        manifest = History(checkpoint).manifest(1)
        assert manifest is not None
        assert all(receipt.fetched for receipt in manifest.receipts["counts"])

        damaged = checkpoint / "godwit" / new_files(checkpoint, 0, "delta")[0].name
        flip(damaged)
        lose_cache()
        before = content(checkpoint / "godwit")
        feed.add(words("a b c d e f"))
        with pytest.raises(gw.DamagedFileError, match=str(damaged)):
            query.process_all_available()
        assert not query.is_active
        after = content(checkpoint / "godwit")
        assert {name: after.get(name) for name in before if "staging" not in name} == {
            name: data for name, data in before.items() if "staging" not in name
        }
        assert History(checkpoint).epochs()[-1] == 1
    finally:
        query.stop()


def end_python_workers(spark: SparkSession) -> None:
    """End all Python processes that Spark's JVM started, and wait until they are gone."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    pids = [pid for pid in descendants(gateway.proc.pid) if is_python_worker(pid)]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    while any(is_python_worker(pid) for pid in pids):
        os.sched_yield()


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            for child in task.read_text().split():
                yield int(child)
                yield from descendants(int(child))


def is_python_worker(pid: int) -> bool:
    try:
        return b"spark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
