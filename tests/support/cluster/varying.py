"""A query whose records come out otherwise whenever they are computed:
`python -m tests.support.cluster.varying HOME JAVA`.

It has two workers on one of three executors, and puts each number into the list of a random key.
While one worker waits, with all its records there, and the other has not got any, an executor is
killed that has no worker, but a part of the records and a replica. HOME/killed says which.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import godwit as gw
from godwit.log.history import History
from godwit.spark.executors import live
from tests.support.cluster.application import CONF, ROWS
from tests.support.cluster.failing import MORE, Story

WORKERS = 2
EXECUTORS = 3
KEY = "pmod(hash(reflect('java.util.UUID', 'randomUUID')), 1000) AS k"
SCHEMA = "k int, value long"


@dataclass(frozen=True)
class Keep:
    """Keeps all numbers. In epoch E it waits while there is a file HOME/wait-E."""

    home: Path

    def __call__(self, key: int, row: Any, state: Any) -> Iterator[tuple[int, int]]:
        state.kept.append(row.value)
        yield key, row.value
        wait = self.home / f"wait-{row.value // ROWS}"
        if wait.exists():
            (self.home / "waits").touch()
        while wait.exists():
            time.sleep(0.01)


def main(home: Path, java: str) -> None:
    options = {f"spark.{side}.extraJavaOptions": java for side in ("driver", "executor")}
    builder = SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,1024]")
    spark = builder.config(map=CONF | MORE | options).getOrCreate()
    source = spark.readStream.format("rate-micro-batch")
    rows = source.options(rowsPerBatch=ROWS, numPartitions=EXECUTORS).load()
    query = (
        gw.stream(rows.selectExpr(KEY, "value"))
        .state_machine(
            "kept",
            key="k",
            function=Keep(home),
            state={"kept": gw.List("value long")},
            output=SCHEMA,
        )
        .to(gw.files(home / "output"))
        .start(home / "checkpoint", workers=WORKERS, options=gw.Options(replicas=1, retention=1000))
    )
    story = Story(spark, query, History(home / "checkpoint"))
    placement = story.settled()
    assert query.handover(1, placement.homes[0]).wait(120) == "done"
    placement = story.settled()
    victim = placement.replicas[0][0]
    assert victim not in placement.homes
    wait = home / f"wait-{(query.epoch or 0) + 3}"
    wait.touch()
    while not (home / "waits").exists():
        time.sleep(0.01)
    story.kill(victim)
    while victim in live(spark.sparkContext):
        time.sleep(0.01)
    (home / "killed").write_text(victim)
    wait.unlink()
    story.epochs(1)
    story.settled()
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
