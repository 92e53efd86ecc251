"""A record crosses few borders between rooms, and the docs name each of them."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from godwit.api.stream import Stream
from godwit.model.ids import WorkerId
from godwit.model.receipt import Receipt
from godwit.spark.epoch import Engine
from godwit.testing import Simulation
from godwit.worker.work import Work
from tests.support.crossings import Crossings
from tests.support.feed import Feed

DOCS = Path(__file__).parents[2] / "docs/internals/record.md"
EPOCHS = 3  # of which the first makes what the others find


def words(epoch: int) -> list[dict[str, object]]:
    """Two seconds after those of the epoch before, whose windows they close."""
    at = datetime(2026, 1, 1, 0, 0, 2 * epoch, tzinfo=UTC)
    return [{"word": word, "at": at} for word in ("to", "be", "or", "not", "to", "be")]


def job(words: Stream) -> Stream:
    """Sliding windows, keys that leave, and behind both a join: state that waits in all of them."""
    counts = words.aggregate(
        "counts",
        key="word",
        window=gw.sliding("2 seconds", "1 second"),
        time="at",
        delay="0 s",
        n=gw.count(),
    )
    firsts = words.deduplicate("firsts", key="word", time="at", within="1 second", delay="0 s")
    return counts.join(
        "seen",
        firsts,
        on="word",
        within=("-9 s", "9 s"),
        time=("window_time", "at"),
        delay="0 s",
    )


@pytest.mark.spark
def test_the_docs_name_all_crossings_and_they_are_few(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(tmp_path / "input", "word string, at timestamp")
    on_driver = Crossings()
    epoch = Engine.__call__

    def see_epoch(engine: Engine, batch: DataFrame, number: int) -> None:
        if number == 0:
            return epoch(engine, batch, number)
        with on_driver:
            return epoch(engine, batch, number)

    def deliver(rows: DataFrame, number: int) -> None:
        on_driver.stop()  # here the way of a record ends

    monkeypatch.setattr(Engine, "__call__", see_epoch)
    query = (
        job(gw.stream(feed.stream(spark)))
        .to(gw.foreach_batch(deliver))
        .start(tmp_path / "checkpoint", workers=2)
    )
    for number in range(EPOCHS):
        feed.add(words(number))
        query.process_all_available()
    query.stop()

    there = {("spark", "worker")} | on_driver.pairs | seen_on_workers(monkeypatch)
    told = re.findall(r"^\| `(\w+)` → `(\w+)` \|", DOCS.read_text(), re.MULTILINE)
    assert sorted(told) == sorted(there)
    assert len(told) < 14


def seen_on_workers(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Spark runs workers in other processes; the simulation runs the same ones in this one."""
    crossings = Crossings()
    run = Work.run

    def see_run(work: Work, worker: WorkerId, batches: Iterable[pa.RecordBatch]) -> Receipt:
        if work.epoch == 0:
            return run(work, worker, batches)
        with crossings:
            return run(work, worker, batches)

    monkeypatch.setattr(Work, "run", see_run)
    simulation = Simulation(job(gw.stream("word string, at timestamp")).to(gw.files("output")))
    for number in range(EPOCHS):
        simulation.feed(words(number))
    return crossings.pairs
