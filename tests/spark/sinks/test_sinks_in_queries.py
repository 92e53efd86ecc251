"""Sinks of other systems at the end of real queries, which die, rescale and are restored."""

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from godwit import faults
from godwit.spark.sinks import lake_sink
from godwit.spark.sinks.sink import Sink
from tests.support import kafka, postgres
from tests.support.counting import run_to_end, words
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

TOLD = ("epoch", "word", "n")
Target = tuple[Callable[[], Sink], Callable[[], set[tuple[int, str, int]]]]


def told(rows: list[dict[str, object]]) -> set[tuple[int, str, int]]:
    """Epoch, word and count of every row; no row is there twice."""
    found = [(int(str(row["epoch"])), str(row["word"]), int(str(row["n"]))) for row in rows]
    assert len(found) == len(set(found))
    return set(found)


@pytest.fixture(params=["files", "delta", "postgres", "iceberg", "kafka"])
def target(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Target]:
    """How to make a sink, and what has reached it."""
    out = str(tmp_path / "out")
    match request.param:
        case "files":
            monkeypatch.setattr(lake_sink, "LARGE", 1)
            store = request.getfixturevalue("s3").store()
            yield (
                lambda: gw.files(store),
                lambda: told([row.asDict() for row in gw.read_files(spark, store).collect()]),
            )
        case "delta":
            monkeypatch.setattr(lake_sink, "LARGE", 1)  # so that tasks write files of operators
            yield (
                lambda: gw.delta(out),
                lambda: told(DeltaTable(out).to_pyarrow_table().to_pylist()),
            )
        case "iceberg":
            lake = {"type": "sql", "uri": f"sqlite:///{out}.db", "warehouse": f"file://{out}"}
            catalog = load_catalog("lake", **lake)
            yield (
                lambda: gw.iceberg("ns.counts", catalog="lake", properties=lake),
                lambda: told(catalog.load_table("ns.counts").scan().to_arrow().to_pylist()),
            )
        case "kafka":
            servers = request.getfixturevalue("kafka_cluster")
            topic = request.getfixturevalue("topic")
            yield (
                lambda: kafka.quiet(topic, servers, key="word"),
                lambda: told(kafka.values(servers, topic)),
            )
        case "postgres":
            dsn = request.getfixturevalue("dsn")
            rows = "SELECT epoch, word, n FROM counts"
            yield (
                lambda: gw.postgres(dsn, "counts"),
                lambda: told(
                    [dict(zip(TOLD, row, strict=True)) for row in postgres.query(dsn, rows)]
                ),
            )


@pytest.mark.parametrize("behind", [False, True], ids=["of files", "with code behind"])
def test_each_result_arrives_once_whatever_dies(
    spark: SparkSession, feed: Feed, tmp_path: Path, target: Target, behind: bool
) -> None:
    sink, arrived = target
    checkpoint = tmp_path / "checkpoint"

    def job() -> gw.Job:
        counts = gw.stream(feed.stream(spark)).aggregate("counts", key="word", n=gw.count())
        if behind:
            counts = counts.transform(DataFrame.distinct)
        return counts.to(sink())

    def die(point: str, side: faults.Side, epoch: int) -> None:
        if (point, side, epoch) == ("sink", "after", 1):
            raise InterruptedError

    feed.add(words("a b a"))
    feed.add(words("a c"))
    feed.add(words("c"))
    with patch.object(faults, "handler", die), pytest.raises(InterruptedError):
        run_to_end(job(), checkpoint, workers=2)
    assert arrived() == {(0, "a", 2), (0, "b", 1), (1, "a", 3), (1, "c", 1)}

    run_to_end(job(), checkpoint, workers=3)
    everything = {(0, "a", 2), (0, "b", 1), (1, "a", 3), (1, "c", 1), (2, "c", 2)}
    assert arrived() == everything

    gw.restore(checkpoint, 1)
    with pytest.raises(gw.ConfigError, match="checkpoint was restored"):
        job().start(checkpoint)
    assert arrived() == everything
