"""Where workers run: on the same executor, epoch after epoch.

A worker finds its state in the cache of its executor. Spark lets nobody say where a task is to run,
but it runs tasks where their cached input is. So a tiny cached DataFrame, the *anchor*, has one
partition a *slot*. The records, partitioned in the same way, are joined to it, and the task of a
slot runs on the executor that has the slot's part of the anchor. If that executor is lost, Spark
computes and caches the part on another one.
"""

import logging
import os
import shutil
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from godwit.runtime.work import CacheSpec
from godwit.spark.settings import settings

SLOT: Final = "_slot"
LOCALITY: Final = "spark.shuffle.reduceLocality.enabled"  # runs a task where most records come from

RETRIES: Final = 3

log = logging.getLogger("godwit")


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a query: partition i is slot i, and `keys[i]` the value that is sent there.

    `places` names the executor of each slot, `of_worker` the slot of each worker.
    """

    anchor: DataFrame
    keys: Sequence[int]
    places: Sequence[str]
    of_worker: Sequence[int]

    @property
    def workers(self) -> dict[int, int]:
        """By slot: its worker."""
        return {slot: worker for worker, slot in enumerate(self.of_worker)}

    def have_room(self, workers: int) -> bool:
        """Is there a slot for each of so many workers, and is the anchor still cached?"""
        return workers <= len(self.keys) and self.anchor.storageLevel.useMemory

    def pin(self, rows: DataFrame) -> DataFrame:
        """Rows that have their slot's key in the column `_slot`, brought to the slot."""
        parts = rows.repartition(len(self.keys), SLOT)
        return parts.join(self.anchor.hint("shuffle_hash"), SLOT, "left_semi").drop(SLOT)


class Pinning:
    """Gives workers their slots, and lets them keep their executors when workers come and go."""

    def __init__(self) -> None:
        self._possible: bool | None = None
        self._addresses: frozenset[str] = frozenset()
        self._slots: Slots | None = None
        self._homes: dict[int, str] = {}

    def is_settled(self, spark: SparkSession) -> bool:
        """Are there the same executors as before?"""
        return self._addresses == _addresses(spark)

    def slots(self, spark: SparkSession, workers: int) -> Slots | None:
        """The slots for so many workers; None where pinning is not possible or makes no sense."""
        before, self._addresses = self._addresses, _addresses(spark)
        executors = len(self._addresses) - 1
        if executors < 2 or not self._is_possible(spark):
            self.close()
            return None
        known = self._slots
        if known is None or self._addresses != before or not known.have_room(workers):
            self.close()
            known = _anchored(spark, workers, executors)
        of_worker = assign(known.places, self._homes, workers)
        self._homes |= {worker: known.places[slot] for worker, slot in enumerate(of_worker)}
        self._slots = replace(known, of_worker=of_worker)
        return self._slots

    def sweep(self, cache: CacheSpec) -> None:
        """Delete the local files of a query that has ended from the executors of its slots."""
        if self._slots is not None:
            self._slots.anchor.rdd.foreachPartition(partial(_sweep, cache))

    def close(self) -> None:
        """Let the anchor go: executors that hold one are not given back."""
        if self._slots is not None:
            self._slots.anchor.unpersist()
            self._slots = None

    def _is_possible(self, spark: SparkSession) -> bool:
        if self._possible is None:
            self._possible = spark.sparkContext.getConf().get(LOCALITY, "true") == "false"
            if not self._possible:
                log.warning(
                    "workers run on any executor and fetch state anew whenever they change it: "
                    "start Spark with %s=false, so that they stay where they are",
                    LOCALITY,
                )
        return self._possible


def assign(places: Sequence[str], homes: Mapping[int, str], workers: int) -> list[int]:
    """A slot for each worker: at its home, unless that has more than its share of them.

    >>> assign(["a", "b", "a", "b"], {0: "b", 1: "b"}, 3)
    [1, 3, 0]
    """
    free: defaultdict[str, list[int]] = defaultdict(list)
    for slot, place in enumerate(places):
        free[place].append(slot)
    share = -(-workers // len(free))
    chosen: dict[int, int] = {}
    at = Counter[str]()
    for worker in range(workers):
        home = homes.get(worker, "")
        if home in free and free[home] and at[home] < share:
            chosen[worker] = free[home].pop(0)
            at[home] += 1
    for worker in range(workers):
        if worker not in chosen:
            roomy = max(free, key=lambda place: (bool(free[place]), -at[place], len(free[place])))
            chosen[worker] = free[roomy].pop(0)
            at[roomy] += 1
    return [chosen[worker] for worker in range(workers)]


def place() -> str:
    """The executor of this process, by its directory for local files."""
    return f"{socket.gethostname()}:{os.environ.get('SPARK_LOCAL_DIRS', '')}"


def _anchored(spark: SparkSession, workers: int, executors: int) -> Slots:
    """New slots: as many on each executor, and up to twice as many as workers, so that some can be
    added before there have to be new slots again."""
    wanted = min(max(workers, spark.sparkContext.defaultParallelism), 2 * workers)
    count = -(-wanted // executors) * executors
    keys = _keys(spark, count)
    anchor, places = _cached(spark, keys, executors)
    for _ in range(RETRIES):
        if set(Counter(places).values()) == {count // executors}:
            break
        anchor.unpersist(blocking=True)
        anchor, places = _cached(spark, keys, executors)
    else:
        log.warning("slots are spread unevenly, since executors are busy: %s", Counter(places))
    return Slots(anchor, keys, places, ())


def _cached(
    spark: SparkSession, keys: Sequence[int], executors: int
) -> tuple[DataFrame, list[str]]:
    """An anchor, and the executor of each of its parts."""
    found: dict[int, str] = {}
    with settings(spark, {"spark.sql.adaptive.enabled": "false"}):  # it would unite small parts
        rows = spark.createDataFrame([(key,) for key in keys], f"{SLOT} int")
        anchor = rows.repartition(len(keys), SLOT).cache()
        parts = anchor.rdd
        for first in range(0, len(keys), executors):
            # Of idle executors each gets one task, before any gets a second.
            wave = list(range(first, first + executors))
            found |= spark.sparkContext.runJob(parts, _whereabouts, wave)
    return anchor, [found[slot] for slot in range(len(keys))]


def _keys(spark: SparkSession, count: int) -> list[int]:
    """For each partition the first number that Spark sends there, when it hashes over so many."""
    tried = 64 * count
    hashed = f"transform(sequence(0, {tried}), n -> pmod(hash(cast(n AS int)), {count}))"
    row: Any = spark.sql(f"SELECT {hashed} AS parts").head()
    return [row.parts.index(part) for part in range(count)]


def _sweep(cache: CacheSpec, rows: Iterable[Any]) -> None:
    shutil.rmtree(cache.path, ignore_errors=True)


def _whereabouts(rows: Iterable[Any]) -> Iterator[tuple[int, str]]:
    for _ in rows:  # so that the part is computed and cached
        pass
    context = TaskContext.get()
    assert context is not None
    yield context.partitionId(), place()


def _addresses(spark: SparkSession) -> frozenset[str]:
    """Of the driver, and of the executors that there are now; in local mode there are none."""
    status = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()  # public in Scala and Java
    return frozenset(status.keys().mkString(",").split(","))
