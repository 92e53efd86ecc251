"""Windows on real Spark: of time and of numbers, chained, with functions, beside Spark's own."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from godwit.errors import ConfigError
from godwit.inspect.audit import verify
from godwit.log.history import History
from tests.support.clicks import Arrived, clicks, plain
from tests.support.event_records import ZERO, second
from tests.support.feed import Feed

pytestmark = pytest.mark.spark


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "input", "user string, at timestamp, n long")


def test_chained_windows_close_on_time_while_both_operators_move(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """Counts of 10 s, then their maximum in 30 s; against a batch query over the same records."""
    sink = Arrived()
    job = (
        gw.stream(feed.stream(spark))
        .aggregate(
            "tens", key="user", window=gw.tumbling("10 s"), time="at", delay="5 s", n=gw.count()
        )
        .transform(lambda rows: rows.withColumn("everyone", sf.lit("all")))
        .aggregate(
            "thirties",
            key="everyone",
            window=gw.tumbling("30 s"),
            time="window_time",
            delay="0 s",
            most=gw.max("n"),
        )
        .to(gw.foreach_batch(sink))
    )
    batches = [
        clicks(1, 2, 3, 11) + clicks(4, 12, user="v"),
        clicks(9, 21, 22, 23, 24) + clicks(29, 31, user="v"),
        clicks(28, 36, 41) + clicks(33, 34, 35, user="v"),  # 35 is the first to close [0, 30)
        clicks(58, 66, 7) + clicks(61, user="w"),  # 7 is late
        clicks(90, 96),
    ]
    query = job.start(tmp_path / "checkpoint", workers=2, options=gw.Options(bins=16))
    for number, batch in enumerate(batches):
        feed.add(batch)
        query.process_all_available()
        if number == 1:
            assert query.migrate(4, "tens", strategy=gw.batched(4)).wait(60) == "done"
            query.migrate(3, "thirties")
    query.finish()

    kept = [row for batch in batches for row in batch if row["at"] != second(7)]
    tens = Counter((row["user"], (row["at"] - ZERO) // timedelta(seconds=10)) for row in kept)
    most: dict[int, int] = {}
    for (_, ten), n in tens.items():
        most[ten // 3] = max(most.get(ten // 3, 0), n)
    expected = [("all", 30.0 * t, 30.0 * t + 30, 30.0 * t + 30, n) for t, n in sorted(most.items())]
    found = [(*row[:3], round(row[3], 3), row[4]) for row in sink.rows]
    assert found == expected
    history = History(tmp_path / "checkpoint")
    for epoch in (epoch for epoch, closed in sink.epochs.items() if closed):
        manifest = history.manifest(epoch)  # the first operator closes windows in the same epoch
        assert manifest is not None
        assert manifest.outputs["tens"]
    assert verify(tmp_path / "checkpoint").findings == []


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (gw.tumbling("10 s"), [("u", 0, 10, 3), ("u", 30, 40, 2), ("v", 0, 10, 1)]),
        (gw.session("5 s"), [("u", 1, 13, 3), ("u", 30, 36, 2), ("v", 2, 7, 1)]),
    ],
    ids=["tumbling", "session"],
)
def test_a_function_of_the_records_of_a_window(
    spark: SparkSession, feed: Feed, tmp_path: Path, window: Any, expected: Any
) -> None:
    sink = Arrived()
    batches = [clicks(1, 8) + clicks(2, user="v"), clicks(4), clicks(31), clicks(30)]
    for batch in batches:  # 4 joins 1 and 8 to one session, 30 extends that of 31 to the front
        feed.add(batch)
    job = (
        gw.stream(feed.stream(spark))
        .windows(
            "windows",
            window,
            key="user",
            function=measure,
            output="user string, start timestamp, end timestamp, n long",
            time="at",
            delay="2 s",
        )
        .to(gw.foreach_batch(sink))
    )
    query = job.start(tmp_path / "checkpoint")
    query.finish()
    assert sorted(sink.rows) == expected


def test_sessions_with_gaps_of_the_records(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    """A record of n keeps its session open for n seconds, and with n = 0 is in none."""
    feed.add([{"user": "u", "at": second(at), "n": n} for at, n in ((1, 9), (2, 3), (5, 0))])
    feed.add([{"user": "u", "at": second(at), "n": n} for at, n in ((9, 1), (10, 4), (8, None))])
    sink = Arrived()
    until = "timestamp_seconds(unix_seconds(at) + n) AS until"
    job = (
        gw.stream(feed.stream(spark).selectExpr("*", until))
        .windows(
            "sessions",
            gw.session(until="until"),
            key="user",
            function=measure,
            output="user string, start timestamp, end timestamp, n long",
            time="at",
            delay="20 s",
        )
        .to(gw.foreach_batch(sink))
    )
    query = job.start(tmp_path / "checkpoint")
    query.finish()
    assert sorted(sink.rows) == [("u", 1, 10, 13), ("u", 10, 14, 4)]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
@pytest.mark.parametrize(
    ("window", "of_spark"),
    [
        (gw.sliding("3 days", "2 days"), lambda at: sf.window(at, "3 days", "2 days")),
        (gw.sliding("9 s", "1.5 s"), lambda at: sf.window(at, "9 seconds", "1500 milliseconds")),
        (gw.session("3.000001 s"), lambda at: sf.session_window(at, "3 seconds")),
    ],
    ids=["days", "seconds", "sessions"],
)
def test_windows_have_the_results_of_sparks_own(
    spark: SparkSession, feed: Feed, tmp_path: Path, window: Any, of_spark: Any, kind: str
) -> None:
    chance, sink = Random(3), Arrived()
    batches = [
        clicks(*(chance.randrange(-200_000, 200_000) / 2 for _ in range(30)), user=user)
        + clicks(*(chance.randrange(80) / 2 for _ in range(20)), user=user)
        + [{"user": user, "at": None, "n": 1}]  # in no window
        for user in "uvw"
    ]
    for batch in batches:
        feed.add(batch)
    cast = ["user", f"CAST(at AS {kind}) AS at", "n"]
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        stream = gw.stream(feed.stream(spark).selectExpr(*cast)).aggregate(
            "w", key="user", window=window, time="at", delay="9 days", n=gw.count()
        )
        stream.to(gw.foreach_batch(sink)).start(tmp_path / "checkpoint").finish()
        rows = spark.read.schema(feed.ddl).parquet(str(feed.directory)).selectExpr(*cast)
        counted = rows.groupBy("user", of_spark("at").alias("w")).count()
        expected = counted.select("user", "w.start", "count").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    found = [(user, start, n) for user, start, _, _, n in sink.rows]
    assert sorted(found) == sorted(tuple(map(plain, row)) for row in expected)
    history = History(tmp_path / "checkpoint")
    manifests = [manifest for epoch in history.epochs() if (manifest := history.manifest(epoch))]
    assert sum(one.late for manifest in manifests for one in manifest.receipts["w"]) == 3


def measure(user: str, span: Any, records: Any) -> list[tuple[Any, ...]]:
    return [(user, span.start, span.end, sum(record.n for record in records))]


def pair(user: str, span: Any, records: Any) -> list[tuple[Any, ...]]:
    assert span is None
    return [(user, sum(record.n for record in records), len(records))]


def test_windows_of_so_many_records(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    sink = Arrived()
    for times in ((1, 2, 3), (4, 5), (6, 7)):
        feed.add(clicks(*times))
    job = (
        gw.stream(feed.stream(spark))
        .windows(
            "threes",
            gw.counted(3),
            key="user",
            function=pair,
            output="user string, n long, length long",
        )
        .to(gw.foreach_batch(sink))
    )
    job.start(tmp_path / "checkpoint", trigger=gw.available_now()).await_termination()
    assert sink.rows == [("u", 3, 3), ("u", 3, 3)]
    state = gw.read_state(spark, tmp_path / "checkpoint", "threes", table="records")
    assert state.count() == 1


def test_a_function_of_the_windows_of_windows(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    sink = Arrived()
    feed.add(clicks(1, 2, 11) + clicks(12, 21, user="v"))
    job = (
        gw.stream(feed.stream(spark))
        .aggregate(
            "tens", key="user", window=gw.tumbling("10 s"), time="at", delay="0 s", n=gw.count()
        )
        .transform(lambda rows: rows.withColumn("room", sf.lit(7)))
        .windows(
            "twenties",
            gw.tumbling("20 s"),
            key=["user", "room"],
            function=total,
            output="user string, room int, start timestamp, n long",
            time="window_time",
            delay="0 s",
        )
        .to(gw.foreach_batch(sink))
    )
    query = job.start(tmp_path / "checkpoint")
    query.finish()
    assert sorted(sink.rows) == [("u", 7, 0, 3), ("v", 7, 0, 1), ("v", 7, 20, 1)]
    with pytest.raises(gw.RefusedError, match="the query has ended"):
        query.finish()


def total(key: Any, span: Any, records: Any) -> list[tuple[Any, ...]]:
    return [(key.user, key.room, span.start, sum(record.n for record in records))]


def test_windows_that_cannot_be_are_refused(spark: SparkSession, feed: Feed) -> None:
    stream = gw.stream(feed.stream(spark))
    with pytest.raises(ConfigError, match="a window needs the column of the event time"):
        stream.aggregate("w", key="user", window=gw.tumbling("1 s"), n=gw.count())
    with pytest.raises(ConfigError, match="a window ends by itself"):
        stream.aggregate(
            "w", key="user", window=gw.tumbling("1 s"), time="at", ttl="1 s", n=gw.count()
        )
    with pytest.raises(ConfigError, match=r"'w': Counted\(records=2\) does not aggregate"):
        stream.aggregate("w", key="user", window=gw.counted(2), n=gw.count())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="its event time 'n' is of type int64"):
        stream.aggregate(
            "w", key="user", window=gw.tumbling("1 s"), time="n", delay="0 s", n=gw.count()
        )
    for wrong in ({}, {"gap": "1 s", "until": "at"}):
        with pytest.raises(ConfigError, match="either a gap or the column of a time"):
            gw.session(**wrong)
    timed: dict[str, Any] = {"key": "user", "function": total, "output": "n long"}
    timed |= {"time": "at", "delay": "0 s"}
    with pytest.raises(ConfigError, match="column 'n' is int64; it must be timestamp"):
        stream.windows("w", gw.session(until="n"), **timed)
    with pytest.raises(ConfigError, match="its column 'user' cannot be in the key"):
        stream.windows("w", gw.session(until="user"), **timed)
    with pytest.raises(ConfigError, match="a counted window has no event time"):
        stream.windows("w", gw.counted(2), key="user", function=total, output="n long", delay="1 s")
    windowed = stream.aggregate(
        "w", key="user", window=gw.tumbling("1 s"), time="at", delay="0 s", n=gw.count()
    )
    collected = stream.windows(
        "w", gw.tumbling("1 s"), key="user", function=total, output="n long", time="at", delay="0 s"
    )
    for one in (windowed, collected):
        with pytest.raises(ConfigError, match="its state depends on event time"):
            one.to(gw.console()).start("/nowhere", initial={"w": spark.range(3)})
