"""One epoch on Spark: decide, run S for each operator, publish, deliver."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter, sleep

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from godwit import faults
from godwit.driver.driver import Driver
from godwit.driver.published import INITIAL
from godwit.errors import FencedError, GodwitError, IncompatibleError
from godwit.inspect.report import EpochReport, ReplicaReport
from godwit.log.intent import Intent
from godwit.log.manifest import Manifest
from godwit.log.receipt import Receipt
from godwit.log.spark_log import offsets_digest, query_id, source_offsets
from godwit.model.hashing import is_cheap
from godwit.model.ids import Epoch, SlotId, WorkerId
from godwit.model.requests import StreamedUpdates
from godwit.model.routing import Routing
from godwit.operators.base import Operator
from godwit.spark.backlog import behind
from godwit.spark.executor_loss import LossWatch
from godwit.spark.executors import is_alone
from godwit.spark.keeper_start import ensure
from godwit.spark.pinning import Pinning, Slots
from godwit.spark.prefold import can_fold, fold
from godwit.spark.route import column, ordered, route
from godwit.spark.settings import settings
from godwit.spark.sinks import FilesSink, Sink
from godwit.spark.ticks import SeenTicks, Ticker
from godwit.spark.types import to_spark
from godwit.spark.unread_files import UnreadWatch
from godwit.spark.update_stream import split
from godwit.state import file as state_file
from godwit.state.table import FileRef
from godwit.storage.store import Store
from godwit.worker.executor_process import executor_id
from godwit.worker.keeper import KeeperSpec
from godwit.worker.work import Work

Transform = Callable[[DataFrame], DataFrame]
Step = Operator | Transform
Listener = Callable[[EpochReport], None]

log = logging.getLogger("godwit")

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
INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling"
STOPPED = f"{INTERRUPTED} the epoch: java.lang.InterruptedException"
LOOK_SECONDS = 0.05


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
        if worker is None:  # Spark ends a Python process that leaves its input unread
            if any(batch.num_rows for batch in batches):
                raise RuntimeError(f"slot {slot} has records, but no worker")
            return
        receipt = replace(self._work.run(worker, batches), place=executor_id())
        yield pa.RecordBatch.from_pydict({"receipt": [receipt.to_text()]})


class Clock:
    """How long the parts of an epoch take, one after the other."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, part: str) -> None:
        """The part ends here, which began with the end of the one before."""
        now = perf_counter()
        self.parts[part] = now - self._last
        self._last = now


class EpochFailedError(Exception):
    """What Spark gets to see of a failure, in few words; the query's handle raises the whole.

    Spark matches the text against a regular expression that overflows the JVM's stack on a long
    one, and which tells an interrupt by `query.stop()` from a failure.
    """


