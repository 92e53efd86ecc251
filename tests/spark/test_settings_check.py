"""Settings that placement depends on, without a cluster: a context that says it has one."""

import logging
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from godwit.errors import ConfigError
from godwit.spark.executors import LOCALITY
from godwit.spark.settings_check import check

pytestmark = pytest.mark.spark

PINNED = {LOCALITY: "false", "spark.locality.wait": "30s"}


def context(
    spark: SparkSession, settings: dict[str, str], master: str = "spark://one:7077"
) -> SparkContext:
    """With a configuration of Spark's own that has these settings alone."""
    jvm = cast(Any, spark.sparkContext._jvm)
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in settings.items():
        conf.set(name, value)
    scala = SimpleNamespace(conf=lambda: conf)
    return cast(
        SparkContext, SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: scala))
    )


def test_settings_with_which_workers_stay(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    pinned = context(spark, PINNED)
    assert [check(pinned, replicas) for replicas in (None, 0, 1, 2)] == [1, 0, 1, 2]
    assert not caplog.records


CASES = {
    "defaults": ({}, 0, "reduceLocality.enabled is true: .* --conf .*reduceLocality.enabled=false"),
    "no wait": ({LOCALITY: "false"}, 1, r"locality.wait is 3 s: .* --conf spark.locality.wait=30s"),
    "short": (PINNED | {"spark.locality.wait": "1500"}, 1, "locality.wait is 1.5 s"),
    "process": (PINNED | {"spark.locality.wait.process": "2s"}, 1, "locality.wait is 2 s"),
}


@pytest.mark.parametrize("case", CASES)
def test_settings_with_which_workers_leave(
    spark: SparkSession, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings, replicas, message = CASES[case]
    with caplog.at_level(logging.WARNING, "godwit"):
        assert check(context(spark, settings), None) == replicas
    (record,) = caplog.records
    assert re.search(message, record.getMessage())


def test_replicas_that_cannot_be_kept_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=f"replicas=1 needs .* --conf {LOCALITY}=false"):
        check(context(spark, {}), 1)
    assert check(context(spark, {}), 0) == 0
    with pytest.raises(ConfigError, match="from 0, which is none, not -1"):
        check(context(spark, PINNED), -1)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_one_process_needs_no_settings(
    spark: SparkSession, master: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert check(context(spark, {}, master), None) == 0
    assert check(context(spark, {}, master), 1) == 1
    assert not caplog.records
