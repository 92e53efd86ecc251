"""What a sink makes of a start with another output: it delivers it, or refuses it by name."""

import re

import pytest
from pyspark.sql import SparkSession

from godwit.errors import ConfigError
from godwit.model.schema import parse
from godwit.spark.types import to_spark
from tests.support.sink_places import Place, Sqlite, lasts, own, rows

pytestmark = pytest.mark.spark


def test_a_start_with_another_column(spark: SparkSession, place: Place) -> None:
    """It is refused by name before the first epoch, or its rows are delivered."""
    sink = place.start(spark, "q")
    if not lasts(sink) or isinstance(sink, Sqlite):
        return
    sink.deliver(0, rows(spark, 1), "q/0/1", 1)
    refusal = ""
    try:
        sink = place.start(spark, "q", to_spark(parse("k string, n bigint, extra string")))
    except ConfigError as error:
        refusal = str(error)
    if refusal:
        assert "extra" in refusal
    else:
        sink.deliver(1, rows(spark, 2).selectExpr("*", "'e' AS extra"), "q/1/1", 1)
        assert sorted(place.delivered()) == [(0, 1), (1, 2)]


def test_a_start_with_another_type(spark: SparkSession, place: Place) -> None:
    """It is refused by the column's name before the first epoch, or all rows can be read."""
    sink = place.start(spark, "q")
    if not lasts(sink) or isinstance(sink, Sqlite):
        return
    sink.deliver(0, rows(spark, 1), "q/0/1", 1)
    refusal = ""
    try:
        sink = place.start(spark, "q", to_spark(parse("k string, n string")))
    except ConfigError as error:
        refusal = str(error)
    if refusal:
        assert re.search(r"\W[n]\W.*type", refusal)
        sink = place.start(spark, "q")
        sink.deliver(1, rows(spark, 2), "q/1/1", 1)
    else:
        sink.deliver(1, rows(spark, 2).selectExpr("k", "CAST(n AS string) AS n"), "q/1/1", 1)
    assert sorted((epoch, int(n)) for epoch, n in place.delivered()) == [(0, 1), (1, 2)]


def test_an_output_that_is_refused_makes_nothing(spark: SparkSession, place: Place) -> None:
    """And another one can come in its place."""
    refuses = True
    try:
        place.start(spark, "q", place.unfit)
    except ConfigError:
        assert not place.is_made()
    else:
        refuses = False
    assert refuses == (place.sink().guarantee.startswith("exactly once") and not own(place))
    sink = place.start(spark, "q")
    sink.deliver(0, rows(spark, 1), "q/0/1", 1)
    assert place.delivered() == [(0, 1)]
