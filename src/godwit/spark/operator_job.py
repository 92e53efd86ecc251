"""One operator in one epoch as a Spark job: F routes records to workers, S computes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from godwit import faults
from godwit.model.hashing import is_cheap
from godwit.model.ids import Epoch, SlotId, WorkerId
from godwit.model.receipt import Receipt
from godwit.model.routing import Routing
from godwit.spark.executors import is_alone
from godwit.spark.keeper_start import ensure
from godwit.spark.pinning import Slots
from godwit.spark.prefold import can_fold, fold
from godwit.spark.route import column, ordered, route
from godwit.spark.settings import settings
from godwit.worker.executor_process import executor_id
from godwit.worker.keeper import KeeperSpec
from godwit.worker.neighbours import tell_news
from godwit.worker.work import Work

S_SCHEMA = StructType([StructField("receipt", StringType())])
S_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 16),
    # The plan is settled: a part for each worker. To adapt it would cost time and change nothing.
    "spark.sql.adaptive.enabled": "false",
}
CLUSTER_SETTINGS = {
    # A part of the shuffle that was lost with its executor and comes out differently fails the job,
    # rather than being mixed with what workers have read of it.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
}


class Worker:
    """Operator S as Spark runs it: the records of one partition in, one receipt out.

    A class of a module, so that Spark pickles it by reference.
    """

    def __init__(
        self, work: Work, workers: Mapping[SlotId, WorkerId] | None, keeper: KeeperSpec | None
    ) -> None:
        self._work = work
        self._workers = workers  # by slot
        self._keeper = keeper

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        slot = SlotId(context.partitionId())
        worker = WorkerId(slot) if self._workers is None else self._workers.get(slot)
        if self._keeper is not None:
            ensure(replace(self._keeper, executor=executor_id()))
            tell_news(self._keeper.cache.path, self._keeper.neighbours)
        if worker is None:  # Spark ends a Python process that leaves its input unread
            if any(batch.num_rows for batch in batches):
                raise RuntimeError(f"slot {slot} has records, but no worker")
            return
        receipt = replace(self._work.run(worker, batches), executor=executor_id())
        yield pa.RecordBatch.from_pydict({"receipt": [receipt.to_text()]})


@contextmanager
def job_settings(spark: SparkSession) -> Iterator[None]:
    """What jobs of operators need of the session, while they are planned and while they run."""
    alone = is_alone(spark.sparkContext)
    with settings(spark, S_SETTINGS | ({} if alone else CLUSTER_SETTINGS)):
        yield


def plan(
    work: Work,
    rows: DataFrame,
    routing: Routing,
    slots: Slots | None = None,
    keeper: KeeperSpec | None = None,
) -> "OperatorJob":
    """F and S for one operator. On the way its tasks see that the keepers of their executors run.

    Plans change settings of the session: one is made at a time.
    """
    operator = work.operator
    rows = rows.select(*map(column, operator.input.names))
    parts: dict[str, str] = {}
    if work.prefold is not None and can_fold(rows, operator):
        rows = fold(rows, operator, work.prefold, work.span.passed)
        parts = {"spark.sql.shuffle.partitions": str(routing.workers)}
    else:
        work = replace(work, prefold=None)
    if slots is not None:  # who gets what is up to a join: see that it is right
        work = replace(work, routing=routing)
    routed = route(
        rows,
        operator.key.names,
        routing,
        slots,
        with_hash=operator.ordered or not is_cheap(operator.key),
    )
    if operator.ordered:
        routed = ordered(routed, operator.key.names, operator.time)
    worker = Worker(work, slots.workers if slots else None, keeper)
    texts = routed.mapInArrow(worker, S_SCHEMA)
    with settings(rows.sparkSession, parts):  # its job may run beside the planning of others
        texts._jdf.queryExecution().executedPlan()
    return OperatorJob(texts, work.epoch)


@dataclass(frozen=True, slots=True)
class OperatorJob:
    """A Spark job that returns one receipt a worker; several may run at the same time."""

    texts: DataFrame
    epoch: Epoch

    def run(self) -> list[Receipt]:
        texts = self.texts.collect()
        faults.reach("receipts", "before", self.epoch)
        return [Receipt.from_text(row.receipt) for row in texts]
