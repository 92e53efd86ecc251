"""Counting words: the query that most tests run, and its state."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import godwit as gw
from tests.support.feed import Feed

Words = dict[str, int]


def words(text: str) -> list[dict[str, Any]]:
    return [{"word": word} for word in text.split()]


def counting(spark: SparkSession, feed: Feed, sink: Any, **functions: Any) -> gw.Job:
    counts = functions or {"n": gw.count()}
    return gw.stream(feed.stream(spark)).aggregate("counts", key="word", **counts).to(sink)


def run_to_end(job: gw.Job, checkpoint: Path, **options: Any) -> gw.Query:
    query = job.start(checkpoint, trigger=gw.available_now(), **options)
    query.await_termination()
    return query


def state(spark: SparkSession, checkpoint: Path, **options: Any) -> Words:
    rows = gw.read_state(spark, checkpoint, "counts", **options)
    return {row.word: row.n for row in rows.collect()}
