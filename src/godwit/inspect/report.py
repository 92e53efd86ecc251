"""An epoch in numbers: what a log line, a listener and a dashboard tell of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from godwit.migration.strategies import left
from godwit.migration.timeline import Timeline
from godwit.model.graph import Graph
from godwit.model.ids import Epoch
from godwit.model.manifest import Manifest, WorkerStatistics
from godwit.model.routing import Routing
from godwit.model.text import plural
from godwit.model.time import show
from godwit.model.unread import UnreadFiles
from godwit.placement.slots import Placement, Replicas, by_worker


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """One worker of one operator in one epoch, with its seconds part by part.

    >>> WorkerReport(0, records=3, rows=2, fetched=0, seconds={"process": 0.01}).records
    3
    """

    worker: int
    records: int
    rows: int
    fetched: int
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """One operator in one epoch; seconds are those of the slowest worker, part by part.

    `rows` and `bytes` of state were changed and `merged` bytes rewritten; `fetched` bytes came into
    executors' caches, for which the slowest worker waited `fetch_seconds`. `moved` bins, with
    `moved_records`, have another worker than in the epoch before; `left` ones are still to move in
    the open migration. `late` records came after their time or had none; the watermark, if there is
    one, is in microseconds since 1970.

    >>> report = reports[-1]  # of job.start(..., listener=reports.append)
    >>> report.operators["counts"].workers
    2
    """

    name: str
    workers: int
    records: int
    late: int
    watermark: int | None
    outputs: int
    rows: int
    bytes: int
    merged: int
    fetched: int
    fetch_seconds: float
    moved: int
    moved_records: int
    left: int
    migration: int | None
    seconds: Mapping[str, float]
    by_worker: Sequence[WorkerReport] = ()

    @classmethod
    def of(
        cls,
        receipts: Sequence[WorkerStatistics],
        before: Routing | None,
        timeline: Timeline,
        watermark: int | None,
    ) -> Self:
        routing, migration = timeline.routing, timeline.migration
        moved = np.zeros(routing.bins, np.bool_)
        if before is not None:
            moved = before.with_bins(routing.bins).owners != routing.owners
        parts = dict.fromkeys(part for receipt in receipts for part in receipt.seconds)
        return cls(
            name=timeline.operator,
            workers=routing.workers,
            records=sum(receipt.records for receipt in receipts),
            late=sum(receipt.late for receipt in receipts),
            watermark=watermark,
            outputs=sum(receipt.outputs for receipt in receipts),
            rows=sum(receipt.rows for receipt in receipts),
            bytes=sum(receipt.bytes for receipt in receipts),
            merged=sum(receipt.merged_bytes for receipt in receipts),
            fetched=sum(receipt.fetched for receipt in receipts),
            fetch_seconds=max(receipt.fetch_seconds for receipt in receipts),
            moved=int(moved.sum()),
            moved_records=_records(receipts, moved) if moved.any() else 0,
            left=len(left(routing, migration.goal)) if migration else 0,
            migration=migration.id if migration else None,
            seconds={p: max(r.seconds.get(p, 0.0) for r in receipts) for p in parts},
            by_worker=tuple(
                WorkerReport(r.worker, r.records, r.rows, r.fetched, r.seconds)
                for r in sorted(receipts, key=lambda receipt: receipt.worker)
            ),
        )

    def __str__(self) -> str:
        text = f"{self.name}: {plural(self.workers, 'worker')}, {plural(self.rows, 'row')} changed"
        if self.watermark is not None:
            text += f", watermark {show(self.watermark)}"
        if self.late:
            text += f", {self.late:,} late"
        if self.moved:
            text += f", {plural(self.moved, 'bin')} moved"
        if self.migration is not None:
            text += f", migration {self.migration} has {plural(self.left, 'bin')} to go"
        return text


def _records(receipts: Sequence[WorkerStatistics], bins: npt.NDArray[np.bool_]) -> int:
    """The records of some bins."""
    return round(sum(float(one.records_by_bin(len(bins))[bins].sum()) for one in receipts))


def came_in(graph: Graph, operators: Mapping[str, OperatorReport]) -> int:
    """The records of all sources, behind the DataFrame code before operators.

    Each source counts where least else is counted: best at an operator that takes sources alone; of
    another one, what operators gave it does not count.
    """
    seen: set[int] = set()
    count = 0
    takes = {
        name: {source for parents in graph.inputs[name] for source in parents.sources}
        for name in operators
    }
    for name in sorted(takes, key=lambda name: (bool(graph.before(name)), -len(takes[name]))):
        if takes[name] - seen:
            given = sum(operators[before].outputs for before in graph.before(name))
            count += max(operators[name].records - given, 0)
            seen |= takes[name]
    return count


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A copy of a worker's state, `lag` epochs behind and with `lacking` bytes to fetch.

    One of which nothing is known lags by all epochs, and what it lacks is not known.

    >>> behind = ReplicaReport(worker=0, executor="2", lag=3, lacking=1 << 20)
    >>> behind.lacking
    1048576
    """

    worker: int
    executor: str
    lag: int
    lacking: int | None

    @classmethod
    def all(cls, epoch: Epoch, placement: Placement, held: Replicas) -> list[Self]:
        """Those of a placement, at the end of an epoch, by what executors say they have."""
        reports = []
        for worker, executors in by_worker(placement.replicas):
            for executor in executors:
                known = held.get(executor, {}).get(worker)
                newest = -1 if known is None or known.epoch is None else known.epoch
                lacking = known.lacking if known else None
                reports.append(cls(worker, executor, max(epoch - newest, 0), lacking))
        return reports


