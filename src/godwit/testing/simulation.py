"""Epochs without Spark: the same driver, log, files and operators, in this process."""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from godwit import faults
from godwit.api.job import Job
from godwit.driver.driver import Driver
from godwit.errors import ConfigError
from godwit.inspect.snapshot import Snapshot
from godwit.log.intent import Intent
from godwit.log.restore import restore
from godwit.log.spark_log import NO_SPARK
from godwit.model.files import FileRef
from godwit.model.hashing import Hashes, hash_rows
from godwit.model.ids import NO_EXECUTOR, Epoch, ExecutorId, WorkerId
from godwit.model.receipt import Receipt
from godwit.model.routing import Routing, Update
from godwit.operators.late import KeepingLate
from godwit.spark.node import LateRecords
from godwit.state.cache import CacheSpec
from godwit.state.table import HASH
from godwit.testing.arrow_flow import ArrowFlow, Batch
from godwit.testing.order import in_order
from godwit.testing.prefold import folded
from godwit.worker.work import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Iterable[Mapping[str, Any]]
Row = dict[str, Any]


class Epochs:
    """A dataflow over a replayable list of batches, run as Structured Streaming would run it. What
    names no operator is asked of all of them.

    A process death is an exception from `godwit.faults.handler`; `restart` then opens the
    checkpoint again, and `resume` replays the epoch that was not committed with the same batch.
    What outlives a process is here, as in reality: the batches of the source, Spark's log of
    commits, the checkpoint, and the rows delivered for each epoch.

    Where an operator allows it, records are folded before workers get them in about every other
    epoch, so that no test passes which does not pass either way.
    """

    def __init__(
        self,
        checkpoint: Path,
        flow: ArrowFlow,
        *,
        workers: int,
        bins: int,
        retention: int,
        hashes: Callable[[pa.Table], Hashes] = hash_rows,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._checkpoint = checkpoint
        self._flow = flow
        self._hashes = hashes
        self._clock = clock
        self._retention = retention
        self._batches: list[Batch] = []
        self._committed = -1
        self._chance = Random(0)
        self._sinks: dict[int, dict[int, list[Row]]] = {}  # by number and epoch
        # With their hosts. Workers are placed on them, though all run in this process.
        self._executors: dict[str, str] = {}
        self._driver = self._open(workers, bins)

    def _open(self, workers: int | None, bins: int | None, drop: Collection[str] = ()) -> Driver:
        return Driver(
            self._checkpoint,
            list(self._flow.operators.values()),
            graph=self._flow.flow.graph,
            drop=drop,
            workers=workers,
            bins=bins,
            retention=self._retention,
            durable=False,  # a loss of power is not simulated
            clock=self._clock,
        )

    @property
    def committed(self) -> int:
        """The newest epoch in Spark's log of commits; -1 before the first."""
        return self._committed

    @property
    def _last(self) -> str:
        """The name of the last operator."""
        return list(self._flow.operators)[-1]

    def _offer(self, batch: Batch) -> None:
        self._batches.append(batch)
        self.resume()

    def resume(self) -> None:
        """Run all epochs whose batch is there and which are not committed."""
        while self._committed + 1 < len(self._batches):
            epoch = self._committed + 1
            self._run(epoch)
            faults.reach("commit", "before", epoch)
            self._committed = epoch
            faults.reach("commit", "after", epoch)

    def migrate(self, target: Routing | int, *, operator: str | None = None, **options: Any) -> int:
        """Start a migration to a routing, or to so many workers; returns its id.

        It goes on from epoch to epoch. Its options are those of `Query.migrate`.
        """
        names = self._driver.operators if operator is None else [operator]
        targets = {
            name: self._driver.routing(name).spread(target) if isinstance(target, int) else target
            for name in names
        }
        return self._driver.requests.migrate_together(targets, **options)[0].id

    def abort(self, migration: int, *, rollback: bool = False, operator: str | None = None) -> None:
        """End an open migration, or move its bins back."""
        self._driver.requests.abort(operator, migration, rollback=rollback)

    def split(self, bins: int, *, operator: str | None = None) -> None:
        """Split bins into so many, or merge them; none moves."""
        self._driver.requests.split(operator, bins)

    def schedule(
        self,
        updates: Iterable[Update],
        workers: int | None = None,
        *,
        operator: str | None = None,
    ) -> None:
        """Send bins to other workers in epochs to come."""
        self._driver.requests.schedule(operator, updates, workers)

    def finish(self) -> None:
        """End the stream: an epoch without records, in which all timers fire."""
        self._driver.requests.finish()
        self._offer(tuple(schema.empty_table() for schema in self._flow.schemas))

    def restore(self, epoch: int) -> None:
        """Roll checkpoint and log of commits back to a retained epoch, with no process running.

        Then `restart`; the source offers the batches of later epochs again.
        """
        restore(self._checkpoint, epoch, durable=False)
        self._committed = min(self._committed, epoch)

    def outputs(self, epoch: int | None = None, *, sink: int = 0) -> list[Row]:
        """All rows that reached a sink, in the order of their epochs; or those of one epoch.

        Sinks are numbered as they are given to `gw.query`.
        """
        found = self._sinks.get(sink, {})
        epochs = sorted(found) if epoch is None else [epoch]
        return [row for epoch in epochs for row in found.get(epoch, [])]

    def late(self, operator: str | None = None, epoch: int | None = None) -> list[Row]:
        """All late records that reached the `late` sink of an operator; or those of one epoch."""
        name = operator or self._last
        for number, (node, _) in enumerate(self._flow.flow.outlets):
            if isinstance(node.step, LateRecords) and self._flow.flow.behind(node) == (name,):
                return self.outputs(epoch, sink=number)
        raise ConfigError(f"operator '{name}' has no sink for late records; give it late=...")

    def state(
        self, table: str | None = None, epoch: int | None = None, *, operator: str | None = None
    ) -> list[Row]:
        """The rows of a state table as of a retained epoch, by default the newest published."""
        name = operator or self._last
        snapshot = Snapshot.open(self._checkpoint, name, table=table, epoch=epoch)
        return [row for rows in snapshot.read() for row in rows.to_pylist()]

    def _run(self, epoch: int) -> None:
        executors = {ExecutorId(one): host for one, host in self._executors.items()}
        decided = self._driver.begin(Epoch(epoch), NO_SPARK, str(epoch), executors=executors)
        flow = self._flow
        if isinstance(decided, Intent):
            known, receipts = flow.sources(self._batches[epoch]), {}
            for name, operator in flow.operators.items():
                node = flow.flow.operators[name]
                work = self._driver.work(decided, name)
                rows = flow.table(node.inputs[0], known)
                receipts[name] = list(self._receipts(work, decided.routings[name], rows))
                refs = [receipt.outputs for receipt in receipts[name] if receipt.outputs]
                known[node] = self._read(operator.output, refs)
            faults.reach("receipts", "before", epoch)
            decided = self._driver.commit(decided, receipts)
        faults.reach("sink", "before", epoch)
        known = {
            flow.flow.operators[name]: self._read(operator.output, decided.outputs[name])
            for name, operator in flow.operators.items()
            if name in decided.outputs
        }
        for number, (node, _) in enumerate(flow.flow.outlets):
            behind = flow.flow.behind(node)
            if isinstance(node.step, LateRecords):
                operator = flow.operators[behind[0]]
                assert isinstance(operator, KeepingLate)
                known[node] = self._read(operator.late, decided.late.get(operator.name, ()))
            if decided.operators.keys() >= set(behind):
                rows = flow.table(node, known)
                self._sinks.setdefault(number, {})[epoch] = rows.to_pylist()
        faults.reach("sink", "after", epoch)

    def _receipts(self, work: Work, routing: Routing, batch: pa.Table) -> Iterator[Receipt]:
        """Route the batch as F does, and let each worker work on its records."""
        if work.operator.prefold and self._chance.random() < 0.5:
            work = replace(work, prefold=work.operator.prefold)
            batch = folded(batch, work.operator, work.span.passed)
        hashes = self._hashes(batch.select(work.operator.key.names))
        owners = routing.owners_at(hashes)
        routed = batch.append_column(HASH, pa.array(hashes))
        for worker in map(WorkerId, range(routing.workers)):
            mine = routed.filter(pa.array(owners == worker))
            if work.operator.ordered:
                mine = in_order(mine, work.operator)
            alone = replace(work, cache=self._cache(worker))
            receipt = replace(alone.run(worker, mine.to_batches()), executor=self._place(worker))
            yield Receipt.from_text(receipt.to_text())

    def _place(self, worker: WorkerId) -> ExecutorId:
        placement = self._driver.placements.placement
        return placement.homes[worker] if placement else NO_EXECUTOR

    def _cache(self, worker: int) -> CacheSpec:
        """Each worker is an executor of its own."""
        return CacheSpec(f"cache-{worker}", 1 << 30, str(self._checkpoint))

    def _read(self, schema: pa.Schema, refs: Iterable[FileRef]) -> pa.Table:
        rows: list[Row] = []
        for ref in refs:
            data = pa.BufferReader(self._driver.files.read(ref.name))
            rows += pq.ParquetFile(data).read(use_threads=False).to_pylist()
        return pa.Table.from_pylist(rows, schema=schema)


class Simulation(Epochs):
    """Runs the job that Spark would run, in this process and in milliseconds, for unit tests.

    Operators, state files, the log and migrations are the real ones. The sink is not used:
    `outputs` has the rows. DataFrame code of your own (`transform`) needs Spark: give a session as
    `spark`, or describe the job over a streaming DataFrame. Without a `checkpoint`, files are in a
    temporary directory, which goes with the simulation. `clock` tells the seconds by which sources
    are idle.

    >>> import godwit as gw
    >>> from godwit.testing import Simulation
    >>> def job(views):
    ...     counts = gw.stream(views).aggregate(
    ...         "users",
    ...         key="user",
    ...         window=gw.tumbling("1 minute"),
    ...         time="at",
    ...         delay="0 s",
    ...         n=gw.count(),
    ...     )
    ...     return counts.to(gw.files("output"))
    >>> from datetime import datetime
    >>> simulation = Simulation(job("user string, at timestamp"))
    >>> simulation.feed([{"user": "ann", "at": datetime(2026, 1, 1, 12, 0, 5)}])
    >>> migration = simulation.migrate(3)  # workers
    >>> simulation.feed([{"user": "ann", "at": datetime(2026, 1, 1, 12, 0, 7)}])
    >>> simulation.outputs()  # the window is open
    []
    >>> simulation.restart()  # as after a crash
    >>> simulation.finish()
    >>> [(row["user"], row["n"]) for row in simulation.outputs()]
    [('ann', 2)]
    """

    def __init__(
        self,
        job: Job,
        checkpoint: str | Path | None = None,
        *,
        workers: int = 2,
        bins: int = 64,
        retention: int = 20,
        spark: SparkSession | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._spark = spark
        if checkpoint is None:
            checkpoint = tempfile.mkdtemp(prefix="godwit-simulation-")
            weakref.finalize(self, shutil.rmtree, checkpoint, ignore_errors=True)
        flow = ArrowFlow.of(job._flow, spark)
        super().__init__(
            *(Path(checkpoint), flow),
            workers=workers,
            bins=bins,
            retention=retention,
            clock=clock,
        )

    def feed(self, rows: Rows = (), **sources: Rows) -> None:
        """Run one epoch over records; of a job with several sources, over those of each by name.

        Two sources without a name are `left` and `right`. A column that a record leaves out is
        null. A time without a zone is in UTC.
        """
        given = {name: list(records) for name, records in sources.items()}
        self._offer(self._flow.batch(list(rows), given))

    def restart(
        self,
        job: Job | None = None,
        *,
        workers: int | None = None,
        bins: int | None = None,
        drop: Collection[str] = (),
    ) -> None:
        """Go on with the checkpoint as a new process would, perhaps with a changed job.

        Raises IncompatibleError if that does not fit the state.
        """
        if job is not None:
            self._flow = ArrowFlow.of(job._flow, self._spark)
        self._driver = self._open(workers, bins, drop)
