"""The auction house as a source of Spark: batch, stream, restart."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.workloads.nexmark.events import Auctions
from lab.workloads.rate import Rate
from lab.workloads.source import register

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def test_a_batch_has_the_events_of_its_seed(spark: SparkSession) -> None:
    rows = spark.read.format("nexmark").options(events=1000, seed=3, rate="1k").load()
    expected = Auctions(seed=3, rate=Rate.parse("1k")).events(0, 1000).to_pylist()
    assert [row.asDict(recursive=True)["bid"] for row in rows.orderBy("event").collect()] == [
        event["bid"] for event in expected
    ]


def test_a_stream_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    def run(count: int) -> None:
        source = spark.readStream.format("numbered")
        events = source.options(events=count, rate="1M", epochEvents=2000).load()
        query = (
            events.select("event")
            .writeStream.format("parquet")
            .options(path=str(tmp_path / "rows"), checkpointLocation=str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        query.stop()

    run(2500)
    run(5000)
    found = spark.read.parquet(str(tmp_path / "rows")).orderBy("event").collect()
    assert [row.event for row in found] == list(range(5000))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("speed", "1", "nexmark has no option 'speed'"),
        ("seed", "one", "is a number"),
        ("rate", "fast", "is no rate"),
    ],
)
def test_wrong_options_are_refused(
    spark: SparkSession, option: str, value: str, message: str
) -> None:
    with pytest.raises(Exception, match=message):
        spark.read.format("nexmark").option("events", 10).option(option, value).load().count()