@dataclass(frozen=True, slots=True)
class EpochReport:
    """One epoch from its start to its delivery; `parts` of `seconds` are by name.

    `backlog` is how many offsets it leaves to read, of those that were there when the epoch before
    was planned, if the sources tell: records of Kafka, for example. `unread` are the files that
    wait, where sources are of files, as of a look a few seconds ago. `executors` has the one that
    each worker ran on, `replicas` is where copies of their state are to be, and how far these are.
    `records` came in: those of a source that several operators take count at one of them.

    >>> report = reports[-1]  # of job.start(..., listener=reports.append)
    >>> report.records, report.seconds > 0
    (3, True)
    """

    epoch: int
    seconds: float
    parts: Mapping[str, float]
    operators: Mapping[str, OperatorReport]
    backlog: int | None = None
    executors: Mapping[int, str] = field(default_factory=dict)
    replicas: Sequence[ReplicaReport] = ()
    unread: UnreadFiles | None = None
    records: int = 0

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        before: Mapping[str, Routing],
        timelines: Mapping[str, Timeline],
        watermarks: Mapping[str, int],
        parts: Mapping[str, float],
        backlog: int | None = None,
        replicas: Sequence[ReplicaReport] = (),
        unread: UnreadFiles | None = None,
    ) -> Self:
        operators = {
            name: OperatorReport.of(
                receipts, before.get(name), timelines[name], watermarks.get(name)
            )
            for name, receipts in manifest.receipts.items()
        }
        return cls(
            manifest.epoch,
            sum(parts.values()),
            dict(parts),
            operators,
            backlog,
            dict(manifest.executors.items()),
            tuple(replicas),
            unread,
            came_in(manifest.graph or Graph.chain(list(operators)), operators),
        )

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.parts.items())
        operators = "; ".join(str(operator) for operator in self.operators.values())
        behind = f", {self.backlog:,} waiting" if self.backlog else ""
        if self.unread is not None and self.unread.files:
            behind += f", {self.unread}"
        return (
            f"epoch {self.epoch}: {plural(self.records, 'record')} in {self.seconds:.2f} s "
            f"({parts}){behind}; {operators}"
        )
