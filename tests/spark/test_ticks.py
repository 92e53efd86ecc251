"""An idle stream runs an epoch for a tick, and only then."""

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from godwit.log.layout import TICKS
from godwit.log.ticks import SeenTicks
from godwit.spark.ticks import with_ticks
from godwit.storage.local import LocalStore

SCHEMA = "n long, at timestamp"


class Stream:
    """A stream of the files of a directory, and the epochs that ran."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.home = home
        self.input = home / "input"
        self.input.mkdir()
        self.ticks = home / "ticks"
        self.ticks.mkdir()
        self.epochs: list[tuple[int, list[int]]] = []
        self.after: Callable[[], None] = lambda: None
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        self.source = reader.json(str(self.input)).withWatermark("at", "1 minute")

    def write(self, n: int) -> None:
        row = {"n": n, "at": f"2024-01-01T00:{n:02}:00Z"}
        file = self.input / f"{n}.json"
        file.write_text(json.dumps(row))
        os.utime(file, (n, n))  # Spark reads older files first

    def tick(self) -> None:
        (self.ticks / uuid.uuid4().hex).write_text("tick")

    def start(self, **trigger: bool) -> StreamingQuery:
        writer = with_ticks(self.source, f"file://{self.ticks}").writeStream.foreachBatch(self._run)
        writer = writer.option("checkpointLocation", str(self.home / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def _run(self, batch: DataFrame, epoch: int) -> None:
        self.epochs.append((epoch, [row.n for row in batch.select("n").collect()]))
        self.after()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


@pytest.mark.spark
def test_an_idle_stream_runs_an_epoch_for_a_tick_and_only_then(stream: Stream) -> None:
    query = stream.start()
    query.processAllAvailable()
    assert stream.epochs == []
    stream.tick()
    query.processAllAvailable()
    assert stream.epochs == [(0, [])]
    stream.write(7)
    query.processAllAvailable()
    query.stop()
    assert stream.epochs == [(0, []), (1, [7])]

    query = stream.start()  # the tick was seen, and is not seen again
    query.processAllAvailable()
    assert stream.epochs == [(0, []), (1, [7])]
    stream.tick()
    query.processAllAvailable()
    query.stop()
    assert stream.epochs == [(0, []), (1, [7]), (2, [])]


def test_ticks_are_deleted_when_an_epoch_that_has_read_them_is_committed(tmp_path: Path) -> None:
    """Spark lists them between the begins of two epochs, and commits an epoch before the next."""
    files = LocalStore(tmp_path)
    files.make(TICKS)
    seen, there = SeenTicks(files), []
    for epoch in range(4):
        files.replace(f"{TICKS}/{epoch}", b"tick")
        seen.sweep()
        there.append(files.names(TICKS))
    assert there == [["0"], ["0", "1"], ["1", "2"], ["2", "3"]]


@pytest.mark.spark
def test_available_now_ends_although_ticks_come_meanwhile(stream: Stream) -> None:
    stream.after = stream.tick
    for n in (1, 2, 3):
        stream.write(n)
    assert stream.start(availableNow=True).awaitTermination(60)
    assert stream.epochs == [(0, [1]), (1, [2]), (2, [3])]

    assert stream.start(availableNow=True).awaitTermination(60)
    assert stream.epochs[3:] == [(3, [])]


@pytest.mark.spark
def test_the_records_and_their_schema_stay_as_they_are(stream: Stream) -> None:
    odd = stream.source.selectExpr(
        "n",
        "at",
        "coalesce(n, 0L) AS `never.null`",
        "map('n', n) AS m",
        "parse_json('[1]') AS v",
        "struct(n, 1 AS one) AS s",
        "make_interval(1) AS i",
    )
    stream.source = odd
    ticking = with_ticks(odd, f"file://{stream.ticks}")
    assert [(f.name, f.dataType) for f in ticking.schema] == [
        (f.name, f.dataType) for f in odd.schema
    ]

    stream.write(10)
    query = stream.start()
    query.processAllAvailable()
    stream.tick()
    query.processAllAvailable()
    watermark = query.recentProgress[-1]["eventTime"]["watermark"]
    query.stop()
    assert stream.epochs == [(0, [10]), (1, [])]
    assert watermark == "2024-01-01T00:09:00.000Z"
