"""How often Spark shuffles in an epoch: once for each operator, whatever its inputs are."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from tests.support.counting import words
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

SINK = gw.foreach_batch(lambda rows, epoch: None)


def test_a_second_operator_adds_one_shuffle(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """In every epoch; a third adds another one."""
    stream, found = gw.stream(feed.stream(spark)), []
    for operators, (key, counted) in enumerate(pairwise(["word", "n", "m", "k"]), start=1):
        functions: dict[str, Any] = {counted: gw.count()}
        stream = stream.aggregate(f"by-{key}", key=key, **functions)
        job = gw.query(stream.to(SINK))
        found.append(shuffles_of_an_epoch(spark, job, feed, tmp_path / f"checkpoint-{operators}"))
    assert found == [1, 2, 3]


def test_a_union_and_a_join_are_one_shuffle_each(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """Of an operator behind a union, and of a join with both its sides."""
    one, other = gw.stream(feed.stream(spark)), gw.stream(feed.stream(spark))
    counts = one.union(other).aggregate("counts", key="word", n=gw.count())
    job = gw.query(counts.join("matches", other, on="word").to(SINK))
    assert shuffles_of_an_epoch(spark, job, feed, tmp_path / "checkpoint") == 2


def shuffles_of_an_epoch(spark: SparkSession, job: gw.Job, feed: Feed, checkpoint: Path) -> int:
    """Of the second one."""
    query = job.start(checkpoint, workers=2)
    try:
        feed.add(words("a b c a"))
        query.process_all_available()
        before = shuffles(spark)
        feed.add(words("a b"))
        query.process_all_available()
        return shuffles(spark) - before - 1
    finally:
        query.stop()


def shuffles(spark: SparkSession) -> int:
    """How many shuffles there have been; to ask counts as one."""
    context: Any = spark.sparkContext
    return int(context._jsc.sc().newShuffleId())
