"""Where workers run: on the same executor, epoch after epoch.

A worker finds its state in the cache of its executor. Spark lets nobody say where a task is to run,
but it runs tasks where their cached input is. So a tiny cached DataFrame, the *anchor*, has one
partition a *slot*. The records, partitioned in the same way, are joined to it, and the task of a
slot runs on the executor that has the slot's part of the anchor. If that executor is lost, the part
is cached on another one before the next job: as long as one task of a job can run anywhere, Spark
runs the others on any executor of their host, without waiting for theirs.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession

from godwit.model.ids import ExecutorId, SlotId, WorkerId
from godwit.placement.slots import Placement, by_worker
from godwit.spark.executors import Executors, await_idle, can_stay, is_alone
from godwit.spark.settings import settings
from godwit.state.cache import CacheSpec
from godwit.worker.executor_process import executor_id

SLOT: Final = "_slot"

RETRIES: Final = 3
BEARABLE: Final = 10  # epochs

log = logging.getLogger("godwit")


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a query: partition i is at `executors[i]`, and gets the rows with the key
    `keys[i]`. `of_worker` is the partition of each worker."""

    anchor: DataFrame
    keys: Sequence[int]
    executors: Sequence[ExecutorId]
    made_for: Placement
    of_worker: Sequence[SlotId] = ()

    @property
    def workers(self) -> dict[SlotId, WorkerId]:
        """By partition: its worker."""
        return {slot: worker for worker, slot in by_worker(self.of_worker)}

    @property
    def are_cached(self) -> bool:
        """Has nobody let the anchor go?"""
        return bool(self.anchor.storageLevel.useMemory)

    def fit(self, placement: Placement) -> bool:
        """Is there a slot for each worker at its executor, and is the anchor still cached?

        Those of an executor that was lost stay, without a worker, until another one comes, or until
        they are more than half of all.
        """
        if not self.are_cached:
            return False
        had = Counter(self.executors)
        here = sum(had[executor] for executor in set(placement.executors))
        return (
            had.keys() >= set(placement.executors)
            and 2 * here >= len(self.executors)
            and all(had[executor] >= count for executor, count in Counter(placement.homes).items())
        )

    def complete(self, executors: Collection[ExecutorId]) -> None:
        """Cache the parts again, anywhere, whose executor is not among these."""
        lost = [slot for slot, one in enumerate(self.executors) if one not in executors]
        if lost:
            parts = self.anchor._jdf.javaToPython()
            parts.collectPartitions(_ints(self.anchor.sparkSession, lost))

    def pin(self, rows: DataFrame, key: Column) -> DataFrame:
        """Rows brought to the slots whose keys an expression gives.

        It is computed on both sides of the shuffle: that takes less than to carry it along.
        """
        parts = rows.repartition(len(self.keys), key)
        return parts.join(self.anchor.hint("shuffle_hash"), key == self.anchor[SLOT], "left_semi")