@dataclass
class Engine:
    """The function that Spark calls for each micro-batch.

    It returns only when the epoch is published and delivered; it swallows nothing, so an epoch
    that was interrupted is never committed by Spark.
    """

    driver: Driver
    steps: Sequence[Step]
    sink: Sink
    spark_log: Store
    pinning: Pinning
    unread: UnreadWatch
    query_name: str | None = None
    listener: Listener | None = None
    controlled: bool = False  # batches have updates among their records
    interval: float = 0.0  # seconds from one epoch to the next, if the query has a trigger
    is_bounded: bool = False  # the query ends with the input that is there at its start
    spark_query: StreamingQuery | None = None  # known soon after its start
    failure: BaseException | None = None
    delivered: Epoch = INITIAL  # the newest epoch

    def __call__(self, batch: DataFrame, epoch: int) -> None:
        faults.reach("commit", "after", epoch - 1)
        if self._is_over(epoch):
            raise EpochFailedError(STOPPED)
        try:
            self._epoch(batch, Epoch(epoch))
        except BaseException as error:  # any other than an Exception would leave Spark waiting
            self.failure = self._cause(error)
            raise EpochFailedError(_brief(self.failure)) from None
        faults.reach("commit", "before", epoch)

    def _is_over(self, epoch: int) -> bool:
        """Does an epoch come after the one that a request to stop lets be the last? Then the query
        is being stopped: wait for that, since what fails before would count as a failure."""
        last = self.driver.timelines.last_epoch
        if last is None or epoch <= last:
            return False
        while self.spark_query is None or self.spark_query.isActive:
            sleep(LOOK_SECONDS)
        return True

    def _cause(self, error: BaseException) -> BaseException:
        """Being fenced off explains whatever else went wrong, such as files that are gone."""
        try:
            self.driver.journal.check()
        except FencedError as fenced:
            return fenced
        return error

    def _epoch(self, batch: DataFrame, epoch: Epoch) -> None:
        spark = batch.sparkSession
        self.ticker.hold()
        if not self.is_bounded:  # then Spark reads those alone that were there at the start
            self._seen_ticks.sweep()
        query, offsets = query_id(self.spark_log), offsets_digest(self.spark_log, epoch)
        assert query is not None  # Spark writes both before an epoch runs
        assert offsets is not None
        before = {name: self.driver.routing(name) for name in self.driver.operators}
        clock = Clock()
        updates: list[StreamedUpdates] = []
        if self.controlled:
            updates, batch = split(batch)
        backlog = behind(self.spark_query, source_offsets(self.spark_log, epoch))
        executors = self.pinning.executors()
        decided = self.driver.begin(epoch, query, offsets, backlog, executors, self.unread.look())
        clock.lap("decide")
        if isinstance(decided, Intent):
            receipts = self._compute(batch, decided)
            clock.lap("compute")
            decided = self.driver.commit(decided, receipts)
            clock.lap("publish")
        else:
            self._check_outputs(decided)
        if updates:
            self.driver.requests.add_streamed(epoch, updates)
        self._deliver(spark, decided)
        self.delivered = epoch
        self.driver.monitor.wake()
        clock.lap("deliver")
        timelines = {name: self.driver.timelines[name] for name in self.driver.operators}
        watermarks = self.driver.published.time.watermarks
        replicas = self._replicas(epoch)
        report = EpochReport.of(
            decided,
            before,
            timelines,
            watermarks,
            clock.parts,
            backlog,
            replicas,
            self.unread.known,
        )
        self._tell(report)
        self.ticker.go_on(report.records)

    def _replicas(self, epoch: Epoch) -> list[ReplicaReport]:
        """How far the replicas are, now that an epoch is published."""
        placements = self.driver.placements
        if (placement := placements.placement) is None:
            return []
        return ReplicaReport.all(epoch, placement, placements.replicas())

    def _tell(self, report: EpochReport) -> None:
        """A log line, and the listener, whose troubles are not those of the query."""
        name = f"{self.query_name}: " if self.query_name else ""
        log.info("%s%s", name, report)
        if self.listener is not None:
            try:
                self.listener(report)
            except Exception:
                log.exception("%sthe listener failed in epoch %d", name, report.epoch)

    def _check_outputs(self, manifest: Manifest) -> None:
        """What an earlier start of the query published must be what this one delivers."""
        (name, before), now = list(manifest.operators.items())[-1], self._last_operator
        if (name, before.output) != (now.name, now.describe().output):
            raise IncompatibleError(
                now.name,
                f"epoch {manifest.epoch} was published with the output of '{name}', "
                f"{before.output}, but its delivery is not known to have ended. Start the "
                "query once as it was, or roll back to the epoch before with godwit.restore",
            )
        for written in manifest.outputs[now.name]:
            state_file.verify(self.driver.files, written)

    def _compute(self, batch: DataFrame, intent: Intent) -> dict[str, list[Receipt]]:
        """Run all operators; if an executor is lost meanwhile, again, with its workers elsewhere.

        Nothing of the lost attempt counts: its receipts are dropped, and so its files do not exist.
        """
        while True:
            watch = LossWatch(batch.sparkSession.sparkContext, self.driver.placements.placement)
            try:
                with watch:
                    return self._operators(batch, intent)
            except Exception:
                stopped = self.spark_query is not None and not self.spark_query.isActive
                if stopped or not watch.lost:
                    raise
            log.warning(
                "epoch %d: lost executor %s; its workers go on elsewhere",
                intent.epoch,
                ", ".join(sorted(watch.lost)),
            )
            self.driver.place(intent, self.pinning.executors())

    def _operators(self, rows: DataFrame, intent: Intent) -> dict[str, list[Receipt]]:
        """Run one operator after the other; each sees only receipted output of the one before."""
        receipts: dict[str, list[Receipt]] = {}
        for step in self.steps[: self.steps.index(self._last_operator) + 1]:
            if not isinstance(step, Operator):
                rows = step(rows)
                continue
            work = self.driver.work(intent, step.name)
            routing = intent.routings[step.name]
            placements = self.driver.placements
            slots = self.pinning.slots(rows.sparkSession, placements.placement, routing.workers)
            receipts[step.name] = run(work, rows, routing, slots, placements.keeper)
            if step is not self._last_operator:
                refs = [receipt.outputs for receipt in receipts[step.name] if receipt.outputs]
                rows = self._read(rows.sparkSession, step, refs)
        return receipts

    def _deliver(self, spark: SparkSession, manifest: Manifest) -> None:
        """Give the sink the durable outputs that the manifest names, after the code behind them."""
        epoch, operator = manifest.epoch, self._last_operator
        self.driver.journal.check()
        refs = manifest.outputs[operator.name]
        faults.reach("sink", "before", epoch)
        if not self._linked(epoch, refs, manifest.id):
            rows = self._read(spark, operator, refs)
            for step in self._last_steps:
                rows = step(rows)
            self.sink.deliver(epoch, rows, manifest.id, sum(ref.rows for ref in refs))
        faults.reach("sink", "after", epoch)
        self.driver.journal.check()

    def _linked(self, epoch: int, refs: Sequence[FileRef], commit: str) -> bool:
        if self._last_steps or not isinstance(self.sink, FilesSink):
            return False
        paths = [path for ref in refs if (path := self.driver.files.local_path(ref.name))]
        return len(paths) == len(refs) and self.sink.deliver_as_they_are(epoch, paths, commit)

    def _read(self, spark: SparkSession, operator: Operator, refs: Sequence[FileRef]) -> DataFrame:
        """Receipted output files as a DataFrame: it can be read twice, in part or not at all."""
        schema = to_spark(operator.output)
        if not refs:
            return spark.createDataFrame([], schema)
        paths = [self.driver.files.url(ref.name) for ref in refs]
        # Whatever the user has set, a file of these must not be passed over.
        reader = spark.read.options(ignoreCorruptFiles=False, ignoreMissingFiles=False)
        return reader.schema(schema).parquet(*paths)

    @cached_property
    def ticker(self) -> Ticker:
        return Ticker(self.driver.demand, self.driver.placements, self.pinning, self.interval)

    @cached_property
    def _seen_ticks(self) -> SeenTicks:
        return SeenTicks(self.driver.files)

    @cached_property
    def _last_operator(self) -> Operator:
        return next(step for step in reversed(self.steps) if isinstance(step, Operator))

    @cached_property
    def _last_steps(self) -> list[Transform]:
        """The DataFrame code behind the last operator."""
        later = self.steps[self.steps.index(self._last_operator) + 1 :]
        return [step for step in later if not isinstance(step, Operator)]


