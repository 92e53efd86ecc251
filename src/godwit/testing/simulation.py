"""Epochs without Spark: the same driver, log, files and operators, in this process."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from godwit import faults
from godwit.driver.driver import Driver
from godwit.inspect.snapshot import Snapshot
from godwit.log.intent import Intent
from godwit.log.receipt import Receipt
from godwit.log.restore import restore
from godwit.log.spark_log import NO_SPARK
from godwit.model.hashing import Hashes, hash_rows
from godwit.model.routing import Routing, Update
from godwit.operators.base import Operator
from godwit.state.table import HASH, FileRef
from godwit.testing.prefold import folded
from godwit.worker.work import CacheSpec, Work

Rows = Iterable[Mapping[str, Any]]
Row = dict[str, Any]


class Simulation:
    """One operator, or one behind the other, over a replayable list of batches, run as Structured
    Streaming would run them. What is asked of an operator is asked of the last, unless another is
    named.

    A process death is an exception from `godwit.faults.handler`; `restart` then opens the
    checkpoint again, and `resume` replays the epoch that was not committed with the same batch.
    What outlives a process is here, as in reality: the batches of the source, Spark's log of
    commits, the checkpoint, and `sink`, which has the rows delivered for each epoch.

    Where an operator allows it, records are folded before workers get them in about every other
    epoch, so that no test passes which does not pass either way.

    >>> import tempfile, godwit as gw
    >>> from godwit.testing import Simulation
    >>> schema = pa.schema({"word": pa.string()})
    >>> counts = gw.operators.Aggregate.of("counts", "word", {"n": gw.count()}, schema)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     sim = Simulation(Path(directory), counts, schema, workers=2, bins=16)
    ...     sim.feed([{"word": "a"}, {"word": "b"}, {"word": "a"}])
    ...     migration = sim.migrate(Routing.even(16, 3))
    ...     sim.feed([{"word": "a"}])
    ...     sorted((row["word"], row["n"]) for row in sim.state())
    [('a', 3), ('b', 1)]
    """

    def __init__(
        self,
        checkpoint: Path,
        operators: Operator | Sequence[Operator],
        schema: pa.Schema,
        *,
        workers: int = 2,
        bins: int = 64,
        retention: int = 20,
        hashes: Callable[[pa.Table], Hashes] = hash_rows,
    ) -> None:
        self._checkpoint = checkpoint
        self._operators = [operators] if isinstance(operators, Operator) else list(operators)
        self._schema = schema
        self._hashes = hashes
        self._retention = retention
        self._batches: list[pa.Table] = []
        self._committed = -1
        self._chance = Random(0)
        self.sink: dict[int, list[Row]] = {}
        # With their hosts. Workers are placed on them, though all run in this process.
        self.executors: dict[str, str] = {}
        self.driver = self._open(workers, bins)

    def _open(self, workers: int | None, bins: int | None) -> Driver:
        return Driver(
            self._checkpoint,
            self._operators,
            workers=workers,
            bins=bins,
            retention=self._retention,
            durable=False,  # a loss of power is not simulated
        )

    @property
    def _operator(self) -> Operator:
        return self._operators[-1]

    @property
    def committed(self) -> int:
        """The newest epoch in Spark's log of commits; -1 before the first."""
        return self._committed

    def restart(
        self,
        *,
        workers: int | None = None,
        bins: int | None = None,
        operator: Operator | None = None,
    ) -> None:
        """Open the checkpoint as a new process would."""
        if operator is not None:
            self._operators[-1] = operator
        self.driver = self._open(workers, bins)

    def feed(self, rows: Rows) -> None:
        """Run one epoch over `rows`; after a death, call `resume` on the restarted simulation."""
        self._batches.append(pa.Table.from_pylist(list(rows), schema=self._schema))
        self.resume()

    def resume(self) -> None:
        """Run all epochs whose batch is there and which are not committed."""
        while self._committed + 1 < len(self._batches):
            epoch = self._committed + 1
            self._run(epoch)
            faults.reach("commit", "before", epoch)
            self._committed = epoch
            faults.reach("commit", "after", epoch)

    def migrate(self, target: Routing, *, operator: str | None = None, **options: Any) -> int:
        """Start a migration to `target`; returns its id."""
        return self.driver.requests.migrate(operator or self._operator.name, target, **options).id

    def abort(self, migration: int, *, rollback: bool = False, operator: str | None = None) -> None:
        """End an open migration, or move its bins back."""
        self.driver.requests.abort(operator or self._operator.name, migration, rollback=rollback)

    def schedule(
        self,
        updates: Iterable[Update],
        workers: int | None = None,
        *,
        operator: str | None = None,
    ) -> None:
        """Send bins to other workers in epochs to come."""
        self.driver.requests.schedule(operator or self._operator.name, updates, workers)

    def finish(self) -> None:
        """End the stream: an epoch without records, in which all timers fire."""
        self.driver.requests.finish()
        self.feed([])

    def restore(self, epoch: int) -> None:
        """Roll checkpoint and log of commits back to a retained epoch, with no process running.

        Then `restart`; the source offers the batches of later epochs again.
        """
        restore(self._checkpoint, epoch, durable=False)
        self._committed = min(self._committed, epoch)

    def outputs(self) -> list[Row]:
        """All rows that reached the sink, in the order of their epochs."""
        return [row for epoch in sorted(self.sink) for row in self.sink[epoch]]

    def state(
        self, table: str | None = None, epoch: int | None = None, *, operator: str | None = None
    ) -> list[Row]:
        """The rows of a state table as of a retained epoch, by default the newest published."""
        name = operator or self._operator.name
        snapshot = Snapshot.open(self._checkpoint, name, table=table, epoch=epoch)
        return [row for rows in snapshot.read() for row in rows.to_pylist()]

    def _run(self, epoch: int) -> None:
        decided = self.driver.begin(epoch, NO_SPARK, str(epoch), executors=self.executors)
        if isinstance(decided, Intent):
            rows, receipts = self._batches[epoch], {}
            for operator in self._operators:
                work = self.driver.work(decided, operator.name)
                receipts[operator.name] = list(
                    self._receipts(work, decided.routings[operator.name], rows)
                )
                refs = [receipt.outputs for receipt in receipts[operator.name] if receipt.outputs]
                rows = pa.Table.from_pylist(self._read(refs), schema=operator.output)
            faults.reach("receipts", "before", epoch)
            decided = self.driver.commit(decided, receipts)
        faults.reach("sink", "before", epoch)
        self.sink[epoch] = self._read(decided.outputs[self._operator.name])
        faults.reach("sink", "after", epoch)

    def _receipts(self, work: Work, routing: Routing, batch: pa.Table) -> Iterator[Receipt]:
        """Route the batch as F does, and let each worker work on its records."""
        if work.operator.prefold and self._chance.random() < 0.5:
            work = replace(work, prefold=work.operator.prefold)
            batch = folded(batch, work.operator, work.span.passed)
        hashes = self._hashes(batch.select(work.operator.key.names))
        owners = routing.owners_at(hashes)
        routed = batch.append_column(HASH, pa.array(hashes))
        for worker in range(routing.workers):
            mine = routed.filter(pa.array(owners == worker))
            if work.operator.ordered:
                mine = mine.sort_by(_total_order(work.operator, batch.column_names))
            alone = replace(work, cache=self._cache(worker))
            receipt = replace(alone.run(worker, mine.to_batches()), place=self._place(worker))
            yield Receipt.from_text(receipt.to_text())

    def _place(self, worker: int) -> str:
        placement = self.driver.placements.placement
        return placement.homes[worker] if placement else ""

    def _cache(self, worker: int) -> CacheSpec:
        """Each worker is an executor of its own."""
        return CacheSpec(f"cache-{worker}", 1 << 30, str(self._checkpoint))

    def _read(self, refs: Iterable[FileRef]) -> list[Row]:
        rows: list[Row] = []
        for ref in refs:
            data = pa.BufferReader((self.driver.root / ref.name).read_bytes())
            rows += pq.ParquetFile(data).read(use_threads=False).to_pylist()
        return rows


def _total_order(operator: Operator, columns: Sequence[str]) -> list[tuple[str, str]]:
    """What `ordered` operators are promised: by hash, key, time and content."""
    first = [HASH, *operator.key.names, *([operator.time] if operator.time else [])]
    rest = [column for column in columns if column not in first]
    return [(column, "ascending") for column in (*first, *rest)]
