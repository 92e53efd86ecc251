"""Event time on real Spark: windows, chained ones, two inputs, expiry, and the end of a stream."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from godwit.errors import ConfigError
from godwit.inspect.audit import verify
from godwit.log.history import History
from godwit.spark.ticks import Ticker
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

ZERO = datetime(2020, 1, 1, tzinfo=UTC)


def second(number: float) -> datetime:
    return ZERO + timedelta(seconds=number)


def clicks(*times: float, user: str = "u") -> list[dict[str, Any]]:
    return [{"user": user, "at": second(time), "n": 1} for time in times]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "input", "user string, at timestamp, n long")


class Sink:
    """What arrives, by epoch; moments as seconds."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[tuple[Any, ...]]] = {}

    def __call__(self, rows: Any, epoch: int) -> None:
        self.epochs[epoch] = sorted(tuple(map(_plain, row)) for row in rows.collect())

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for epoch in sorted(self.epochs) for row in self.epochs[epoch]]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - ZERO).total_seconds()
    return value


def test_chained_windows_close_on_time_while_both_operators_move(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """Counts of 10 s, then their maximum in 30 s; against a batch query over the same records."""
    sink = Sink()
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


def test_a_window_closes_on_an_idle_stream(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    sink = Sink()
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
    sink = Sink()
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
    sink = Sink()
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
    sink = Sink()
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
    sink = Sink()
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
    sink = Sink()
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
    chance, sink = Random(3), Sink()
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
    assert sorted(found) == sorted(tuple(map(_plain, row)) for row in expected)
    history = History(tmp_path / "checkpoint")
    manifests = [manifest for epoch in history.epochs() if (manifest := history.manifest(epoch))]
    assert sum(one.late for manifest in manifests for one in manifest.receipts["w"]) == 3


def measure(user: str, span: Any, records: Any) -> list[tuple[Any, ...]]:
    return [(user, span.start, span.end, sum(record.n for record in records))]


def pair(user: str, span: Any, records: Any) -> list[tuple[Any, ...]]:
    assert span is None
    return [(user, sum(record.n for record in records), len(records))]


def test_windows_of_so_many_records(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    sink = Sink()
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
    sink = Sink()
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
    with pytest.raises(ConfigError, match="a window needs the column of the event time"):
        stream.aggregate("w", key="user", window=gw.tumbling("1 s"), n=gw.count())
    with pytest.raises(ConfigError, match="a window ends by itself"):
        stream.aggregate(
            "w", key="user", window=gw.tumbling("1 s"), time="at", ttl="1 s", n=gw.count()
        )
    with pytest.raises(ConfigError, match="a ttl needs event time"):
        stream.aggregate("w", key="user", ttl="1 s", n=gw.count())
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
    options: dict[str, Any] = {"key": "user", "function": add_names, "state": "n long"}
    options |= {"output": "n long", "time": "at"}
    other = gw.stream(feed.stream(spark).selectExpr("1 AS user", "at"))
    with pytest.raises(ConfigError, match="'user' is string on the left and int on the right"):
        stream.binary("b", other, **options)
    with pytest.raises(ConfigError, match="column 'at' is not in both inputs"):
        stream.aggregate("a", key="user", n=gw.count()).binary("b", stream, **options)
