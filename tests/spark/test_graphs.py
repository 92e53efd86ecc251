"""Graphs of operators on Spark: shared streams, several sources, several sinks."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from godwit.inspect.audit import verify
from tests.support.counting import run_to_end
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

WORDS = "word string, n long"


def rows(spark: SparkSession, output: Path) -> Counter[tuple[Any, ...]]:
    found = spark.read.parquet(str(output)).drop("epoch").collect()
    return Counter(tuple(row) for row in found)


def newest(spark: SparkSession, output: Path, key: str) -> dict[Any, tuple[Any, ...]]:
    """The result of each key in the newest epoch that has one."""
    found = spark.read.parquet(str(output)).sort("epoch").collect()
    return {
        row[key]: tuple(row.asDict()[c] for c in row.asDict() if c not in (key, "epoch"))
        for row in found
    }


def test_a_source_is_read_once_however_many_operators_use_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    read = spark.sparkContext.accumulator(0)

    def seen(word: str) -> str:
        read.add(1)
        return word

    feed = Feed(tmp_path / "input", WORDS)
    words = gw.stream(feed.stream(spark).withColumn("word", sf.udf(seen)("word")))
    counts = words.aggregate("counts", key="word", n=gw.count())
    sums = words.transform(lambda df: df.where("n > 1")).aggregate(
        "sums", key="word", total=gw.sum("n")
    )
    sizes = counts.aggregate("sizes", key="n", words=gw.count())
    query = gw.query(
        counts.to(gw.files(tmp_path / "counts")),
        sums.to(gw.files(tmp_path / "sums")),
        sizes.to(gw.files(tmp_path / "sizes")),
    ).start(tmp_path / "checkpoint", workers=2)
    try:
        feed.add([{"word": "a", "n": 1}, {"word": "b", "n": 2}, {"word": "a", "n": 5}])
        query.process_all_available()
        query.migrate(3, "sums").wait(60)
        feed.add([{"word": "b", "n": 7}])
        query.process_all_available()
    finally:
        query.stop()
    assert read.value == 4
    assert newest(spark, tmp_path / "counts", "word") == {"a": (2,), "b": (2,)}
    assert newest(spark, tmp_path / "sums", "word") == {"a": (5,), "b": (9,)}
    assert rows(spark, tmp_path / "sizes") == Counter({(1, 1): 1, (2, 1): 1, (2, 2): 1})


def test_an_operator_takes_outputs_and_another_source(spark: SparkSession, tmp_path: Path) -> None:
    views, orders = Feed(tmp_path / "views", WORDS), Feed(tmp_path / "orders", WORDS)
    seen = gw.stream(views.stream(spark)).aggregate("seen", key="word", n=gw.sum("n"))
    both = seen.union(gw.stream(orders.stream(spark)))
    query = gw.query(
        both.aggregate("largest", key="word", most=gw.max("n")).to(gw.files(tmp_path / "largest")),
        seen.to(gw.files(tmp_path / "seen")),
    ).start(tmp_path / "checkpoint", workers=2)
    try:
        views.add([{"word": "a", "n": 1}, {"word": "a", "n": 2}])
        query.process_all_available()
        orders.add([{"word": "a", "n": 9}, {"word": "b", "n": 4}])
        query.process_all_available()
    finally:
        query.stop()
    assert newest(spark, tmp_path / "largest", "word") == {"a": (9,), "b": (4,)}
    assert newest(spark, tmp_path / "seen", "word") == {"a": (3,)}


def test_operators_and_sinks_come_and_go_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "input", WORDS)

    def run(more: bool, **options: Any) -> None:
        counts = gw.stream(feed.stream(spark)).aggregate("counts", key="word", n=gw.count())
        sizes = counts.aggregate("sizes", key="n", words=gw.count())
        jobs = [counts.to(gw.files(tmp_path / "counts"))]
        jobs += [sizes.to(gw.files(tmp_path / "sizes"))] if more else []
        query = gw.query(*jobs).start(tmp_path / "checkpoint", workers=2, **options)
        try:
            query.process_all_available()
        finally:
            query.stop()

    feed.add([{"word": "a", "n": 1}])
    run(more=False)
    feed.add([{"word": "a", "n": 1}])
    run(more=True)
    assert rows(spark, tmp_path / "sizes") == Counter({(2, 1): 1})
    with pytest.raises(gw.IncompatibleError, match=r"'sizes'.*drop=\['sizes'\]"):
        run(more=False)
    feed.add([{"word": "b", "n": 1}])
    run(more=False, drop=["sizes"])
    assert newest(spark, tmp_path / "counts", "word") == {"a": (2,), "b": (1,)}
    feed.add([{"word": "c", "n": 1}])
    run(more=True)
    assert rows(spark, tmp_path / "sizes") == Counter({(2, 1): 1, (1, 1): 1})


def test_what_cannot_be_one_query_is_refused_before_it_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "input", WORDS)
    words = gw.stream(feed.stream(spark))
    counts = words.aggregate("counts", key="word", n=gw.count())
    other = words.aggregate("counts", key="n", m=gw.count())
    with pytest.raises(gw.ConfigError, match="two operators 'counts'"):
        gw.query(counts.to(gw.console()), other.to(gw.console()))
    output = gw.files(tmp_path / "output")
    with pytest.raises(
        gw.ConfigError, match=r"two streams end in files in .*/output; name another"
    ):
        gw.query(counts.to(output), counts.to(gw.files(tmp_path / "output")))
    with pytest.raises(gw.ConfigError, match="not behind an operator"):
        counts.transform(lambda df: df.selectExpr("word", "n")).union(words).to(output)
    with pytest.raises(
        gw.ConfigError, match="union: column 'word' is in stream 1, but not in stream 2"
    ):
        words.union(other)
    with pytest.raises(gw.ConfigError, match=r"union: column 'n' is int64 .* string in stream 2"):
        words.union(words.transform(lambda df: df.withColumn("n", sf.col("n").cast("string"))))
    stranger = gw.stream(feed.stream(spark.newSession()))
    mixed = words.union(stranger).aggregate("both", key="word", n=gw.count())
    with pytest.raises(gw.ConfigError, match="two Spark sessions"):
        mixed.to(output)
    with pytest.raises(gw.ConfigError, match="two Spark sessions"):
        words.join("pairs", stranger, on="word").to(output)
    others = stranger.aggregate("others", key="word", n=gw.count())
    with pytest.raises(gw.ConfigError, match="two Spark sessions"):
        gw.query(counts.to(gw.console()), others.to(output))
    nothing: Any = print
    with pytest.raises(gw.ConfigError, match=r"transform\(print\) .* DataFrame; it returned None"):
        words.transform(nothing)
    with pytest.raises(gw.ConfigError, match=r"transform\(print\) .* DataFrame; it returned None"):
        counts.transform(nothing)
    with pytest.raises(gw.ConfigError, match="a DataFrame and another a schema"):
        words.union(gw.stream(WORDS)).aggregate("both", key="word", n=gw.count()).to(output)
    assert not (tmp_path / "checkpoint").exists()


def test_an_operator_that_is_added_may_come_with_state(spark: SparkSession, tmp_path: Path) -> None:
    """Which is loaded at its first start, and passed over from then on."""
    feed, checkpoint = Feed(tmp_path / "input", WORDS), tmp_path / "checkpoint"

    def counted() -> gw.Stream:
        return gw.stream(feed.stream(spark)).aggregate("counts", key="word", n=gw.count())

    def job() -> gw.Job:
        counts = counted()
        sizes = counts.aggregate("sizes", key="n", words=gw.count())
        ends = [counts.to(gw.files(tmp_path / "counts")), sizes.to(gw.files(tmp_path / "sizes"))]
        return gw.query(*ends)

    def state() -> dict[int, int]:
        return {row.n: row.words for row in gw.read_state(spark, checkpoint, "sizes").collect()}

    feed.add([{"word": "a", "n": 0}])
    run_to_end(counted().to(gw.files(tmp_path / "counts")), checkpoint, workers=3)
    given = {
        "sizes": spark.createDataFrame([(2, 10), (7, 1)], "n long, words long"),
        "counts": spark.createDataFrame([("a", 100)], "word string, n long"),
    }
    job().start(checkpoint, initial=given).stop()  # no epoch has the operator yet
    assert state() == {2: 10, 7: 1}
    feed.add([{"word": "a", "n": 0}])
    run_to_end(job(), checkpoint)
    assert state() == {2: 11, 7: 1}
    feed.add([{"word": "b", "n": 0}])
    run_to_end(job(), checkpoint, initial=given)
    assert state() == {1: 1, 2: 11, 7: 1}
    assert newest(spark, tmp_path / "counts", "word") == {"a": (2,), "b": (1,)}
    assert verify(checkpoint).findings == []
