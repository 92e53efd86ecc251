"""The executors of an application: which there are, and which are ready to work."""

import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Final

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from godwit.model.ids import ExecutorId
from godwit.worker.executor_process import executor_id

LOCALITY: Final = "spark.shuffle.reduceLocality.enabled"  # runs a task where its records come from
ROUNDS: Final = 20
BUSY_SECONDS: Final = 1.0  # seconds
KILLED: Final = 5.0  # in which a task that is killed has surely ended; Spark gives its process two
POLL: Final = 0.01


def is_alone(context: SparkContext) -> bool:
    """Is all in one process, which has no executors but itself?"""
    master = str(context.master)
    return master == "local" or master.startswith("local[")


def can_stay(context: SparkContext) -> bool:
    """Do Spark's settings let a task run on the same executor in every epoch?"""
    return context._jsc.sc().conf().getBoolean(LOCALITY, True) is False


def live(context: SparkContext) -> frozenset[ExecutorId]:
    """The executors that there are now, by Spark's id of them."""
    ids = context._jsc.sc().getExecutorIds().mkString(",").split(",")
    return frozenset(ExecutorId(id) for id in ids if id)


def await_idle(context: SparkContext, executors: Iterable[str]) -> bool:
    """Wait until these run no task, as they do for a moment after a job was cancelled; False if
    they still do in the end, since other queries may use them."""
    store = context._jsc.sc().statusStore()
    wanted, end = set(executors), time.monotonic() + KILLED
    while time.monotonic() < end:
        listed = store.executorList(True)
        each = [listed.apply(number) for number in range(listed.size())]
        if not any(one.activeTasks() and one.id() in wanted for one in each):
            return True
        time.sleep(POLL)
    return False


class Executors:
    """The executors that live and have run a task in Python, with their hosts.

    The first task on an executor takes seconds: a process has to start and to import what it needs.
    One that has joined when an epoch begins is welcomed by a job in the background, which keeps its
    cores busy until it is ready: otherwise the epoch would get them, and wait. The tasks are those
    of a DataFrame, as the epochs' are: Spark keeps other processes for RDDs.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._hosts: dict[ExecutorId, str] = {}  # of all that have ever been welcomed
        self._tried: frozenset[ExecutorId] = frozenset()  # those for which a job was started
        self._welcoming: threading.Thread | None = None

    def ready(self) -> dict[ExecutorId, str]:
        """By Spark's id: the host. The first call waits for those that there are."""
        if not self._hosts:
            self._hosts |= self.visit(prepare)
        living = self.welcome()
        return {executor: self._hosts[executor] for executor in living & self._hosts.keys()}

    def welcome(self) -> frozenset[ExecutorId]:
        """Let those that have joined get ready, busy until then; returns all that live."""
        living = live(self._spark.sparkContext)
        new = living - self._hosts.keys()
        if new and not (self._welcoming and self._welcoming.is_alive()):
            job = f"godwit-{uuid.uuid4().hex}"
            self._welcoming = threading.Thread(
                target=self._welcome, args=[job], name="godwit-welcome", daemon=True
            )
            self._welcoming.start()
            if new - self._tried:  # one that cannot be welcomed holds up no further epoch
                self._await_tasks(job, self._welcoming)
            self._tried |= new
        return living

    def have_changed(self, placed: Collection[ExecutorId]) -> bool:
        """Are others ready than those that were `placed`, or is there one to be welcomed?"""
        living, known = live(self._spark.sparkContext), self._hosts.keys()
        if living & known != set(placed):
            return True
        welcoming = self._welcoming is not None and self._welcoming.is_alive()
        return not welcoming and not living <= known | self._tried

    def visit(self, do: Callable[[], None], rounds: int = ROUNDS) -> dict[ExecutorId, str]:
        """Run tasks until each executor that lives has done it, unless one has no time for that;
        returns those that have, with their hosts."""
        seen: dict[ExecutorId, str] = {}
        for _ in range(rounds):
            living = live(self._spark.sparkContext)
            if living <= seen.keys():
                break
            tasks = cores(self._spark.sparkContext)
            job = self._spark.range(0, tasks, 1, tasks).mapInArrow(
                partial(done, do), "executor string, host string"
            )
            seen |= {row.executor: row.host for row in job.collect()}
        return seen

    def _welcome(self, job: str) -> None:
        with suppress(Exception):  # Spark may have ended; whoever is overlooked is asked again
            self._spark.sparkContext.setJobGroup(job, "welcomes executors")
            self._hosts |= self.visit(prepare, rounds=1)

    def _await_tasks(self, job: str, thread: threading.Thread) -> None:
        """Wait until no task of a job waits for a core, unless others keep them all busy."""
        context = self._spark.sparkContext
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        end = time.monotonic() + BUSY_SECONDS
        while thread.is_alive() and time.monotonic() < end:
            for id in tracker.getJobIdsForGroup(job):
                known = tracker.getJobInfo(id)
                for stage in known.stageIds if known else ():
                    info = tracker.getStageInfo(stage)
                    # What the tracker counts is late; the store has a task as soon as it starts.
                    if info and store.taskCount(stage, 0) >= info.numTasks:
                        return
            time.sleep(POLL)


def cores(context: SparkContext) -> int:
    """How many tasks can run at a time, whatever `spark.default.parallelism` says."""
    scala = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    return max(int(scala.maxNumConcurrentTasks(profile)), len(live(context)))


def prepare(*modules: str) -> None:
    """Import what tasks need, and modules: that takes seconds, which later ones save.

    Pandas is not used, but Arrow imports it, if it is there, with the first array that it is given.
    """
    import godwit.spark.epoch  # noqa: F401

    with suppress(ImportError):
        import_module("pandas")
    for module in modules:
        import_module(module)


def done(do: Callable[[], None], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: do it, and tell the executor and its host."""
    for _ in batches:
        pass  # Spark ends a Python process that leaves its input unread
    do()
    yield pa.RecordBatch.from_pydict({"executor": [executor_id()], "host": [socket.gethostname()]})
