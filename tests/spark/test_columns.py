"""`deduplicate` and `vectorised` on Spark, where the histories do not go."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

import godwit as gw
from tests.support.counting import run_to_end
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

NESTED = "id string, n long, tags array<string>, place struct<x:double,y:array<int>>"


def row(id: str, n: int, x: float) -> dict[str, Any]:
    return {"id": id, "n": n, "tags": [id, None], "place": {"x": x, "y": [n]}}


def test_the_first_record_of_a_key_comes_out_with_columns_that_only_spark_sorts(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed, checkpoint = Feed(tmp_path / "input", NESTED), tmp_path / "checkpoint"
    job = gw.stream(feed.stream(spark)).deduplicate("once", key="id").to(gw.memory("nested"))
    known = spark.createDataFrame([("z",)], "id string")
    for rows in (
        [row("a", 2, 1.0), row("a", 1, 2.0), row("a", 1, 1.0), row("z", 1, 1.0)],
        [row("b", 1, 0.5), row("a", 0, 0.0), row("b", 1, 0.5)],
    ):
        feed.add(rows)
        run_to_end(job, checkpoint, workers=2, initial={"once": known})
    given = [one.asDict(recursive=True) for one in spark.table("nested").drop("epoch").collect()]
    assert given == [row("a", 1, 1.0), row("b", 1, 0.5)]
    state = gw.read_state(spark, checkpoint, "once").collect()
    assert {one.id for one in state} == {"a", "b", "z"}
    first = gw.read_state(spark, checkpoint, "once", epoch=0).collect()
    assert {one.id for one in first} == {"a", "z"}


def add(records: Any, starts: Any, state: Any) -> Any:
    n = state["n"].fill_null(0).to_numpy() + np.add.reduceat(records["n"].to_numpy(), starts)
    return {"n": n}, {"id": state["id"], "n": n, "at": records["at"].take(starts)}


def test_a_function_of_columns_is_sent_to_executors_and_has_an_initial_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "input", "id string, n long, at timestamp")
    job = gw.stream(feed.stream(spark)).vectorised(
        "sums", key="id", function=add, state="n long", output="id string, n long, at timestamp"
    )
    initial = {"sums": spark.createDataFrame([("a", 10), ("b", 5)], "id string, n long")}
    feed.add([{"id": "a", "n": 1}, {"id": "a", "n": 2}, {"id": "c", "n": 1}])
    run_to_end(job.to(gw.memory("summed")), tmp_path / "checkpoint", workers=2, initial=initial)
    assert {(one.id, one.n) for one in spark.table("summed").collect()} == {("a", 13), ("c", 1)}
    state = gw.read_state(spark, tmp_path / "checkpoint", "sums").collect()
    assert {(one.id, one.n) for one in state} == {("a", 13), ("b", 5), ("c", 1)}


def test_what_a_function_of_columns_returns_fails_the_query_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    def broken(records: Any, starts: Any, state: Any) -> Any:
        return {"n": np.array([0.5])}, None

    feed = Feed(tmp_path / "input", "id string, n long")
    job = gw.stream(feed.stream(spark)).vectorised(
        "sums", key="id", function=broken, state="n long", output="id string"
    )
    feed.add([{"id": "a", "n": 1}])
    with pytest.raises(gw.OperatorError, match=r"'sums' .*\n.*column 'n': double is no int64"):
        run_to_end(job.to(gw.memory("failed")), tmp_path / "checkpoint", workers=1)


def test_an_initial_state_of_keys_that_leave_is_refused(spark: SparkSession) -> None:
    times = gw.stream(spark.readStream.format("rate").load()).deduplicate(
        "once", key="value", time="timestamp", within="1 s", delay="1 s"
    )
    with pytest.raises(gw.ConfigError, match="'once' has windows, a ttl or `within`"):
        times.to(gw.console()).start("/nowhere", initial={"once": spark.range(3)})
