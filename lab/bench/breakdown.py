"""Where the time of Godwit's epochs goes.

Three sources, one line each epoch: Spark's progress report (its own logs, planning), the times of
the epoch's Spark jobs and stages, and the seconds that the slowest worker put on its receipt.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from godwit.log.history import History
from godwit.model.manifest import WorkerStatistics
from lab.tools.turns import TimedEpoch, Turn

PARTS = (
    "spark log",  # offsets and commits, written by Spark
    "spark planning",  # latestOffset, getBatch, queryPlanning
    "shuffle",  # JVM: source, hash, routing, shuffle write
    "receive",  # JVM to Python: shuffle read, perhaps a sort, Arrow; until the last batch is there
    "process",
    "write",
    "outputs",
    "merge",
    "task",  # the rest of S's stage: scheduling, Python worker, pickling, receipts
    "sink",  # the sink's jobs
    "driver",  # between the jobs: planning, intent, manifest, garbage, reading outputs
)


@dataclass(frozen=True, slots=True)
class SparkStage:
    """A Spark stage; times are seconds since 1970."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def breakdown(
    spark: SparkSession, turns: Sequence[Turn], checkpoint: Path, operator: str
) -> dict[str, float]:
    """The median seconds of each part, over the epochs that Godwit and Spark still know of."""
    history = History(checkpoint)
    stages = _stages(spark)
    found: list[dict[str, float]] = []
    for epoch in (epoch for turn in turns for epoch in turn.epochs):
        manifest, ran = history.manifest(epoch.number), _stages_of(epoch, stages)
        if manifest and len(ran) > 1:
            found.append(_parts(epoch, ran, manifest.receipts[operator]))
    if not found:
        return {}
    return {part: round(statistics.median(p[part] for p in found), 4) for part in PARTS}


def outside_jobs(spark: SparkSession, epochs: Sequence[TimedEpoch]) -> list[float]:
    """The seconds of each epoch's callback in which no Spark job ran, for epochs still known."""
    stages = _stages(spark)
    known = [(epoch, _stages_of(epoch, stages)) for epoch in epochs]
    return [
        epoch.parts["addBatch"] - sum(stage.seconds for stage in ran) for epoch, ran in known if ran
    ]


def _parts(
    epoch: TimedEpoch, ran: Sequence[SparkStage], receipts: Sequence[WorkerStatistics]
) -> dict[str, float]:
    shuffle, work, *sink = ran
    worker = max(receipts, key=lambda r: sum(r.seconds.values())).seconds
    spark_log = epoch.parts["walCommit"] + epoch.parts["commitOffsets"]
    planning = epoch.seconds - spark_log - epoch.parts["addBatch"]
    in_python = {part: worker.get(part, 0.0) for part in PARTS[3:8]}
    sunk = sum(stage.seconds for stage in sink)
    jobs = shuffle.seconds + work.seconds + sunk
    return {
        "spark log": spark_log,
        "spark planning": planning,
        "shuffle": shuffle.seconds,
        **in_python,
        "task": work.seconds - sum(in_python.values()),
        "sink": sunk,
        "driver": epoch.parts["addBatch"] - jobs,
    }


def _stages_of(epoch: TimedEpoch, stages: Sequence[SparkStage]) -> list[SparkStage]:
    end = epoch.began + epoch.seconds
    return [stage for stage in stages if epoch.began <= stage.began and stage.ended <= end]


def _stages(spark: SparkSession) -> list[SparkStage]:
    """The finished stages that Spark still remembers, oldest first."""
    store = spark.sparkContext._jsc.sc().statusStore()  # public only by way of the web UI
    quantiles = getattr(store, "stageList$default$4")()
    found = store.stageList(None, False, False, quantiles, None)
    stages = [found.apply(i) for i in range(found.size())]
    times = [
        (stage.submissionTime().get().getTime(), stage.completionTime().get().getTime())
        for stage in stages
        if stage.submissionTime().isDefined() and stage.completionTime().isDefined()
    ]
    return [SparkStage(began / 1000, ended / 1000) for began, ended in sorted(times)]
