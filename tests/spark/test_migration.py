"""Migrations of a running query: idle ones, refused ones, open ones, and many bins."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.api.handles import MigrationProgress
from godwit.inspect.audit import verify
from godwit.log.layout import HOME
from godwit.model.hashing import hash_rows
from tests.support.counting import counting, state, words
from tests.support.feed import Feed

pytestmark = pytest.mark.spark


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
        assert migration.progress == MigrationProgress(2048, 2048, "done")
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
        tmp_path / "checkpoint", workers=2, options=gw.Options(bins=16)
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
    query = job.start(
        tmp_path / "checkpoint", workers=2, options=gw.Options(bins=16), trigger=gw.available_now()
    )
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
    feed.add(words("c d"))
    query = job.start(tmp_path / "checkpoint", trigger=gw.available_now())
    stepwise = query.migrate(gw.Routing.even(16, 1), strategy="fluid")
    query.await_termination()
    assert stepwise.wait() == "open"
    arrived, bins = stepwise.progress.arrived, stepwise.progress.bins
    assert arrived < bins == 16
    restarted = job.start(tmp_path / "checkpoint")
    try:
        found = restarted.migration()
        assert found is not None
        assert (found.id, found.progress.arrived) == (stepwise.id, arrived)
        found.abort()
        assert found.wait(timeout=60) == "aborted"
    finally:
        restarted.stop()
    assert state(spark, tmp_path / "checkpoint") == Counter("abbccd")


def test_2_20_bins_and_a_scattered_routing(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.add(words("a b c d"))
    query = counting(spark, feed, gw.memory("many")).start(
        tmp_path / "checkpoint", workers=2, options=gw.Options(bins=1 << 20)
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


def test_planned_migrations_keep_the_load_within_what_was_asked_for(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """Of a skewed stream: 100 records of the first key, 50 of the second, 33 of the third."""
    stream = [f"x{rank}" for rank in range(50) for _ in range(100 // (rank + 1))]
    feed.add(words(" ".join(stream)))
    job = counting(spark, feed, gw.memory("planned"))
    query = job.start(tmp_path / "checkpoint", workers=2, options=gw.Options(bins=256))
    hashes = hash_rows(pa.table({"word": stream}))

    def loads(workers: int) -> list[float]:
        """In parts of the mean of so many workers."""
        routing = query.routing()
        records = np.bincount(routing.owners_at(hashes), minlength=routing.workers)
        shares: list[float] = (records * workers / len(stream)).tolist()
        return shares

    try:
        query.process_all_available()
        assert max(loads(2)) > 1.05
        assert query.rebalance(0.05, strategy="all-at-once").wait(timeout=60) == "done"
        assert max(loads(2)) <= 1.05
        assert query.rescale(4, tau=0.1).wait(timeout=60) == "done"
        assert query.routing().workers == 4
        assert max(loads(4)) <= 1.1
        assert query.drain(1, tau=0.1, strategy="batched:8").wait(timeout=60) == "done"
        assert len(query.routing().bins_of(1)) == 0
        assert max(loads(3)) <= 1.1
        feed.add(words(" ".join(stream)))
        query.process_all_available()
    finally:
        query.stop()
    assert state(spark, tmp_path / "checkpoint") == Counter(stream * 2)
    assert not verify(tmp_path / "checkpoint").findings


def test_a_program_that_starts_again_goes_on_with_its_migration(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    feed.add(words("a b c"))
    job = counting(spark, feed, gw.memory("again"))
    query = job.start(tmp_path / "checkpoint", workers=2, options=gw.Options(bins=4096))
    query.process_all_available()
    asked = query.migrate(4, strategy="fluid")
    query.await_epoch((query.epoch or 0) + 1)
    query.stop()
    # The same program.
    again = job.start(tmp_path / "checkpoint", workers=2, options=gw.Options(bins=4096))
    try:
        found = again.migration()
        assert found is not None
        assert (found.id, found.progress.bins) == (asked.id, 2048)
        found.abort(rollback=True)
        assert found.wait(timeout=60) == "rolled back"
        assert found.progress == MigrationProgress(0, 2048, "rolled back")
        assert again.migration() is None
    finally:
        again.stop()


def test_bins_split_while_two_operators_move(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    """In the first epoch of a paced migration of both, which have different numbers of bins."""
    counts = gw.stream(feed.stream(spark)).aggregate("counts", key="word", n=gw.count())
    sizes = counts.aggregate("sizes", key="n", words=gw.count())
    outputs = {name: tmp_path / name for name in ("counts", "sizes")}
    seen: list[tuple[int, int]] = []  # bins in the reports of epochs that move

    def listen(report: gw.EpochReport) -> None:
        if report.operators["counts"].migration is not None:
            if not seen:
                query.split(256, "counts")
                query.split(8, "sizes")
            seen.append((query.routing("counts").bins, query.routing("sizes").bins))

    job = gw.query(counts.to(gw.files(outputs["counts"])), sizes.to(gw.files(outputs["sizes"])))
    query = job.start(
        tmp_path / "checkpoint", workers=2, options=gw.Options(bins=64), listener=listen
    )
    try:
        feed.add(words("a b c d e f g h"))
        query.process_all_available()
        query.split(4, "sizes")
        migration = query.migrate(4)
        assert migration.operators == ("counts", "sizes")
        for text in ("a b", "c c d"):
            feed.add(words(text))
            query.process_all_available()
        assert migration.wait(timeout=60) == "done"
        assert seen[0] == (256, 8)
        assert query.routing("counts") == gw.Routing.even(64, 2).spread(4).with_bins(256)
        assert query.routing("sizes") == gw.Routing.even(4, 2).spread(4).with_bins(8)
        query.split(64)
        feed.add(words("h"))
        query.process_all_available()
        with pytest.raises(gw.ConfigError, match="name one of the query's operators"):
            query.routing()
    finally:
        query.stop()
    found = {name: spark.read.parquet(str(place)).collect() for name, place in outputs.items()}
    told = [f"{row.word}{row.n}" for row in found["counts"]]
    assert Counter(told) == Counter(["a1", "a2", "b1", "b2", "c1", "c3", "d1", "d2"]) + Counter(
        ["e1", "f1", "g1", "h1", "h2"]
    )
    assert Counter((row.n, row.words) for row in found["sizes"]) == Counter(
        [(1, 8), (2, 2), (2, 3), (3, 1), (2, 4)]
    )
    assert not verify(tmp_path / "checkpoint").findings
