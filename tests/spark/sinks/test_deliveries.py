"""Every sink, and one of a user's own, has each row as often as its guarantee says."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.spark.sinks.sink import FileTaker, Sink
from tests.support.sink_places import FromFiles, Place, Sqlite, rows

pytestmark = pytest.mark.spark


def test_it_is_a_sink_that_states_its_guarantee(spark: SparkSession, place: Place) -> None:
    sink = place.sink()
    assert isinstance(sink, Sink)
    assert sink.guarantee.startswith(("exactly once", "at least once"))


def test_an_epoch_that_is_delivered_again(spark: SparkSession, place: Place) -> None:
    """By the same process, and by one that goes on after its death."""
    sink = place.start(spark, "q")
    sink.deliver(0, rows(spark, 1, 2), "q/0/1", 2)
    sink.deliver(1, rows(spark, 3), "q/1/1", 1)
    sink.deliver(1, rows(spark, 3), "q/1/1", 1)
    delivered = place.delivered()
    if sink.guarantee.startswith("exactly once"):
        assert sorted(delivered) == [(0, 1), (0, 2), (1, 3)]
    assert set(delivered) == {(0, 1), (0, 2), (1, 3)}

    if "within this process" in sink.guarantee:
        return
    place.start(spark, "q").deliver(1, rows(spark, 3), "q/1/1", 1)
    later = place.delivered()
    if sink.guarantee.startswith("exactly once"):
        assert sorted(later) == sorted(delivered)
    assert (1, 3) in later


def test_an_epoch_without_rows(spark: SparkSession, place: Place) -> None:
    sink = place.start(spark, "q")
    sink.deliver(0, rows(spark), "q/0/1", 0)
    sink.deliver(0, rows(spark), "q/0/1", 0)
    sink.deliver(1, rows(spark, 1), "q/1/1", 1)
    sink.deliver(2, rows(spark), "q/2/1", 0)
    assert place.delivered() == [(1, 1)]


def test_a_delivery_that_fails_in_the_middle(spark: SparkSession, place: Place) -> None:
    """Nothing of it is there, and once it is delivered, all of it is there once."""
    sink = place.start(spark, "q")
    sink.deliver(0, rows(spark, 1), "q/0/1", 1)
    if not isinstance(sink, FromFiles):  # files do not fail
        number = "IF(id = 3, raise_error('dies')::bigint, id)"
        failing = spark.range(2, 4, 1, 2).selectExpr("concat('k', id) AS k", f"{number} AS n")
        with pytest.raises(Exception, match="dies"):
            sink.deliver(1, failing, "q/1/1", 2)
        if "at least once" not in sink.guarantee:
            assert place.delivered() == [(0, 1)]
    sink.deliver(1, rows(spark, 2, 3), "q/1/1", 2)
    assert sorted(place.delivered())[-3:] == [(0, 1), (1, 2), (1, 3)]


def test_what_was_put_out_is_not_what_the_last_operator_counted(
    spark: SparkSession, place: Place
) -> None:
    """DataFrame code behind the last operator adds rows, and takes some away."""
    sink = place.start(spark, "q")
    sink.deliver(0, rows(spark, 1, 2), "q/0/1", 0)
    sink.deliver(1, rows(spark), "q/1/1", 5)
    assert sorted(place.delivered()) == [(0, 1), (0, 2)]


def test_a_sink_takes_files_only_if_it_says_so(tmp_path: Path) -> None:
    """A method of the same name is not enough: it may be another thing altogether."""

    class Own(Sqlite):
        def deliver_files(self, paths: list[Path]) -> None: ...

    assert isinstance(gw.files(tmp_path), FileTaker)
    assert not isinstance(Own(tmp_path), FileTaker)