def _brief(error: BaseException) -> str:
    text = str(error)
    signs = ("Interrupted", "ClosedByInterrupt", "cancelled")
    if not isinstance(error, GodwitError) and any(sign in text for sign in signs):
        return STOPPED
    return f"{type(error).__name__}: {text}"[:1000].replace(INTERRUPTED, "")


def run(
    work: Work,
    rows: DataFrame,
    routing: Routing,
    slots: Slots | None = None,
    keeper: KeeperSpec | None = None,
) -> list[Receipt]:
    """F and S for one operator: a Spark job of its own, which returns one receipt a worker.

    On the way its tasks see that the keepers of their executors run.
    """
    operator = work.operator
    rows = rows.select(*map(column, operator.input.names))
    wanted = S_SETTINGS
    if work.prefold is not None and can_fold(rows, operator):
        rows = fold(rows, operator, work.prefold, work.span.passed)
        wanted = wanted | {"spark.sql.shuffle.partitions": str(routing.workers)}
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
    alone = is_alone(rows.sparkSession.sparkContext)
    with settings(rows.sparkSession, wanted | ({} if alone else CLUSTER_SETTINGS)):
        texts = routed.mapInArrow(worker, S_SCHEMA).collect()
    faults.reach("receipts", "before", work.epoch)
    return [Receipt.from_text(row.receipt) for row in texts]