class Pinning:
    """Gives workers slots at the executors of their placement."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._executors = Executors(spark)
        self._slots: Slots | None = None
        self._age = 0  # of the slots, in epochs
        # The executors when all slots were cached.
        self._complete_with: frozenset[ExecutorId] = frozenset()

    @cached_property
    def is_possible(self) -> bool:
        """Are there executors that workers can stay on?"""
        return can_stay(self._context) and not is_alone(self._context)

    def executors(self) -> dict[ExecutorId, str]:
        """The executors that are ready when an epoch begins, with their hosts; none where workers
        cannot be pinned."""
        if not self.is_possible:
            return {}
        self._age += 1
        return self._executors.ready()

    def have_changed(self, placement: Placement | None) -> bool:
        """Have executors come or gone, so that an epoch would be placed otherwise?"""
        placed = placement.executors if placement else ()
        return self.is_possible and self._executors.have_changed(placed)

    def slots(self, spark: SparkSession, placement: Placement | None, workers: int) -> Slots | None:
        """Those of the first `workers` of a placement; None where they are not pinned."""
        if placement is None:
            self.close()
            return None
        known, living = self._slots, self._executors.welcome()
        if known is None or not (known.fit(placement) or self._bears_with(known, placement)):
            self.close()
            known = self._anchored(spark, placement)
            living, self._age = self._executors.welcome(), 0
        elif self._complete_with != living:
            known.complete(living)
        self._slots, self._complete_with = known, living
        return replace(known, of_worker=assign(known.executors, placement.homes)[:workers])

    def sweep(self, cache: CacheSpec) -> None:
        """Delete the local files of a query that has ended; its keepers end with them."""
        if self.is_possible:
            self._executors.visit(partial(_sweep, cache))

    def close(self) -> None:
        """Let the anchor go: executors that hold one are not given back."""
        if self._slots is not None:
            self._slots.anchor.unpersist()
            self._slots = None

    def _anchored(self, spark: SparkSession, placement: Placement) -> Slots:
        """New slots: as many on each executor, and up to twice as many as are needed, so that
        workers can be added before there have to be new slots again."""
        executors = len(placement.executors)
        roomy = -(-self._context.defaultParallelism // executors)
        width = max(placement.width, min(roomy, 2 * placement.width))
        keys = _keys(spark, width * executors)
        for last in (*[False] * RETRIES, True):
            idle = await_idle(self._context, placement.executors)
            anchor, cached_on = _cached(spark, keys, executors)
            slots = Slots(anchor, keys, cached_on, placement)
            if slots.fit(placement):
                return slots
            if last or not idle:  # others use the executors, and may do so for ever
                break
            anchor.unpersist(blocking=True)
            self._executors.welcome()  # one that has joined may have got a part: keep it busy
        why = "executors are busy or have just come"
        log.warning("slots are spread unevenly, since %s: %s", why, Counter(cached_on))
        return slots

    def _bears_with(self, slots: Slots, placement: Placement) -> bool:
        """New slots take time: if those for the same homes could not be had where they should be,
        workers are elsewhere for some epochs."""
        made_for = slots.made_for
        same = (made_for.homes, made_for.executors) == (placement.homes, placement.executors)
        return same and slots.are_cached and self._age < BEARABLE


def assign(executors: Sequence[ExecutorId], homes: Sequence[ExecutorId]) -> list[SlotId]:
    """A slot for each worker: at its home, or where there is one, if that has none left.

    >>> assign(["a", "b", "a", "b"], ["b", "b", "a"])
    [1, 3, 0]
    >>> assign(["a", "a", "a"], ["b", "a"])
    [1, 0]
    """
    free = {SlotId(number): executor for number, executor in enumerate(executors)}
    chosen: dict[WorkerId, SlotId] = {}
    for worker, home in by_worker(homes):
        here = next((slot for slot, place in free.items() if place == home), None)
        if here is not None:
            chosen[worker] = here
            del free[here]
    for worker, _ in by_worker(homes):
        if worker not in chosen:
            chosen[worker] = next(iter(free))
            del free[chosen[worker]]
    return [chosen[worker] for worker, _ in by_worker(homes)]


def _cached(
    spark: SparkSession, keys: Sequence[int], executors: int
) -> tuple[DataFrame, list[ExecutorId]]:
    """An anchor, and the executor of each of its parts."""
    with settings(spark, {"spark.sql.adaptive.enabled": "false"}):  # it would unite small parts
        rows = spark.createDataFrame([(key,) for key in keys], f"{SLOT} int")
        anchor = rows.repartition(len(keys), SLOT).cache()
        try:
            parts = anchor._jdf.javaToPython()  # these tasks are the JVM's alone
            for first in range(0, len(keys), executors):
                # Of idle executors each gets one task, before any gets a second.
                parts.collectPartitions(_ints(spark, range(first, first + executors)))
            # Now they are cached; this also starts the processes that the next epoch will need.
            told = anchor.mapInArrow(_whereabouts, "slot int, executor string").collect()
            found = {row.slot: row.executor for row in told}
        except BaseException:
            anchor.unpersist()
            raise
    return anchor, [found[slot] for slot in range(len(keys))]


def _ints(spark: SparkSession, numbers: Sequence[int]) -> Any:
    """Numbers as an array of the JVM's."""
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.int, len(numbers))
    for place, number in enumerate(numbers):
        array[place] = number
    return array


def _keys(spark: SparkSession, count: int) -> list[int]:
    """For each partition the first number that Spark sends there, when it hashes over so many."""
    tried = 64 * count
    hashed = f"transform(sequence(0, {tried}), n -> pmod(hash(cast(n AS int)), {count}))"
    row: Any = spark.sql(f"SELECT {hashed} AS parts").head()
    return [row.parts.index(part) for part in range(count)]


def _sweep(cache: CacheSpec) -> None:
    cache.delete()


def _whereabouts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass  # Spark ends a Python process that leaves its input unread
    context = TaskContext.get()
    assert context is not None
    yield pa.RecordBatch.from_pydict(
        {"slot": pa.array([context.partitionId()], pa.int32()), "executor": [executor_id()]}
    )
