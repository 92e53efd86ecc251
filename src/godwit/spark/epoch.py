"""One epoch on Spark: decide, run the operators, publish, deliver."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter, sleep

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from godwit import faults
from godwit.driver.driver import Driver
from godwit.driver.published import INITIAL
from godwit.errors import ConfigError, FencedError, GodwitError, IncompatibleError
from godwit.inspect.report import EpochReport
from godwit.log.intent import Intent
from godwit.model.ids import Epoch
from godwit.model.manifest import Manifest
from godwit.model.receipt import Receipt
from godwit.model.requests import StreamedUpdates
from godwit.operators.base import Operator
from godwit.spark import outputs
from godwit.spark.backlog import latest_offsets
from godwit.spark.concurrent_jobs import Receipts, run_jobs
from godwit.spark.dataflow import Dataflow, Frames
from godwit.spark.executor_loss import LossWatch
from godwit.spark.executors import is_alone
from godwit.spark.hosts import LocalDirectories
from godwit.spark.hushing import hush_failure
from godwit.spark.node import LateRecords, Node
from godwit.spark.operator_job import OperatorJob, job_settings, plan
from godwit.spark.pinning import Pinning
from godwit.spark.sinks.kafka import ProducerLostError
from godwit.spark.sinks.sink import FileTaker, Sink
from godwit.spark.ticks import Ticker
from godwit.spark.unread_files import UnreadWatch
from godwit.spark.update_stream import split
from godwit.state import file as state_file
from godwit.state.output import OutputFiles

Listener = Callable[[EpochReport], None]

log = logging.getLogger("godwit")

INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling"
STOPPED = f"{INTERRUPTED} the epoch: java.lang.InterruptedException"
LOOK_SECONDS = 0.05


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
    flow: Dataflow
    pinning: Pinning
    unread: UnreadWatch
    query_name: str | None = None
    listener: Listener | None = None
    controlled: bool = False  # batches have updates among their records
    interval: float = 0.0  # seconds from one epoch to the next, if the query has a trigger
    is_bounded: bool = False  # the query ends with the input that is there at its start
    spark_query: StreamingQuery | None = None  # known soon after its start
    failure: BaseException | None = None
    unhush: Callable[[], None] = lambda: None  # once Spark has ended the query after a failure
    delivered: Epoch = INITIAL  # the newest epoch

    def __call__(self, batch: DataFrame, epoch: int) -> None:
        faults.reach("commit", "after", epoch - 1)
        if self._is_over(epoch):
            raise EpochFailedError(STOPPED)
        try:
            self._epoch(batch, Epoch(epoch))
        except BaseException as error:  # any other than an Exception would leave Spark waiting
            self.failure = self._cause(error)
            self._hush(batch.sparkSession, epoch)
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

    def _hush(self, spark: SparkSession, epoch: int) -> None:
        """An error of Godwit's own says all; of any other, Spark's log may tell more."""
        if isinstance(self.failure, GodwitError) and self.spark_query is not None:
            name = f"{self.query_name}: " if self.query_name else ""
            told = f"{name}failed in epoch {epoch}: {type(self.failure).__name__}: {self.failure}"
            self.unhush = hush_failure(spark, self.spark_query, told)

    def _cause(self, error: BaseException) -> BaseException:
        """Being fenced off explains whatever else went wrong, such as files that are gone."""
        try:
            self.driver.check()
        except FencedError as fenced:
            return fenced
        return error

    def _epoch(self, batch: DataFrame, epoch: Epoch) -> None:
        spark = batch.sparkSession
        self.ticker.hold()
        self.local_directories.check(spark)  # executors may have come on other hosts
        if not self.is_bounded:  # then Spark reads those alone that were there at the start
            self.driver.demand.sweep_ticks()
        clock = Clock()
        updates: list[StreamedUpdates] = []
        if self.controlled:
            updates, batch = split(batch)
        latest, executors = latest_offsets(self.spark_query), self.pinning.executors()
        decided = self.driver.begin_batch(epoch, latest, executors, self.unread.look())
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
        report = self.driver.report(decided, clock.parts, self.unread.known)
        self._tell(report)
        self.ticker.go_on(report.records)

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
        ends = [node for node, _ in self._outlets_in(manifest)]
        for node in {read: None for end in ends for read in self._read_for(end)}:
            (name,) = self.flow.behind(node)
            before, now = manifest.operators[name], self.driver.operators[name].describe()
            had, has = before.output, now.output
            if isinstance(node.step, LateRecords):
                had, has = f"late records {before.late}", f"late records {now.late}"
            if had != has:
                raise IncompatibleError(
                    name,
                    f"epoch {manifest.epoch} was published with the output {had}, but "
                    "its delivery is not known to have ended. Start the query once as it was, or "
                    "roll back to the epoch before with godwit.restore",
                )
            for written in self._files(node, manifest).refs:
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

    def _operators(self, batch: DataFrame, intent: Intent) -> dict[str, list[Receipt]]:
        """Run all operators; each sees only receipted output of those before it."""
        spark, placements, graph = batch.sparkSession, self.driver.placements, self.driver.graph
        can_stay = placements.placement is not None or is_alone(spark.sparkContext)
        with job_settings(spark), Frames.of(self.flow, batch, can_stay=can_stay) as frames:

            def planned(name: str, receipts: Receipts) -> OperatorJob:
                for before in graph.before(name):
                    for one in receipts[before]:
                        if one.failure is not None:  # what is there of its outputs is no input
                            raise one.failure
                    refs = tuple(one.outputs for one in receipts[before] if one.outputs)
                    node = self.flow.operators[before]
                    frames[node] = _read(spark, node, OutputFiles(self.driver.files, refs))
                routing = intent.routings[name]
                slots = self.pinning.slots(spark, placements.placement, routing.workers)
                (input,) = self.flow.operators[name].inputs
                work = self.driver.work(intent, name)
                return plan(work, frames[input], routing, slots, placements.keeper)

            return run_jobs(spark, graph, planned)

    def _deliver(self, spark: SparkSession, manifest: Manifest) -> None:
        """Give each sink the durable outputs that the manifest names, behind their code."""
        epoch = manifest.epoch
        self.driver.check()
        faults.reach("sink", "before", epoch)
        for number, (node, sink) in enumerate(self._outlets_in(manifest)):
            if number:  # the sink before may have taken long
                self.driver.check()
            faults.reach("delivery", "before", epoch, number)
            try:
                self._deliver_to(spark, node, sink, manifest)
            except ProducerLostError:  # perhaps to an earlier driver, which woke up
                self.driver.check()
                try:
                    self._deliver_to(spark, node, sink, manifest)
                except ProducerLostError as lost:
                    raise ConfigError(str(lost)) from lost
            faults.reach("delivery", "after", epoch, number)
        faults.reach("sink", "after", epoch)
        self.driver.check()

    def _deliver_to(self, spark: SparkSession, node: Node, sink: Sink, manifest: Manifest) -> None:
        if self._delivered_as_files(node, sink, manifest):
            return
        files = {one: self._files(one, manifest) for one in self._read_for(node)}
        frames = Frames({one: _read(spark, one, these) for one, these in files.items()})
        count = sum(these.rows for these in files.values())
        sink.deliver(manifest.epoch, frames[node], manifest.id, count)

    def _outlets_in(self, manifest: Manifest) -> list[tuple[Node, Sink]]:
        """The sinks that get something of an epoch: not those of operators that it did not have."""
        had = manifest.operators.keys()
        return [one for one in self.flow.outlets if had >= set(self.flow.behind(one[0]))]

    def _delivered_as_files(self, node: Node, sink: Sink, manifest: Manifest) -> bool:
        """Could a sink take the files of the rows as they are?"""
        if not isinstance(node.step, Operator | LateRecords) or not isinstance(sink, FileTaker):
            return False
        return sink.deliver_files(manifest.epoch, self._files(node, manifest), manifest.id)

    def _read_for(self, node: Node) -> list[Node]:
        """The nodes of which files have the rows that a node is made of."""
        if isinstance(node.step, LateRecords):
            return [node]
        return [self.flow.operators[name] for name in self.flow.behind(node)]

    def _files(self, node: Node, manifest: Manifest) -> OutputFiles:
        """The files of an operator's outputs, or of its late records."""
        (name,) = self.flow.behind(node)
        late = isinstance(node.step, LateRecords)
        refs = manifest.late.get(name, ()) if late else manifest.outputs[name]
        return OutputFiles(self.driver.files, tuple(refs))

    @cached_property
    def local_directories(self) -> LocalDirectories:
        return LocalDirectories(self.flow, self.driver.checkpoint)

    @cached_property
    def ticker(self) -> Ticker:
        return Ticker(self.driver.demand, self.driver.placements, self.pinning, self.interval)


def _read(spark: SparkSession, node: Node, files: OutputFiles) -> DataFrame:
    assert node.schema is not None  # of a flow over DataFrames
    return outputs.read(spark, files, node.schema)


def _brief(error: BaseException) -> str:
    text = str(error)
    signs = ("Interrupted", "ClosedByInterrupt", "cancelled")
    if not isinstance(error, GodwitError) and any(sign in text for sign in signs):
        return STOPPED
    return f"{type(error).__name__}: {text}"[:1000].replace(INTERRUPTED, "")
