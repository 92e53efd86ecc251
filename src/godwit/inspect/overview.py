"""What a query is doing, told from its checkpoint alone: for people, scripts and dashboards."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from godwit.errors import ConfigError
from godwit.inspect.graph import GraphView
from godwit.inspect.sizes import Sizes, bytes_by_bin, rows_by_bin, seconds_left
from godwit.log.history import Generation, History
from godwit.log.intent import Intent
from godwit.log.requests import RefusedRequest, WaitingRequest
from godwit.migration.migration import EndedMigration, OpenMigration, OperatorMigrations
from godwit.migration.strategies import left
from godwit.model.graph import Graph
from godwit.model.ids import Epoch, ExecutorId, SlotId, WorkerId
from godwit.model.manifest import Manifest, WorkerStatistics
from godwit.model.requests import migrate_of
from godwit.model.routing import Routing
from godwit.model.unread import UnreadFiles
from godwit.placement.handover import HandoverState
from godwit.placement.slots import Placement, Replicas
from godwit.storage.location import Location
from godwit.worker.replicas import read_progress


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A copy of a worker's state; without an `epoch` it is not known how far it is."""

    executor: ExecutorId
    epoch: Epoch | None
    lacking: int | None  # bytes


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker in the newest published epoch; its row versions and bytes of state are
    estimated.

    In that epoch it `ran` on an executor, whose cache lacked `fetched` bytes. Where workers are
    pinned, slot, executor and replicas are those of the newest decided epoch.
    """

    worker: WorkerId
    bins: int
    row_versions: int
    bytes: int
    records: int
    seconds: float
    ran: ExecutorId
    fetched: int
    slot: SlotId | None
    executor: ExecutorId
    replicas: tuple[ReplicaView, ...]


@dataclass(frozen=True, slots=True)
class MigrationView:
    """An open migration, or one of the past; bytes and seconds are estimated.

    One whose last epoch is decided, but not published, is `ending`.
    """

    id: int
    operator: str
    strategy: str
    workers: tuple[int, int]
    bins: int
    arrived: int
    accepted: float
    outcome: str
    epoch: Epoch | None
    bytes_left: int = 0
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class OperatorView:
    """One operator: its routing in the newest decided epoch, its state, its last epoch.

    Its `row_versions` are the rows of all its files: older ones of a key and deletions count until
    a merge drops them, and only reading the state tells how many rows there are.
    """

    name: str
    routing: Routing
    watermark: int | None
    row_versions: int
    bytes: int
    sizes: Sizes  # by bin, estimated
    files: int
    workers: tuple[WorkerView, ...]
    migration: MigrationView | None
    past: tuple[MigrationView, ...]

    @property
    def records(self) -> int:
        return sum(worker.records for worker in self.workers)

    @property
    def imbalance(self) -> float:
        """The records of the busiest worker over the mean of all; 1 is even, as without any."""
        if not self.records:
            return 1.0
        return max(w.records for w in self.workers) * len(self.workers) / self.records

    @property
    def migrations(self) -> tuple[MigrationView, ...]:
        """Those of the past, and the open one."""
        return (*self.past, self.migration) if self.migration else self.past


@dataclass(frozen=True, slots=True)
class ExecutorView:
    """An executor of the newest decided epoch, and how many workers and replicas are placed there.

    One that is `drained` gets none, and gives those away that it has.
    """

    executor: ExecutorId
    workers: int
    replicas: int
    drained: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """A query: `epoch` is the newest published one, `begun` the newest decided one, whose
    `operators` are told.

    `backlog` is how many offsets the latter leaves to read, if the sources tell, `unread` are the
    files that wait, if sources are of files. Where workers are
    pinned, there are `executors`, and `handovers`, in the order in which they were asked for.
    Requests are `waiting` until the newest decided epoch has taken them in; of the last ones it
    says which were `refused`, and why.
    """

    checkpoint: str
    epoch: Epoch
    begun: Epoch
    backlog: int | None
    pace: float | None  # seconds from one epoch to the next
    driver: Generation
    operators: Mapping[str, OperatorView]
    executors: tuple[ExecutorView, ...] = ()
    handovers: tuple[HandoverState, ...] = ()
    waiting: tuple[WaitingRequest, ...] = ()
    refused: tuple[RefusedRequest, ...] = ()
    unread: UnreadFiles | None = None
    graph: GraphView | None = None

    @classmethod
    def of(cls, checkpoint: Location) -> "Overview":
        history = History.inspect(checkpoint)
        manifest, intent = newest(history)
        generations = history.generations()
        # The graph is that of the newest manifest: an operator that was dropped since is in it.
        first = next(iter(intent.routings.values()))
        routings = {name: intent.routings.get(name, first) for name in manifest.operators}
        return cls(
            checkpoint=str(history.checkpoint),
            epoch=manifest.epoch,
            begun=intent.epoch,
            backlog=intent.backlog,
            pace=history.pace(),
            driver=generations[-1],
            operators={
                name: _operator(history, name, manifest, intent, routing)
                for name, routing in intent.routings.items()
            },
            executors=_executors(intent),
            handovers=_handovers(manifest, intent),
            waiting=tuple(history.requests.waiting(after=intent.taken)),
            refused=_refused(history, intent),
            unread=intent.unread,
            graph=GraphView(
                manifest.graph or Graph.chain(list(manifest.operators)),
                manifest.operators,
                routings,
                intent.watermarks,
            ),
        )

    def named(self, name: str | None) -> list[OperatorView]:
        """The operator of this name, or all."""
        return list(self.operators.values()) if name is None else [self.operator(name)]

    def operator(self, name: str | None) -> OperatorView:
        """The operator of this name, or the only one."""
        if name is None and len(self.operators) > 1:
            choices = " or ".join(f"--operator {each}" for each in self.operators)
            raise ConfigError(f"the query has several operators: say {choices}")
        name = name or next(iter(self.operators))
        if name not in self.operators:
            raise ConfigError(
                f"unknown operator '{name}'; the query has {', '.join(self.operators)}"
            )
        return self.operators[name]


def newest(history: History) -> tuple[Manifest, Intent]:
    """The newest published epoch and the newest decided one, beside a query that runs on."""
    while True:
        manifest = history.last()
        begun = max(history.intents(), default=None)
        if manifest is None or begun is None:
            raise ConfigError(f"{history.checkpoint} holds no committed epoch yet{_first(history)}")
        if (intent := history.intent(begun)) is not None:
            return manifest, intent


def _first(history: History) -> str:
    """Who is at the first epoch."""
    for driver in history.generations()[-1:]:
        if driver.gone:
            return f": driver {driver.number} ended in its first; start the query again"
        return f": driver {driver.number}, process {driver.pid} on {driver.host}, is at its first"
    return ""


def _refused(history: History, intent: Intent) -> tuple[RefusedRequest, ...]:
    """With the epochs that took them in; which did is not known once the one before is pruned."""
    epochs, found = history.intents(), []
    for id, reason in intent.refused.items():
        place = bisect_left(epochs, id, key=lambda epoch: history.taken(epoch) or 0)
        epoch = epochs[place] if 0 < place < len(epochs) else None
        found.append(history.requests.refused(id, epoch, reason))
    return tuple(found)


def _executors(intent: Intent) -> tuple[ExecutorView, ...]:
    if intent.placement is None:
        return ()
    placement = intent.placement.placement
    copies = Counter(executor for replicas in placement.replicas for executor in replicas)
    return tuple(
        ExecutorView(
            executor,
            placement.homes.count(executor),
            copies[executor],
            executor in intent.placement.drained,
        )
        for executor in placement.executors
    )


def _handovers(manifest: Manifest, intent: Intent) -> tuple[HandoverState, ...]:
    """As they are after the newest published epoch; the next intent will say so, too."""
    handovers = intent.placement.handovers if intent.placement else ()
    ran = manifest.executors
    now = [handover.published(manifest.epoch, ran) for handover in handovers]
    return tuple(sorted(now, key=lambda handover: handover.id))


def _operator(
    history: History, name: str, manifest: Manifest, intent: Intent, routing: Routing
) -> OperatorView:
    trees = [tree.unpack() for tree in manifest.trees.get(name, {}).values()]
    sizes = bytes_by_bin(trees, routing.bins)
    rows = rows_by_bin(trees, routing.bins)
    size = sum(ref.bytes for tree in trees for ref in tree.files.values())
    receipts = {receipt.worker: receipt for receipt in manifest.receipts.get(name, ())}
    placement = intent.placement.placement if intent.placement else None
    progress = read_progress(history.files, intent.generation) if placement else {}
    share, bytes = (np.bincount(routing.owners, each, routing.workers) for each in (rows, sizes))
    migrations = intent.migrations.get(name, OperatorMigrations())
    return OperatorView(
        name=name,
        routing=routing,
        watermark=intent.watermarks.get(name),
        row_versions=int(rows.sum()),
        bytes=size,
        sizes=sizes,
        files=sum(len(tree.files) for tree in trees),
        workers=tuple(
            WorkerView(
                worker=worker,
                bins=len(routing.bins_of(worker)),
                row_versions=round(share[worker]),
                bytes=round(bytes[worker]),
                records=receipt.records,
                seconds=round(sum(receipt.seconds.values()), 4),
                ran=receipt.executor,
                fetched=receipt.fetched,
                slot=placement.slots[worker] if placement else None,
                executor=placement.homes[worker] if placement else receipt.executor,
                replicas=_replicas(placement, progress, worker) if placement else (),
            )
            for worker in map(WorkerId, range(routing.workers))
            for receipt in [receipts.get(worker, WorkerStatistics(worker))]
        ),
        migration=_open(history, intent, name, migrations.open, sizes),
        past=tuple(_ended(one, manifest.epoch) for one in migrations.past),
    )


def _replicas(
    placement: Placement, progress: Replicas, worker: WorkerId
) -> tuple[ReplicaView, ...]:
    views = []
    for executor in placement.replicas[worker]:
        held = progress.get(executor, {}).get(worker)
        known = (held.epoch, held.lacking) if held else (None, None)
        views.append(ReplicaView(executor, *known))
    return tuple(views)


def _open(
    history: History, intent: Intent, name: str, opened: OpenMigration | None, sizes: Sizes
) -> MigrationView | None:
    if opened is None:
        return None
    request = migrate_of(history.requests.request(opened.id), name)
    assert request is not None
    migration = opened.resume(request, intent.routings[name].bins)
    bins = len(left(migration.origin, migration.target))
    rest = left(intent.routings[name], migration.goal)
    return MigrationView(
        id=request.id,
        operator=name,
        strategy=request.strategy,
        workers=(migration.origin.workers, migration.target.workers),
        bins=bins,
        arrived=bins - len(left(intent.routings[name], migration.target)),
        accepted=request.time,
        outcome=str(opened.phase),
        epoch=None,
        bytes_left=round(sizes[rest].sum()),
        seconds_left=seconds_left(migration, intent.routings[name], history.pace(), time.time()),
    )


def _ended(ended: EndedMigration, published: Epoch) -> MigrationView:
    return MigrationView(
        id=ended.id,
        operator=ended.operator,
        strategy=ended.strategy,
        workers=ended.workers,
        bins=ended.bins,
        arrived=ended.arrived,
        accepted=ended.accepted,
        outcome=str(ended.phase) if ended.epoch <= published else "ending",
        epoch=ended.epoch,
    )
