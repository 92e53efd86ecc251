"""Control as data: updates that come as a stream next to the records."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit import faults
from godwit.errors import ConfigError
from godwit.log.history import History
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

UPDATES = "id string, operator string, epoch long, bin long, worker long, workers long"


def update(id: str, bin: int, worker: int, **others: Any) -> dict[str, Any]:
    return {"id": id, "bin": bin, "worker": worker, "operator": None, "workers": None} | {
        "epoch": None,
        **others,
    }


@pytest.fixture
def words(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "words", "word string")


@pytest.fixture
def updates(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "updates", UPDATES)


def start(spark: SparkSession, words: Feed, updates: Feed, tmp_path: Path) -> gw.Query:
    job = (
        gw.stream(words.stream(spark))
        .aggregate("counts", key="word", n=gw.count())
        .to(gw.files(tmp_path / "output"))
    )
    checkpoint = tmp_path / "checkpoint"
    return job.start(
        checkpoint, workers=2, options=gw.Options(bins=4), control=updates.stream(spark)
    )


def test_updates_take_effect_in_the_next_epoch_or_at_theirs_and_an_id_counts_once(
    spark: SparkSession, words: Feed, updates: Feed, tmp_path: Path
) -> None:
    query = start(spark, words, updates, tmp_path)
    words.add([{"word": "a"}, {"word": "b"}])
    query.process_all_available()
    updates.add([update("one", 0, 2, workers=3), update("one", 3, 2, workers=3)])
    assert query.await_epoch(2, 60)
    updates.add([update("one", 0, 0), update("two", 1, 1, epoch=6)])
    assert query.await_epoch(6, 60)  # an update that waits keeps an idle query going
    query.stop()
    history = History(tmp_path / "checkpoint")
    owners: dict[int, list[int]] = {
        epoch: intent.routings["counts"].owners.tolist()
        for epoch in history.epochs()
        if (intent := history.intent(epoch))
    }
    assert owners[1] == [0, 0, 1, 1]  # the epoch that read the updates
    assert owners[2] == owners[5] == [2, 0, 1, 2]
    assert owners[6] == [2, 1, 1, 2]


def test_one_control_can_be_shared_by_all_operators(
    spark: SparkSession, words: Feed, updates: Feed, tmp_path: Path
) -> None:
    job = (
        gw.stream(words.stream(spark))
        .aggregate("counts", key="word", n=gw.count())
        .transform(lambda rows: rows.selectExpr("n"))
        .aggregate("sizes", key="n", words=gw.count())
        .to(gw.files(tmp_path / "output"))
    )
    checkpoint = tmp_path / "checkpoint"
    query = job.start(
        checkpoint, workers=2, options=gw.Options(bins=4), control=updates.stream(spark)
    )
    words.add([{"word": word} for word in "abcde"])
    query.process_all_available()
    updates.add([update("all", 0, 2, workers=3), update("own", 3, 0, operator="sizes")])
    assert query.await_epoch(2, 60)
    words.add([{"word": word} for word in "abcde"])
    query.process_all_available()
    query.stop()
    assert query.routing("counts").owners.tolist() == [2, 0, 1, 1]
    assert query.routing("sizes").owners.tolist() == [2, 0, 1, 0]
    assert {row.n for row in gw.read_state(spark, checkpoint, "counts").collect()} == {2}
    found = gw.read_state(spark, checkpoint, "sizes").select("n", "words").collect()
    assert sorted(map(tuple, found)) == [(1, 5), (2, 5)]


def test_what_cannot_be_is_refused_and_changes_nothing(
    spark: SparkSession, words: Feed, updates: Feed, tmp_path: Path
) -> None:
    query = start(spark, words, updates, tmp_path)
    updates.add([update("bin", 9, 0), update("other", 0, 1, operator="sums")])
    words.add([{"word": "a"}])
    query.process_all_available()
    words.add([{"word": "a"}])
    query.process_all_available()
    query.stop()
    history = History(tmp_path / "checkpoint")
    intent = history.intent(max(history.intents()))
    assert intent is not None
    assert sorted(intent.sources) == ["counts:bin", "sums:other"]
    reasons = " ".join(intent.refused.values())
    assert "bin 9" in reasons
    assert "unknown operator 'sums'" in reasons
    assert query.routing().owners.tolist() == [0, 0, 1, 1]


def test_rows_that_make_no_sense_do_not_stop_the_query(
    spark: SparkSession, words: Feed, tmp_path: Path
) -> None:
    texts = Feed(tmp_path / "updates", "id string, bin string, worker string")
    texts.add([{"id": "bad", "bin": "x", "worker": "1"}, {"id": None, "bin": "0", "worker": "1"}])
    texts.add(
        [{"id": "torn", "bin": "0", "worker": "0"}, {"id": "torn", "bin": "0", "worker": "1"}]
    )
    texts.add([{"id": "good", "bin": "0", "worker": "1"}])
    query = start(spark, words, texts, tmp_path)
    query.process_all_available()
    words.add([{"word": "a"}])
    query.process_all_available()
    query.stop()
    assert query.routing().owners.tolist() == [1, 0, 1, 1]


def test_an_epoch_that_is_delivered_again_asks_no_second_time(
    spark: SparkSession, words: Feed, updates: Feed, tmp_path: Path
) -> None:
    query = start(spark, words, updates, tmp_path)

    def die(point: str, side: faults.Side, epoch: int) -> None:
        if (point, side, epoch) == ("sink", "after", 0):
            raise RuntimeError("here")

    faults.handler = die
    try:
        words.add([{"word": "a"}])
        updates.add([update("one", 0, 1)])
        with pytest.raises(RuntimeError, match="here"):
            query.process_all_available()
    finally:
        faults.handler = None
    query = start(spark, words, updates, tmp_path)
    query.process_all_available()
    words.add([{"word": "a"}])
    query.process_all_available()
    query.stop()
    assert query.routing().owners.tolist() == [1, 0, 1, 1]
    history = History(tmp_path / "checkpoint")
    assert history.requests.ids() == [1]


def test_a_control_that_is_none_is_refused(
    spark: SparkSession, words: Feed, updates: Feed, tmp_path: Path
) -> None:
    job = gw.stream(words.stream(spark)).aggregate("counts", key="word", n=gw.count())
    console = job.to(gw.console())
    with pytest.raises(ConfigError, match="control must be a streaming DataFrame"):
        console.start(tmp_path / "c", control=spark.range(3))
    with pytest.raises(ConfigError, match="control lacks column 'id'"):
        console.start(tmp_path / "c", control=words.stream(spark))
    assert not (tmp_path / "c").exists()
