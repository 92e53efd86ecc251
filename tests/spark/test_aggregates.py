"""Aggregates that users write, on Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.aggregates.count import Count
from tests.support.counting import run_to_end
from tests.support.feed import Feed
from tests.support.own_aggregates import TopThree, variance_source

pytestmark = pytest.mark.spark

RECORDS, KEYS = 60_000, 10  # of an epoch: so many for each key that the next one is folded early

PROGRAM = """
import json, sys
from pathlib import Path
from unittest.mock import patch
from pyspark.sql import SparkSession
from godwit.spark import operator_job, prefold
from tests.support.counting import run_to_end
from tests.support.feed import Feed
from tests.support.kills.application import QUICK_SQL

spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    .config("spark.sql.shuffle.partitions", 2).config("spark.log.level", "ERROR")
    .config(map=QUICK_SQL).getOrCreate()
)
home = Path(sys.argv[1])
rows = Feed(home / "input", "k long, `a b` int").stream(spark)
job = gw.stream(rows).aggregate("a", key="k", n=gw.count(), f=Variance("a b")).to(gw.memory("a"))
with patch.object(operator_job, "fold", wraps=prefold.fold) as folds:
    run_to_end(job, home / "checkpoint", workers=2)
found = {row.k: (row.n, row.f) for row in spark.table("a").where("epoch = 1").collect()}
(home / "found").write_text(json.dumps([Variance.__module__, folds.call_count, found]))
spark.stop()
"""


def feed(directory: Path, column: str = "v") -> tuple[Feed, np.ndarray]:
    """Two epochs with few keys: the second one is folded early, if it can be."""
    feed, values = Feed(directory, f"k long, `{column}` int"), np.arange(2 * RECORDS) % 7919
    for part in np.split(values, 2):
        keys = pa.array(np.arange(RECORDS) % KEYS)
        feed.put(pa.table({"k": keys, column: pa.array(part, pa.int32())}))
    return feed, values


def test_a_class_of_the_main_program_is_folded_early(tmp_path: Path, quick: dict[str, str]) -> None:
    """The variance of the docs, over a column whose name has to be quoted."""
    _, values = feed(tmp_path / "input", "a b")
    program = tmp_path / "program.py"
    program.write_text(f"{variance_source()}\n{PROGRAM}")
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    subprocess.run(
        [sys.executable, program, tmp_path],
        env=os.environ | environment | quick,
        check=True,
        timeout=280,
    )
    module, folds, found = json.loads((tmp_path / "found").read_text())
    assert (module, folds) == ("__main__", 1)
    assert found == {
        str(key): [2 * RECORDS // KEYS, pytest.approx(values[key::KEYS].var(), rel=1e-12)]
        for key in range(KEYS)
    }


def test_one_without_a_partial_sees_the_records_when_keys_repeat(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, values = feed(tmp_path / "input")
    job = gw.stream(source.stream(spark)).aggregate("a", key="k", n=gw.count(), top=TopThree("v"))
    run_to_end(job.to(gw.memory("top")), tmp_path / "checkpoint", workers=2)
    found = {row.k: (row.n, row.top) for row in spark.table("top").where("epoch = 1").collect()}
    assert found == {
        key: (2 * RECORDS // KEYS, sorted(values[key::KEYS].tolist(), reverse=True)[:3])
        for key in range(KEYS)
    }


@dataclass(frozen=True)
class Misspelt(Count):
    """An aggregate with a partial that Spark does not know."""

    def partial(self, input: gw.AggregateInput) -> Mapping[str, str]:
        return {"": "cuont(1)"}


def test_a_partial_that_spark_does_not_take_is_refused_at_the_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, _ = feed(tmp_path / "input")
    job = gw.stream(source.stream(spark)).aggregate("a", key="k", n=Misspelt()).to(gw.memory("m"))
    with pytest.raises(gw.ConfigError, match=r"operator 'a': Spark does not take .*cuont"):
        job.start(tmp_path / "checkpoint")


def test_state_of_spark_needs_a_buffer(spark: SparkSession, tmp_path: Path) -> None:
    source, _ = feed(tmp_path / "input")
    query = source.stream(spark).groupBy("k").count().writeStream.format("noop")
    query = query.outputMode("update").option("checkpointLocation", str(tmp_path / "old"))
    query.trigger(availableNow=True).start().awaitTermination()
    before = gw.spark_checkpoint(spark, tmp_path / "old")
    assert before.state(n=gw.count()).columns == ["k", "n"]
    with pytest.raises(gw.ConfigError, match=r"top = topthree\(v\) does not say what Spark keeps"):
        before.state(top=TopThree("v"))
