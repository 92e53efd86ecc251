"""What a source has and the query has not read yet is told in reports and by `status`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import godwit as gw
from godwit.inspect.overview import Overview
from godwit.inspect.report import EpochReport
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

RECORDS, AT_ONCE = 40, 10


class Queue(DataSource):
    """Holds all its records from the start, and gives a few at once."""

    @classmethod
    def name(cls) -> str:
        return "queue"

    def schema(self) -> str:
        return "word string"

    def streamReader(self, schema: Any) -> "Reader":  # noqa: N802
        return Reader()


class Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"read": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"read": min(RECORDS, start["read"] + AT_ONCE)}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"read": RECORDS}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["read"], end["read"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield (f"word {partition.value}",)


def test_a_source_that_has_more_than_an_epoch_reads(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(Queue)
    reports: list[EpochReport] = []
    query = (
        gw.stream(spark.readStream.format("queue").load())
        .aggregate("counts", key="word", n=gw.count())
        .to(gw.foreach_batch(lambda rows, epoch: None))
        .start(tmp_path / "checkpoint", workers=2, listener=reports.append)
    )
    last = RECORDS // AT_ONCE - 1
    query.process_all_available()
    query.stop()
    assert [report.backlog for report in reports[1:]] == [
        RECORDS - (epoch + 1) * AT_ONCE for epoch in range(1, last + 1)
    ]
    assert ", 20 waiting; " in str(reports[1])
    assert Overview.of(tmp_path / "checkpoint").backlog == 0


def test_files_do_not_tell(spark: SparkSession, tmp_path: Path, feed: Feed) -> None:
    reports: list[EpochReport] = []
    query = (
        gw.stream(feed.stream(spark))
        .aggregate("counts", key="word", n=gw.count())
        .to(gw.foreach_batch(lambda rows, epoch: None))
        .start(tmp_path / "checkpoint", workers=2, listener=reports.append)
    )
    for word in ("a", "b"):
        feed.add([{"word": word}])
        query.process_all_available()
    query.stop()
    assert [report.backlog for report in reports] == [None, None]
