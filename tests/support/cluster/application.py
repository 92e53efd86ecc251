"""A query on two executors: `python -m tests.support.cluster.application HOME JAVA`.

JAVA are options of its JVMs. It counts by key. Its state moves from 2 to 4 workers, an executor is
killed on the way, and the state moves back.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import godwit as gw
from godwit.model.options import Replication
from lab.tools.executors import processes
from tests.support.kills.application import QUICK_SQL

KEYS = 5000
ROWS = 2000  # an epoch
KNOWN = 300_000  # keys that have a count when the query starts, each another one
BINS = 16
TARGET = gw.Routing.even(BINS, 4)  # bins cross between the executors
CONF: dict[str, Any] = QUICK_SQL | {
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "30s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}


def main(home: Path, java: str) -> None:
    options = {f"spark.{side}.extraJavaOptions": java for side in ("driver", "executor")}
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    spark = builder.config(map=CONF | options).getOrCreate()
    query = start(spark, home)
    query.await_epoch(3)
    there = query.migrate(TARGET, strategy="batched:2")
    query.await_epoch((query.epoch or 0) + 2)
    (home / "killed").write_text(str(query.epoch))
    os.kill(min(processes(spark.sparkContext).values()), signal.SIGKILL)
    assert_open(there)
    assert there.wait() == "done"
    query.await_epoch((query.epoch or 0) + 2)
    assert query.migrate(2, strategy="paced").wait() == "done"
    while query.placement is None or len(set(query.placement.homes)) < 2:
        assert query.await_epoch((query.epoch or 0) + 1, timeout=120)
    query.await_epoch((query.epoch or 0) + 2)
    query.stop()


def start(
    spark: SparkSession,
    home: Path,
    workers: int = 2,
    replicas: int = 0,
    bins: int = BINS,
    replication: Replication = "pull",
) -> gw.Query:
    source = spark.readStream.format("rate-micro-batch")
    rows = source.options(rowsPerBatch=ROWS, numPartitions=2).load()
    return (
        gw.stream(rows.selectExpr(f"value % {KEYS} AS k"))
        .aggregate("counts", key="k", n=gw.count())
        .to(gw.files(home / "output"))
        .start(
            home / "checkpoint",
            workers=workers,
            options=gw.Options(
                bins=bins, replicas=replicas, replication=replication, retention=1000
            ),
            initial={"counts": spark.range(KNOWN).selectExpr("id AS k", "id AS n")},
        )
    )


def assert_open(migration: gw.Migration) -> None:
    """After something has happened: then the migration was open when it did."""
    progress = migration.progress
    assert progress.outcome == "open", progress
    assert progress.arrived < progress.bins, progress


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
