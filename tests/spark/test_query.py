"""Whole queries on real Spark: operators, restarts, migrations, control and refusals."""

import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from godwit import faults
from godwit.log.history import History
from godwit.log.journal import Journal
from godwit.log.layout import HOME, SPARK
from godwit.runtime.verify import verify
from godwit.spark import route
from godwit.spark.query import Progress
from tests.spark.feed import Feed

pytestmark = pytest.mark.spark

Words = dict[str, int]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "input", "word string")


def words(text: str) -> list[dict[str, Any]]:
    return [{"word": word} for word in text.split()]


def counting(spark: SparkSession, feed: Feed, sink: Any, **functions: Any) -> gw.Job:
    counts = functions or {"n": gw.count()}
    return gw.stream(feed.stream(spark)).aggregate("counts", key="word", **counts).to(sink)


def run_to_end(job: gw.Job, checkpoint: Path, **options: Any) -> gw.Query:
    query = job.start(checkpoint, available_now=True, **options)
    query.await_termination()
    return query


def state(spark: SparkSession, checkpoint: Path, **options: Any) -> Words:
    rows = gw.read_state(spark, checkpoint, "counts", **options)
    return {row.word: row.n for row in rows.collect()}


def test_counts_over_restarts_with_other_workers_and_bins(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    expected: Counter[str] = Counter()
    texts = ["a b a", "b c", "a d e f g", "a a a"]
    layouts: list[dict[str, Any]] = [{"workers": 2, "bins": 8}, {"workers": 5}, {"bins": 1024}, {}]
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
    run_to_end(job, tmp_path / "checkpoint", workers=3, bins=16)
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
    with pytest.raises(gw.ConfigError, match="several tables: profile, items, seen"):
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


def test_a_migration_of_an_idle_query_completes(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    feed.add(words("a b c d e f g h"))
    reports: list[gw.EpochReport] = []
    query = counting(spark, feed, gw.memory("idle")).start(
        tmp_path / "checkpoint", workers=2, listener=reports.append
    )
    try:
        query.process_all_available()
        assert query.routing().workers == 2
        migration = query.migrate(4, strategy="batched:1000")
        assert migration.wait(timeout=60) == "done"
        assert migration.progress == Progress(2048, 2048, "done")
        query.process_all_available()
        moved = [report.operators["counts"].moved for report in reports]
        assert [bins for bins in moved if bins] == [1000, 1000, 48]
        assert query.routing() == gw.Routing.even(4096, 2).spread(4)
        begun = query.epoch
        assert begun is not None
        later = query.schedule([gw.Update(begun + 3, 0, 3), gw.Update(begun + 5, 1, 2)])
        assert later.epoch == begun + 5
        assert later.wait(timeout=60) == "done"
        owners = query.routing().owners
        assert (owners[0], owners[1], owners[2]) == (3, 2, 0)
        shrunk = query.migrate(1)
        assert shrunk.wait(timeout=60) == "done"
    finally:
        query.stop()
    assert state(spark, tmp_path / "checkpoint") == Counter("abcdefgh")
    assert {
        r._worker for r in gw.read_state(spark, tmp_path / "checkpoint", "counts").collect()
    } == {0}
    assert not verify(tmp_path / "checkpoint").findings


def test_refused_requests_change_nothing(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.add(words("a b"))
    query = counting(spark, feed, gw.memory("refused")).start(
        tmp_path / "checkpoint", workers=2, bins=16
    )
    try:
        query.process_all_available()
        epoch, before = query.epoch, query.routing()
        assert epoch is not None
        refused: list[tuple[str, Iterable[gw.Update]]] = [
            ("has begun", [gw.Update(epoch, 0, 1)]),
            ("unknown bin 16", [gw.Update(epoch + 1, 16, 1)]),
            ("unknown worker 2", [gw.Update(epoch + 9, 0, 1), gw.Update(epoch + 1, 0, 2)]),
            ("no update", []),
        ]
        for message, updates in refused:
            with pytest.raises(gw.RefusedError, match=message):
                query.schedule(updates)
        with pytest.raises(gw.RefusedError, match="16"):
            query.migrate(gw.Routing.even(32, 2))
        with pytest.raises(gw.RefusedError, match="unknown operator 'sums'"):
            query.migrate(3, operator="sums")
        assert query.routing() == before
        assert not list((tmp_path / "checkpoint" / HOME / "control").iterdir())
    finally:
        query.stop()


def test_an_available_now_run_ends_with_an_open_migration_that_goes_on_later(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    feed.add(words("a b"))
    feed.add(words("b c"))
    job = counting(spark, feed, gw.memory("available"))
    query = job.start(tmp_path / "checkpoint", workers=2, bins=16, available_now=True)
    migration = query.schedule([gw.Update(5, bin, 1) for bin in range(16)])
    query.await_termination()
    assert migration.wait() == "open"
    assert query.epoch == 1
    restarted = job.start(tmp_path / "checkpoint")
    try:
        assert restarted.await_epoch(5, timeout=60)
        assert set(restarted.routing().owners) == {1}
    finally:
        restarted.stop()
    assert state(spark, tmp_path / "checkpoint") == Counter("abbc")


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
        assert [receipt["fetched"] for receipt in manifest.receipts["counts"]] == [0, 0]
    assert state(spark, tmp_path / "checkpoint") == dict.fromkeys("abcdef", 3)


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
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def is_python_worker(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


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
    shutil.rmtree(checkpoint / SPARK)
    with pytest.raises(gw.CheckpointError, match="Spark's log is empty or was deleted"):
        job.start(checkpoint)
    shutil.copytree(backup / SPARK, checkpoint / SPARK)
    with pytest.raises(gw.CheckpointError, match="Godwit published epoch 1"):
        job.start(checkpoint)
    gw.restore(checkpoint, 0)
    run_to_end(job, checkpoint)
    assert state(spark, checkpoint) == Counter("abc")


def test_restoring_an_epoch_and_going_on(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    job = counting(spark, feed, gw.files(output))
    for text in ("a", "b", "c"):
        feed.add(words(text))
    run_to_end(job, checkpoint, workers=2)
    gw.restore(checkpoint, 0)
    with pytest.raises(gw.DamagedFileError, match="another history"):
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
        ({"bins": 100}, "power of two"),
        ({"workers": 0}, "workers must be"),
        ({"retention": 0}, "retention"),
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


def test_2_20_bins_and_a_scattered_routing(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.add(words("a b c d"))
    query = counting(spark, feed, gw.memory("many")).start(
        tmp_path / "checkpoint", workers=2, bins=1 << 20
    )
    try:
        query.process_all_available()
        owners = np.random.default_rng(7).integers(0, 3, 1 << 20).astype(np.int32)
        assert query.migrate(gw.Routing(owners, 3)).wait(timeout=120) == "done"
        feed.add(words("a b c d e"))
        query.process_all_available()
    finally:
        query.stop()
    assert state(spark, tmp_path / "checkpoint") == {"a": 2, "b": 2, "c": 2, "d": 2, "e": 1}
    assert not verify(tmp_path / "checkpoint").findings
