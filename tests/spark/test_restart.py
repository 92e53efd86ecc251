"""What a start refuses, what may change at a restart, and going back to an epoch."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from godwit import faults
from godwit.inspect.audit import verify
from godwit.log.layout import SPARK
from godwit.spark.settings import settings
from tests.support.counting import counting, run_to_end, state, words
from tests.support.feed import Feed

pytestmark = pytest.mark.spark


def test_columns_may_be_added_at_a_restart_and_nothing_else(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    feed.add(words("a b a"))
    run_to_end(counting(spark, feed, gw.memory("evolve")), checkpoint, workers=2)
    feed.add(words("a c"))
    wider = {"n": gw.count(), "last": gw.last("word")}
    run_to_end(counting(spark, feed, gw.memory("evolve"), **wider), checkpoint)
    rows = gw.read_state(spark, checkpoint, "counts").select("word", "n", "last").collect()
    assert {tuple(row) for row in rows} == {("a", 3, "a"), ("b", 1, None), ("c", 1, "c")}
    with pytest.raises(gw.IncompatibleError, match=r"n was count\(\), now max\(word\)"):
        counting(spark, feed, gw.memory("evolve"), n=gw.max("word")).start(checkpoint)
    with pytest.raises(gw.IncompatibleError, match=r"operator 'counts'.*no longer has it"):
        gw.stream(feed.stream(spark)).aggregate("sums", key="word", n=gw.count()).to(
            gw.memory("evolve")
        ).start(checkpoint)


def test_logs_that_disagree_are_refused(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    job = counting(spark, feed, gw.memory("disagree"))
    feed.add(words("a b"))
    run_to_end(job, checkpoint, workers=2)
    backup = tmp_path / "backup"
    shutil.copytree(checkpoint, backup)
    feed.add(words("c"))
    run_to_end(job, checkpoint)
    assert verify(checkpoint).findings == []
    shutil.rmtree(checkpoint / SPARK)
    with pytest.raises(gw.CheckpointError, match="Spark's log is empty or was deleted"):
        job.start(checkpoint)
    (found,) = verify(checkpoint).findings
    assert "Spark's log is empty or was deleted" in found.problem
    shutil.copytree(backup / SPARK, checkpoint / SPARK)
    with pytest.raises(gw.CheckpointError, match="Godwit published epoch 1"):
        job.start(checkpoint)
    gw.restore(checkpoint, 0)
    run_to_end(job, checkpoint)
    assert state(spark, checkpoint) == Counter("abc")


def test_a_lost_log_is_not_taken_for_the_output_of_another_query(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    job = counting(spark, feed, gw.files(tmp_path / "output"))
    feed.add(words("a"))
    run_to_end(job, checkpoint, workers=1)
    shutil.rmtree(checkpoint / SPARK)
    with pytest.raises(gw.CheckpointError, match="Spark's log is empty or was deleted"):
        job.start(checkpoint)


def test_restoring_an_epoch_and_going_on(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    job = counting(spark, feed, gw.files(output))
    for text in ("a", "b", "c"):
        feed.add(words(text))
    with settings(spark, {"spark.sql.streaming.minBatchesToRetain": "1"}):
        run_to_end(job, checkpoint, workers=2, options=gw.Options(retention=3))
    gw.restore(checkpoint, 0)
    with pytest.raises(gw.ConfigError, match="before its checkpoint was restored"):
        run_to_end(job, checkpoint)
    for later in (1, 2):
        shutil.rmtree(output / f"epoch={later}")
    run_to_end(job, checkpoint)
    assert state(spark, checkpoint) == Counter("abc")
    found = spark.read.parquet(str(output)).select("word", "n").collect()
    assert sorted(map(tuple, found)) == [("a", 1), ("b", 1), ("c", 1)]  # perhaps in other epochs


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"options": gw.Options(bins=100)}, "power of two"),
        ({"workers": 0}, "workers must be"),
        ({"trigger": "soon"}, "'soon' is no duration"),
        ({"options": gw.Options(retention=0)}, "retention"),
        ({"checkpoint": "s3a://bucket/q"}, "'s3a' does not qualify"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(
    spark: SparkSession, feed: Feed, tmp_path: Path, start: dict[str, Any], message: str
) -> None:
    job = counting(spark, feed, gw.memory("bad"))
    with pytest.raises(gw.ConfigError, match=message):
        job.start(**{"checkpoint": tmp_path / "checkpoint", **start})
    assert not (tmp_path / "checkpoint").exists()


def test_a_batch_dataframe_and_a_query_without_state_are_refused(
    spark: SparkSession, feed: Feed
) -> None:
    with pytest.raises(gw.ConfigError, match="readStream"):
        gw.stream(spark.range(1))
    with pytest.raises(gw.ConfigError, match="keeps no state"):
        gw.stream(feed.stream(spark)).to(gw.console())


def test_state_in_spark_is_refused(spark: SparkSession, feed: Feed) -> None:
    rows = feed.stream(spark)
    lookup = spark.createDataFrame([("a", 1)], "word string, n int")
    for stateful, name in (
        (rows.dropDuplicates(), "Deduplicate"),
        (rows.groupBy("word").count(), "Aggregate"),
        (rows.join(feed.stream(spark), "word"), "Join"),
        (rows.limit(3), "Limit"),
    ):
        with pytest.raises(gw.ConfigError, match=f"keeps state in Spark .*{name}"):
            gw.stream(stateful)
    grouped = lookup.groupBy("word").agg(sf.max("n").alias("n"))
    gw.stream(rows.join(grouped, "word").where("n > 0").union(rows.withColumn("n", sf.lit(1))))


def test_an_initial_state_whose_load_was_interrupted_is_not_forgotten(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    def die(point: str, side: faults.Side, epoch: int) -> None:
        if (point, side) == ("manifest", "before"):
            raise InterruptedError

    checkpoint = tmp_path / "checkpoint"
    initial = {"counts": spark.createDataFrame([("a", 5)], "word string, n long")}
    job = counting(spark, feed, gw.memory("interrupted"))
    with patch.object(faults, "handler", die), pytest.raises(InterruptedError):
        job.start(checkpoint, workers=2, initial=initial)
    with pytest.raises(gw.CheckpointError, match="the load of its initial state was interrupted"):
        job.start(checkpoint, workers=2)
    feed.add(words("a b"))
    run_to_end(job, checkpoint, workers=2, initial=initial)
    assert state(spark, checkpoint) == {"a": 6, "b": 1}


def test_damaged_outputs_are_not_delivered(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    def die(point: str, side: faults.Side, epoch: int) -> None:
        if (point, side) == ("sink", "before"):
            raise InterruptedError

    checkpoint = tmp_path / "checkpoint"
    feed.add(words("a b"))
    job = counting(spark, feed, gw.files(tmp_path / "output"))
    with patch.object(faults, "handler", die), pytest.raises(InterruptedError):
        run_to_end(job, checkpoint, workers=1)
    (file,) = (checkpoint / "godwit" / "outputs").rglob("*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    with pytest.raises(gw.DamagedFileError, match=file.name):
        run_to_end(job, checkpoint)
    assert not list((tmp_path / "output").glob("epoch=*"))


def test_a_query_that_another_start_ended_says_so(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """In one session Spark stops the first as if it were asked to."""
    feed.add(words("a b"))
    job = counting(spark, feed, gw.memory("twice"))
    stopped = job.start(tmp_path / "checkpoint", workers=2)
    stopped.process_all_available()
    stopped.stop()
    first = job.start(tmp_path / "checkpoint")
    first.process_all_available()
    second = job.start(tmp_path / "checkpoint")
    try:
        for ask in (first.await_termination, first.process_all_available, lambda: first.migrate(3)):
            with pytest.raises(gw.FencedError, match="Another start of this query") as caught:
                ask()
            assert caught.value.__cause__ is None
            assert caught.value.__suppress_context__ or caught.value.__context__ is None
        assert stopped.await_termination()  # it had ended before
        second.process_all_available()
    finally:
        second.stop()
