"""Event time on real Spark: two inputs, idle and busy streams, expiry, and the end of a stream."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.errors import ConfigError
from godwit.spark.ticks import Ticker
from tests.support.clicks import Arrived, clicks
from tests.support.event_records import second
from tests.support.feed import Feed

pytestmark = pytest.mark.spark


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "input", "user string, at timestamp, n long")


def test_a_window_closes_on_an_idle_stream(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    sink = Arrived()
    job = (
        gw.stream(feed.stream(spark))
        .aggregate(
            "counts",
            key="user",
            window=gw.sliding("10 s", "5 s"),
            time="at",
            delay="0 s",
            n=gw.count(),
        )
        .to(gw.foreach_batch(sink))
    )
    query = job.start(tmp_path / "checkpoint")
    feed.add(clicks(1, 6, 20))
    query.process_all_available()
    query.process_all_available()
    query.stop()
    closed = [(start, end, n) for _, start, end, _, n in sink.rows]
    assert closed == [(-5, 5, 1), (0, 10, 2), (5, 15, 1)]


def test_a_busy_stream_needs_no_ticks(spark: SparkSession, tmp_path: Path) -> None:
    sink = Arrived()
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, numPartitions=2)
    job = (
        gw.stream(source.load().selectExpr("value % 3 AS user", "timestamp AS at"))
        .aggregate(
            "counts", key="user", window=gw.tumbling("1 s"), time="at", delay="0 s", n=gw.count()
        )
        .to(gw.foreach_batch(sink))
    )
    with patch("godwit.spark.epoch.Ticker", partial(Ticker, idle_seconds=30.0)):
        query = job.start(tmp_path / "checkpoint")
        query.await_epoch(12)
        query.stop()
    assert len(sink.rows) > 20
    assert not list((tmp_path / "checkpoint" / "spark" / "sources" / "1").glob("[0-9]*"))


def test_an_open_migration_does_not_delay_the_end_of_a_stream(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    sink = Arrived()
    job = (
        gw.stream(feed.stream(spark))
        .aggregate(
            "counts", key="user", window=gw.tumbling("10 s"), time="at", delay="0 s", n=gw.count()
        )
        .to(gw.foreach_batch(sink))
    )
    once = job.start(
        tmp_path / "checkpoint",
        workers=2,
        options=gw.Options(bins=4096),
        trigger=gw.available_now(),
    )
    with pytest.raises(gw.RefusedError, match="available_now"):
        once.finish()
    once.await_termination()
    query = job.start(tmp_path / "checkpoint")
    feed.add(clicks(1, 6, 20))
    migration = query.migrate(4, strategy="fluid")
    query.finish()
    assert migration.outcome == "open"
    assert (query.epoch or 0) < 100
    assert sorted((start, n) for _, start, _, _, n in sink.rows) == [(0, 2), (20, 1)]


def add_names(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    """Left: a name for a user. Right: clicks, which wait for the name for at most 10 seconds."""
    for kind, time, key, value, state in events:
        match kind:
            case "left":
                state.profile.name = value.name
            case "right":
                state.clicks.append(value.n)
                notify(key, time + timedelta(seconds=10))
            case "notice" if state.clicks:
                for n in state.clicks:
                    yield key, state.profile.name, n
                state.clicks.clear()


def test_two_inputs_share_state_and_move_together(spark: SparkSession, tmp_path: Path) -> None:
    people = Feed(tmp_path / "people", "user string, at timestamp, name string")
    clicked = Feed(tmp_path / "clicks", "user string, at timestamp, n long")
    sink = Arrived()
    job = (
        gw.stream(people.stream(spark))
        .binary(
            "names",
            gw.stream(clicked.stream(spark)),
            key="user",
            function=add_names,
            state={"profile": gw.Value("name string"), "clicks": gw.List("n long")},
            output="user string, name string, n long",
            time="at",
            notices="",
        )
        .to(gw.foreach_batch(sink))
    )
    query = job.start(tmp_path / "checkpoint", workers=1, options=gw.Options(bins=16))
    users = [f"u{i}" for i in range(20)]
    clicked.add([{"user": user, "at": second(1), "n": i} for i, user in enumerate(users)])
    query.process_all_available()
    assert query.migrate(3).wait(60) == "done"
    people.add([{"user": user, "at": second(5), "name": user.upper()} for user in users[:15]])
    clicked.add([{"user": "x", "at": second(50), "n": 0}])
    query.process_all_available()
    assert sink.rows == []  # the people are at second 5
    people.add([{"user": "y", "at": second(30), "name": "Y"}])
    query.process_all_available()
    query.process_all_available()
    expected = [(u, u.upper() if i < 15 else None, i) for i, u in enumerate(users)]
    assert sorted(sink.rows) == sorted(expected)
    query.finish()
    assert ("x", None, 0) in sink.rows


def test_keys_expire(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    job = (
        gw.stream(feed.stream(spark))
        .aggregate("counts", key="user", time="at", delay="0 s", ttl="10 s", n=gw.count())
        .to(gw.foreach_batch(lambda rows, epoch: None))
    )
    query = job.start(tmp_path / "checkpoint")
    feed.add(clicks(1, user="a") + clicks(2, user="b"))
    feed.add(clicks(9, user="a") + clicks(12, user="c"))
    query.process_all_available()
    query.process_all_available()
    state = gw.read_state(spark, tmp_path / "checkpoint", "counts", table="value")
    assert {row.user: row.n for row in state.collect()} == {"a": 2, "c": 1}
    query.stop()


def test_what_cannot_be_is_refused(spark: SparkSession, feed: Feed) -> None:
    stream = gw.stream(feed.stream(spark))
    with pytest.raises(ConfigError, match="a ttl needs event time"):
        stream.aggregate("w", key="user", ttl="1 s", n=gw.count())
    options: dict[str, Any] = {"key": "user", "function": add_names, "state": "n long"}
    options |= {"output": "n long", "time": "at"}
    other = gw.stream(feed.stream(spark).selectExpr("1 AS user", "at"))
    with pytest.raises(ConfigError, match="'user' is string on the left and int on the right"):
        stream.binary("b", other, **options)
    with pytest.raises(ConfigError, match="column 'at' is not in both inputs"):
        stream.aggregate("a", key="user", n=gw.count()).binary("b", stream, **options)
