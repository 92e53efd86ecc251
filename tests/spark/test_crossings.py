"""A record crosses few borders between rooms, and the docs name each of them."""

import re
from collections.abc import Iterable
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
WORDS = [{"word": word} for word in ("to", "be", "or", "not", "to", "be")]
LAST = 2  # the epoch to look at


def counts(words: Stream) -> Stream:
    return words.aggregate("counts", key="word", n=gw.count())


@pytest.mark.spark
def test_the_docs_name_all_crossings_and_they_are_few(
    spark: SparkSession, tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_driver = Crossings()
    epoch = Engine.__call__

    def see_epoch(engine: Engine, batch: DataFrame, number: int) -> None:
        if number < LAST:
            return epoch(engine, batch, number)
        with on_driver:
            return epoch(engine, batch, number)

    def deliver(rows: DataFrame, number: int) -> None:
        if number == LAST:
            on_driver.stop()  # here the way of a record ends

    monkeypatch.setattr(Engine, "__call__", see_epoch)
    query = (
        counts(gw.stream(feed.stream(spark)))
        .to(gw.foreach_batch(deliver))
        .start(tmp_path / "checkpoint", workers=2)
    )
    for _ in range(LAST + 1):
        feed.add(WORDS)
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
        if work.epoch < LAST:
            return run(work, worker, batches)
        with crossings:
            return run(work, worker, batches)

    monkeypatch.setattr(Work, "run", see_run)
    simulation = Simulation(counts(gw.stream("word string")).to(gw.files("output")))
    for _ in range(LAST + 1):
        simulation.feed(WORDS)
    return crossings.pairs
