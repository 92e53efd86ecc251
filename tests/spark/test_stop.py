"""`godwit stop` on a busy query: the epoch that takes it in is the last, and it is whole."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.cli import main
from godwit.log.history import History
from godwit.log.spark_log import newest_commit
from godwit.storage.local import LocalStore
from tests.support.counting import counting, run_to_end, state, words
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

FILES = 60  # more than it reads until it stops


def test_a_busy_query_stops_between_two_epochs_and_goes_on_at_its_next_start(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    for _ in range(FILES):
        feed.add(words("a b a"))
    query = counting(spark, feed, gw.memory("stopped")).start(
        checkpoint, workers=2, options=gw.Options(bins=16)
    )
    assert query.await_epoch(0)
    assert main(["stop", str(checkpoint), "--wait"]) == 0
    assert query.await_termination() is True
    assert not query.is_active
    history = History(checkpoint)
    last = query.epoch
    assert last is not None
    assert last < FILES - 1
    assert newest_commit(LocalStore(checkpoint / "spark")) == last == max(history.intents())

    rest = gw.stream(feed.stream(spark, FILES)).aggregate("counts", key="word", n=gw.count())
    run_to_end(rest.to(gw.memory("stopped_again")), checkpoint)
    assert state(spark, checkpoint) == {"a": 2 * FILES, "b": FILES}
