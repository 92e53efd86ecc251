"""An epoch in numbers: what a log line, a listener and a dashboard tell of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from godwit.log.manifest import Manifest
from godwit.log.receipt import places
from godwit.migration.strategies import left
from godwit.migration.timeline import Timeline
from godwit.model.loads import Loads
from godwit.model.routing import Routing
from godwit.model.time import show
from godwit.model.unread import UnreadFiles
from godwit.placement.slots import Placement, Replicas


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """One worker of one operator in one epoch, with its seconds part by part."""

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
    the open migration. `late` records were dropped; the watermark, if there is one, is in
    microseconds since 1970.
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
        receipts: Sequence[Mapping[str, Any]],
        before: Routing | None,
        timeline: Timeline,
        watermark: int | None,
    ) -> Self:
        routing, migration = timeline.routing, timeline.migration
        moved = np.zeros(routing.bins, np.bool_)
        if before is not None and before.bins == routing.bins:
            moved = before.owners != routing.owners
        parts = dict.fromkeys(part for receipt in receipts for part in receipt["seconds"])

        def total(name: str) -> int:
            return sum(receipt[name] for receipt in receipts)

        return cls(
            name=timeline.operator,
            workers=routing.workers,
            records=total("records"),
            late=total("late"),
            watermark=watermark,
            outputs=total("outputs"),
            rows=total("rows"),
            bytes=total("bytes"),
            merged=total("merged_bytes"),
            fetched=total("fetched"),
            fetch_seconds=max(r.get("fetch_seconds", 0.0) for r in receipts),
            moved=int(moved.sum()),
            moved_records=_records(receipts, moved) if moved.any() else 0,
            left=len(left(routing, migration.goal)) if migration else 0,
            migration=migration.id if migration else None,
            seconds={p: max(r["seconds"].get(p, 0.0) for r in receipts) for p in parts},
            by_worker=tuple(
                WorkerReport(r["worker"], r["records"], r["rows"], r["fetched"], r["seconds"])
                for r in sorted(receipts, key=lambda receipt: receipt["worker"])
            ),
        )

    def __str__(self) -> str:
        text = (
            f"{self.name}: {_number(self.workers, 'worker')}, {_number(self.rows, 'row')} changed"
        )
        if self.watermark is not None:
            text += f", watermark {show(self.watermark)}"
        if self.late:
            text += f", {self.late:,} late"
        if self.moved:
            text += f", {_number(self.moved, 'bin')} moved"
        if self.migration is not None:
            text += f", migration {self.migration} has {_number(self.left, 'bin')} to go"
        return text


def _number(count: int, what: str) -> str:
    """
    >>> _number(1, "worker"), _number(2_000, "row")
    ('1 worker', '2,000 rows')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _records(receipts: Sequence[Mapping[str, Any]], bins: npt.NDArray[np.bool_]) -> int:
    """The records of some bins."""
    loads = [Loads.from_text(receipt["loads"]) for receipt in receipts if receipt["loads"]]
    return round(sum(float(one.by_bin(len(bins))[bins].sum()) for one in loads))


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A copy of a worker's state, `lag` epochs behind and with `lacking` bytes to fetch.

    One of which nothing is known lags by all epochs, and what it lacks is not known.
    """

    worker: int
    executor: str
    lag: int
    lacking: int | None

    @classmethod
    def all(cls, epoch: int, placement: Placement, held: Replicas) -> list[Self]:
        """Those of a placement, at the end of an epoch, by what executors say they have."""
        reports = []
        for worker, executors in enumerate(placement.replicas):
            for executor in executors:
                known = held.get(executor, {}).get(worker)
                newest = -1 if known is None or known.epoch is None else known.epoch
                lacking = known.lacking if known else None
                reports.append(cls(worker, executor, max(epoch - newest, 0), lacking))
        return reports


@dataclass(frozen=True, slots=True)
class EpochReport:
    """One epoch from its begin to its delivery; `parts` of `seconds` are by name.

    `backlog` is how many offsets it leaves to read, of those that were there when the epoch before
    was planned, if the sources tell: records of Kafka, for example. `unread` are the files that
    wait, where sources are of files, as of a look a few seconds ago. `places` has the executor that
    each worker ran on, `replicas` is where copies of their state are to be, and how far these are.
    """

    epoch: int
    seconds: float
    parts: Mapping[str, float]
    operators: Mapping[str, OperatorReport]
    backlog: int | None = None
    places: Mapping[int, str] = field(default_factory=dict)
    replicas: Sequence[ReplicaReport] = ()
    unread: UnreadFiles | None = None

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
            places(manifest),
            tuple(replicas),
            unread,
        )

    @property
    def records(self) -> int:
        """The records that the first operator got."""
        return next(iter(self.operators.values())).records

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.parts.items())
        operators = "; ".join(str(operator) for operator in self.operators.values())
        behind = f", {self.backlog:,} waiting" if self.backlog else ""
        if self.unread is not None and self.unread.files:
            behind += f", {self.unread}"
        records = _number(self.records, "record")
        return (
            f"epoch {self.epoch}: {records} in {self.seconds:.2f} s ({parts}){behind}; {operators}"
        )
