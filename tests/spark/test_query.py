"""Whole queries on real Spark: operators, sinks and deaths."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from godwit import faults
from godwit.inspect.audit import verify
from godwit.log.history import History
from godwit.log.journal import Journal
from godwit.spark import route
from tests.support.counting import counting, run_to_end, state, words
from tests.support.feed import Feed

pytestmark = pytest.mark.spark


def test_counts_over_restarts_with_other_workers_and_bins(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    expected: Counter[str] = Counter()
    texts = ["a b a", "b c", "a d e f g", "a a a"]
    layouts: list[dict[str, Any]] = [
        {"workers": 2, "options": gw.Options(bins=8)},
        {"workers": 5},
        {"options": gw.Options(bins=1024)},
        {},
    ]
    for text, layout in zip(texts, layouts, strict=True):
        feed.add(words(text))
        expected.update(text.split())
        run_to_end(counting(spark, feed, gw.files(output)), checkpoint, **layout)
        assert state(spark, checkpoint) == expected
    routing = History(checkpoint).intent(3).routings["counts"]  # type: ignore[union-attr]
    assert (routing.workers, routing.bins) == (5, 1024)
    by_epoch = {epoch: {r.word: r.n for r in rows} for epoch, rows in epochs(spark, output).items()}
    assert by_epoch == {
        0: {"a": 2, "b": 1},
        1: {"b": 2, "c": 1},
        2: {"a": 3, "d": 1, "e": 1, "f": 1, "g": 1},
        3: {"a": 6},
    }
    assert state(spark, checkpoint, epoch=1) == {"a": 2, "b": 2, "c": 1}
    assert not verify(checkpoint).findings


def epochs(spark: SparkSession, output: Path) -> dict[int, list[Any]]:
    rows = spark.read.parquet(str(output)).collect()
    return {epoch: [row for row in rows if row.epoch == epoch] for epoch in {r.epoch for r in rows}}


def test_state_machine_with_all_forms_of_state_and_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    ddl = "a string, b decimal(10,2), at timestamp, data binary, price long"
    feed = Feed(tmp_path / "input", ddl)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        {"a": a, "b": b, "at": noon.replace(minute=m), "data": data, "price": m}
        for m, (a, b, data) in enumerate(
            [("x", Decimal("1.00"), b"1"), (None, Decimal("1.00"), b"2"), ("x", None, b"1")] * 3
        )
    ]
    half = len(rows) // 2
    feed.add(reversed(rows[:half]))  # the order within an epoch is that of `at`
    feed.add(reversed(rows[half:]))
    job = (
        gw.stream(feed.stream(spark))
        .state_machine(
            "auctions",
            key=["a", "b"],
            function=remember,
            state={
                "profile": gw.Value("n long, at timestamp, prices array<long>"),
                "items": gw.List("price long"),
                "seen": gw.Map("data binary", "n long"),
            },
            output="a string, n long, at timestamp, prices array<long>, items array<long>, s long",
            time="at",
        )
        .to(gw.files(tmp_path / "output"))
    )
    run_to_end(job, tmp_path / "checkpoint", workers=3, options=gw.Options(bins=16))
    found = spark.read.parquet(str(tmp_path / "output")).collect()
    for key in {(row["a"], row["b"]) for row in rows}:
        mine = [row for row in rows if (row["a"], row["b"]) == key]
        for n, row in enumerate(mine, start=1):
            prices = [r["price"] for r in mine[:n]]
            at = row["at"].replace(tzinfo=None)
            wanted = (key[0], n, at, prices, prices, n)
            assert [tuple(r)[:6] for r in found if tuple(r)[:6] == wanted], wanted
    assert len(found) == len(rows)
    items = gw.read_state(spark, tmp_path / "checkpoint", "auctions", table="items")
    assert sorted(row.price for row in items.collect()) == sorted(row["price"] for row in rows)
    with pytest.raises(gw.ConfigError, match="several tables; name one of profile, items, seen"):
        gw.read_state(spark, tmp_path / "checkpoint", "auctions")


def remember(key: Any, value: Any, state: Any) -> Iterator[tuple[Any, ...]]:
    state.profile.n = (state.profile.n or 0) + 1
    state.profile.at = value.at
    state.profile.prices = [*(state.profile.prices or []), value.price]
    state.items.append(value.price)
    state.seen[value.data] = (state.seen.get(value.data) or 0) + 1
    yield (
        key.a,
        state.profile.n,
        state.profile.at,
        state.profile.prices,
        list(state.items),
        sum(n for _, n in state.seen.items()),
    )


def test_colliding_hashes_stay_apart(
    spark: SparkSession, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "KEY_HASH", lambda key: sf.length(key).cast("long"))
    for text in ("a b aa", "b c bb", "a aa c"):
        feed.add(words(text))
    run_to_end(counting(spark, feed, gw.memory("collisions")), tmp_path / "checkpoint", workers=2)
    expected = {"a": 2, "b": 2, "c": 2, "aa": 2, "bb": 1}
    assert state(spark, tmp_path / "checkpoint") == expected


def test_two_chained_operators_with_code_between(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    for text in ("a b aa", "b cc a", "a aa c"):
        feed.add(words(text))
    job = (
        gw.stream(feed.stream(spark))
        .aggregate("counts", key="word", n=gw.count())
        .transform(lambda rows: rows.selectExpr("length(word) AS size", "n"))
        .aggregate("sizes", key="size", updates=gw.count(), highest=gw.max("n"))
        .transform(lambda rows: rows.withColumn("double", sf.col("highest") * 2))
        .to(gw.files(tmp_path / "output"))
    )
    run_to_end(job, tmp_path / "checkpoint", workers=2)
    sizes = gw.read_state(spark, tmp_path / "checkpoint", "sizes").collect()
    assert {(row.size, row.updates, row.highest) for row in sizes} == {(1, 6, 3), (2, 3, 2)}
    doubles = {row.double for row in epochs(spark, tmp_path / "output")[2]}
    assert doubles == {6, 4}


def test_a_sink_that_reads_twice_in_part_or_not_at_all_changes_nothing(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    seen: dict[int, tuple[int, int]] = {}

    def sink(rows: DataFrame, epoch: int) -> None:
        if epoch == 0:
            return
        rows.limit(1).collect()
        seen[epoch] = (rows.count(), rows.count())

    for text in ("a b c d", "a b c", "a e f g"):
        feed.add(words(text))
    run_to_end(counting(spark, feed, gw.foreach_batch(sink)), tmp_path / "checkpoint", workers=4)
    assert seen == {1: (3, 3), 2: (4, 4)}
    assert state(spark, tmp_path / "checkpoint") == Counter("abcdabcaefg")


def test_initial_state_is_loaded_once(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    initial = spark.createDataFrame([("a", 10), ("z", 5)], "word string, n long")
    job = counting(spark, feed, gw.memory("initial"))
    for text in ("a b", "a z"):
        feed.add(words(text))
        run_to_end(job, tmp_path / "checkpoint", workers=3, initial={"counts": initial})
    assert state(spark, tmp_path / "checkpoint") == {"a": 12, "b": 1, "z": 6}
    assert state(spark, tmp_path / "checkpoint", epoch=-1) == {"a": 10, "z": 5}
    twice = initial.union(initial)
    with pytest.raises(gw.OperatorError, match="stands twice"):
        job.start(tmp_path / "other", initial={"counts": twice})
    with pytest.raises(gw.ConfigError, match="lacks column 'n'"):
        job.start(tmp_path / "third", initial={"counts": initial.select("word")})


def test_initial_keys_get_the_type_of_the_operator(spark: SparkSession, tmp_path: Path) -> None:
    """A hash is that of a value and its type."""
    feed = Feed(tmp_path / "input", "id long")
    feed.add([{"id": 1}, {"id": -7}])
    job = gw.stream(feed.stream(spark)).aggregate("counts", key="id", n=gw.count())
    given = spark.createDataFrame([(1, 10), (-7, 20)], "id int, n long")
    checkpoint = tmp_path / "checkpoint"
    run_to_end(job.to(gw.memory("typed")), checkpoint, workers=2, initial={"counts": given})
    rows = gw.read_state(spark, checkpoint, "counts").collect()
    assert {(row.id, row.n) for row in rows} == {(1, 11), (-7, 21)}
    text = given.withColumn("id", sf.col("id").cast("string"))
    with pytest.raises(gw.ConfigError, match=r"key column 'id' of type string, .* is int64; cast"):
        job.to(gw.memory("typed")).start(tmp_path / "other", initial={"counts": text})


def test_state_of_arrays_without_nulls(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "input", "id long, text string")
    feed.add([{"id": 1, "text": "a b"}])
    feed.add([{"id": 1, "text": "c"}, {"id": 2, "text": "d e"}])
    split = feed.stream(spark).select("id", sf.split("text", " ").alias("words"))
    job = gw.stream(split).aggregate("last", key="id", words=gw.last("words"))
    checkpoint = tmp_path / "checkpoint"
    run_to_end(job.to(gw.memory("arrays")), checkpoint, workers=2)
    rows = gw.read_state(spark, checkpoint, "last").collect()
    assert {row.id: row.words for row in rows} == {1: ["c"], 2: ["d", "e"]}
    assert not verify(checkpoint).findings


class DeathError(Exception):
    """The end of a query at a fault point."""


def dies_at(point: str, side: str, epoch: int) -> Any:
    def reach(at: str, when: str, number: int) -> None:
        if (at, when, number) == (point, side, epoch):
            raise DeathError

    return patch.object(faults, "handler", reach)


def test_a_published_epoch_is_delivered_as_it_was_computed(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    feed.add(words("a b a"))
    job = counting(spark, feed, gw.files(output))
    with dies_at("sink", "before", 0), pytest.raises(DeathError):
        run_to_end(job, checkpoint, workers=2)
    other = counting(spark, feed, gw.files(output), n=gw.count(), top=gw.max("word"))
    with pytest.raises(gw.IncompatibleError, match=r"epoch 0 was published .* once as it was"):
        run_to_end(other, checkpoint)
    run_to_end(job, checkpoint)
    (delivered,) = epochs(spark, output).values()
    assert {row.word: row.n for row in delivered} == {"a": 2, "b": 1}
    feed.add(words("c"))
    run_to_end(other, checkpoint)


@pytest.mark.parametrize("kind", ["table", "function"])
def test_an_epoch_whose_delivery_died_is_delivered_again(
    kind: str, spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """A table then holds it once; a function has got it twice, with the number of its epoch."""
    given: list[tuple[int, int]] = []
    name = f"{kind}_{tmp_path.name}".replace("-", "_")
    sinks = {
        "table": gw.table(name),
        "function": gw.foreach_batch(lambda rows, epoch: given.append((epoch, rows.count()))),
    }
    feed.add(words("a b a"))
    job = counting(spark, feed, sinks[kind])
    with dies_at("sink", "after", 0), pytest.raises(DeathError):
        run_to_end(job, tmp_path / "checkpoint", workers=2)
    feed.add(words("a"))
    run_to_end(job, tmp_path / "checkpoint")
    if kind == "function":
        assert given == [(0, 2), (0, 2), (1, 1)]
    else:
        rows = spark.table(name).collect()
        assert sorted((row.epoch, row.word, row.n) for row in rows) == [
            (0, "a", 2),
            (0, "b", 1),
            (1, "a", 3),
        ]
        spark.sql(f"DROP TABLE {name}")


def test_code_between_operators_reads_twice_and_in_part(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    def thrice(rows: DataFrame) -> DataFrame:
        return rows.union(rows).union(rows.orderBy("word").limit(1))

    for text in ("b a c", "c b"):
        feed.add(words(text))
    job = (
        gw.stream(feed.stream(spark))
        .aggregate("counts", key="word", n=gw.count())
        .transform(thrice)
        .aggregate("copies", key="word", copies=gw.count())
        .to(gw.memory("copies"))
    )
    run_to_end(job, tmp_path / "checkpoint", workers=3)
    copies = gw.read_state(spark, tmp_path / "checkpoint", "copies").collect()
    assert {row.word: row.copies for row in copies} == {"a": 3, "b": 5, "c": 4}
    assert state(spark, tmp_path / "checkpoint") == Counter("abcbc")


def test_each_epoch_is_logged_and_a_listener_that_fails_does_no_harm(
    spark: SparkSession, feed: Feed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(report: gw.EpochReport) -> None:
        raise RuntimeError("not interested")

    feed.add(words("a b a"))
    job = counting(spark, feed, gw.memory("logged"))
    with caplog.at_level("INFO", "godwit"):
        query = run_to_end(
            job,
            tmp_path / "checkpoint",
            workers=2,
            listener=fail,
            options=gw.Options(query_name="words"),
        )
    assert "words: epoch 0: 3 records in" in caplog.text
    assert "words: the listener failed in epoch 0" in caplog.text
    assert (
        repr(query)
        == f"<Query 'words' of counts in {tmp_path}/checkpoint: ended, epoch {query.epoch}>"
    )
    assert "counts: 2 workers, 2 rows changed" in caplog.text
    assert "not interested" in caplog.text
    assert state(spark, tmp_path / "checkpoint") == Counter("aba")


def test_mistakes_are_named(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    with pytest.raises(gw.ConfigError, match="no option 'windw'; did you mean 'window'"):
        counting(spark, feed, gw.console(), n=gw.count(), windw=gw.tumbling("1 minute"))
    with pytest.raises(gw.ConfigError, match="'out' is no sink; use files, table"):
        counting(spark, feed, "out")
    feed.add(words("a b a"))
    query = counting(spark, feed, gw.memory("mistakes")).start(tmp_path / "checkpoint", workers=2)
    try:
        with pytest.raises(gw.ConfigError, match="a number of workers or a Routing, not to '4'"):
            query.migrate("4")  # type: ignore[arg-type]
        with pytest.raises(gw.ConfigError, match="workers must be from 1 to 65536, not '4'"):
            query.rescale("4")  # type: ignore[arg-type]
        migration = query.migrate(4)
        migration.wait()
        assert repr(migration) == "<Migration 1 of 'counts': to 4 workers, paced:20%, done>"
    finally:
        query.stop()


def test_a_driver_that_was_taken_over_delivers_nothing(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    delivered: list[int] = []
    feed.add(words("a"))
    job = counting(spark, feed, gw.foreach_batch(lambda rows, epoch: delivered.append(epoch)))

    def take_over(point: str, side: str, epoch: int) -> None:
        if (point, side) == ("manifest", "after"):
            Journal.open(tmp_path / "checkpoint")

    with patch.object(faults, "handler", take_over), pytest.raises(gw.FencedError):
        run_to_end(job, tmp_path / "checkpoint")
    assert delivered == []
    run_to_end(job, tmp_path / "checkpoint")
    assert delivered == [0]
