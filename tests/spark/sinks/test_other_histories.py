"""No sink mixes histories: of another query, an earlier driver, or before a restore."""

from contextlib import suppress
from itertools import product

import pytest
from pyspark.sql import SparkSession

from godwit.errors import ConfigError
from tests.support.log_samples import published
from tests.support.sink_places import SCHEMA, Place, lasts, own, rows

pytestmark = pytest.mark.spark


def test_a_driver_that_was_taken_over_wakes_up(spark: SparkSession, place: Place) -> None:
    """It changes nothing of what the later driver has delivered."""
    old, new = place.start(spark, "q"), place.start(spark, "q")
    if not lasts(old):
        return
    old.deliver(0, rows(spark, 1), "q/0/1", 1)
    new.deliver(0, rows(spark, 1), "q/0/1", 1)
    new.deliver(1, rows(spark, 2), "q/1/1", 1)
    new.deliver(2, rows(spark, 3), "q/2/2", 1)
    with suppress(ConfigError):
        old.deliver(1, rows(spark, 2), "q/1/1", 1)
    assert sorted(place.delivered()) == [(0, 1), (1, 2), (2, 3)]


def test_an_epoch_that_is_run_anew_after_a_restore(spark: SparkSession, place: Place) -> None:
    """It is refused, also one without rows: passed over, its rows would be lost."""
    sink = place.start(spark, "q")
    if not lasts(sink) or own(place):
        return
    for epoch in range(3):
        sink.deliver(epoch, rows(spark, epoch), f"q/{epoch}/1", 1)
    for epoch, anew in product((1, 2), ((7,), ())):
        with pytest.raises(ConfigError, match=f"q/{epoch}/2"):
            place.start(spark, "q").deliver(epoch, rows(spark, *anew), f"q/{epoch}/2", len(anew))
    assert sorted(place.delivered()) == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("last", [1, 2, 3], ids=["behind", "level", "ahead"])
def test_a_start_after_a_restore(spark: SparkSession, place: Place, last: int) -> None:
    """It is refused, however far the restored query has come meanwhile, with other sinks."""
    commits = published(place.checkpoint / "q", "q", 0, 1, 2)
    sink = place.start(spark, "q")
    if not lasts(sink) or own(place):
        return
    for epoch, commit in enumerate(commits):
        sink.deliver(epoch, rows(spark, epoch), commit, 1)
    place.start(spark, "q")

    restored = place.checkpoint / "restored"
    assert published(restored, "q", 0, 1) == commits[:2]
    published(restored, "q", *range(2, last + 1))
    with pytest.raises(ConfigError, match=r"restored"):
        place.sink().check(spark, SCHEMA, str(restored))
    assert sorted(place.delivered()) == [(0, 0), (1, 1), (2, 2)]


def test_outputs_of_another_query_in_the_same_place(spark: SparkSession, place: Place) -> None:
    """They are kept, unless the guarantee says that they are not."""
    first = place.start(spark, "first")
    first.deliver(0, rows(spark, 1), "first/0/1", 1)
    before = place.delivered()
    assert before == [(0, 1)]
    refusal = ""
    try:
        place.start(spark, "second").deliver(0, rows(spark, 2), "second/0/1", 1)
    except ConfigError as error:
        refusal = str(error)
    if "another query's output is refused" in first.guarantee:
        assert str(place.checkpoint / "first") in refusal
        assert place.delivered() == before
    else:
        assert (0, 2) in place.delivered()
