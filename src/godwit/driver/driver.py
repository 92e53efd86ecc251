"""The driver: decides an epoch before it runs, publishes it after it is whole.

It owns a checkpoint while it holds the newest generation. It does no computing and knows no Spark:
a runtime (Spark, or the one in memory for tests) carries the work to workers and brings receipts.
"""

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from godwit import faults
from godwit.driver.compatibility import check_restart
from godwit.driver.demand import Demand
from godwit.driver.garbage import Garbage
from godwit.driver.merges import Trees, grown, merges_by_worker, plan_merges
from godwit.driver.monitor import Monitor
from godwit.driver.placements import (
    NOWHERE,
    Executors,
    Placements,
    bytes_by_worker,
    new_workers_origins,
)
from godwit.driver.published import INITIAL, Published
from godwit.driver.recent import RecentEpochs
from godwit.driver.requests import Requests
from godwit.driver.timelines import Timelines
from godwit.errors import CheckpointError, ConfigError
from godwit.inspect.report import EpochReport, ReplicaReport
from godwit.log.addition import Addition
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.log.journal import Journal
from godwit.log.layout import SPARK
from godwit.log.spark_log import offsets_digest, planned_at, query_id, source_offsets
from godwit.migration.timeline import Timeline
from godwit.model.backlog import unread_offsets
from godwit.model.graph import Graph
from godwit.model.ids import Epoch
from godwit.model.manifest import Manifest
from godwit.model.receipt import Receipt
from godwit.model.routing import Routing
from godwit.model.time import Clocks
from godwit.model.unread import UnreadFiles
from godwit.operators.base import Operator
from godwit.placement.placement_state import Seen
from godwit.placement.slots import Replicas
from godwit.state.cache import CacheSpec
from godwit.state.run import slices_of
from godwit.state.timed import WatermarkSpan, is_timed
from godwit.storage.location import Location, open_store
from godwit.worker.peer_key import PeerKey
from godwit.worker.work import Ahead, Work


@dataclass(frozen=True, slots=True)
class Before:
    """What was there when an epoch began, as far as its report tells of it."""

    routings: Mapping[str, Routing]
    backlog: int | None


class Driver:
    """The life of an epoch on one checkpoint, opened under a generation.

    An epoch is either decided and not published (its intent exists), or published (its manifest
    exists); what no manifest names does not exist. The query's thread alone calls the methods; the
    parts say who calls them.
    """

    def __init__(
        self,
        checkpoint: Location,
        operators: Sequence[Operator],
        *,
        graph: Graph | None = None,
        drop: Collection[str] = (),
        workers: int | None = None,
        bins: int | None = None,
        default_workers: int = 1,
        retention: int = 20,
        cache: CacheSpec | None = None,
        durable: bool = True,
        replicas: int = 0,
        peer_key: PeerKey | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if retention < 1:
            raise ConfigError(f"retention must be at least one epoch, not {retention}")
        self.checkpoint = open_store(checkpoint, to_write=True, durable=durable)
        self._spark_log = self.checkpoint.within(SPARK)
        self.operators = {operator.name: operator for operator in operators}
        if len(self.operators) < len(operators):
            raise ConfigError(
                "two operators have the same name; an operator's name is its identity"
            )
        self.graph = graph or Graph.chain(list(self.operators), operators[0].inputs)
        self._described = {name: operator.describe() for name, operator in self.operators.items()}
        history = History(self.checkpoint)
        check_restart(history, self._described, self.graph, drop, workers, bins)
        self.cache = cache or CacheSpec(f"godwit-{uuid.uuid4().hex}", 8 << 30)
        self.journal = journal = Journal.open(self.checkpoint)
        self.files = journal.files
        for name, operator in self.operators.items():
            for spec in operator.tables:
                journal.files.make(f"state/{name}/{spec.name}")
            journal.files.make(f"outputs/{name}")
        self.monitor = Monitor()
        self.published = Published(self.operators, self.graph, journal, self.monitor)
        self.placements = Placements(
            self.checkpoint,
            self.files,
            journal.generation,
            self.cache,
            replicas,
            self.monitor,
            peer_key,
        )
        begun = max(journal.intents(), default=INITIAL)
        first = Routing.even(bins or 4096, workers or default_workers)
        self.timelines = Timelines(
            journal, self.monitor, self.graph, first, begun, self.placements, clock
        )
        self.timelines.start(workers, bins)
        self._clock = clock
        self.demand = Demand(
            journal, self.monitor, self.timelines, self.placements, self.published, clock
        )
        self.requests = Requests(
            self.operators,
            journal,
            self.monitor,
            self.timelines,
            self.placements,
            self.published,
            self.demand,
            clock,
        )
        self._recent = {
            name: RecentEpochs(operator.tables[0].name) for name, operator in self.operators.items()
        }
        if self.demand.wants_epoch or self.demand.awaits_silence:
            self.demand.tick()
        self._garbage = Garbage(journal, retention)
        self._before = Before({}, None)
        self._begun = clock()

    def routing(self, operator: str) -> Routing:
        """The routing of the newest epoch that has begun (or of the first, if none has)."""
        return self.timelines[operator].routing

    def begin(
        self,
        epoch: Epoch,
        query: str,
        offsets: str,
        backlog: int | None = None,
        executors: Executors = NOWHERE,
        unread: UnreadFiles | None = None,
        planned: float | None = None,
    ) -> Intent | Manifest:
        """Decide `epoch`, or return its intent, or its manifest if it is published already.

        Its records are those that were there when it was `planned`, which is now if not told.

        A replay of an epoch that was decided but not published gets the same intent; only where its
        workers run is decided anew, from the `executors` that there are.
        """
        held = self.placements.replicas() if executors else {}
        routings = {name: self.routing(name) for name in self.operators}
        self._before = Before(routings, backlog)
        self._begun = self._clock() if planned is None else planned
        with self.monitor:
            last = self.published.manifest
            if last is not None and epoch <= last.epoch:
                return self._same(last, epoch, offsets)
            if last is not None and epoch != last.epoch + 1:
                raise CheckpointError(
                    str(self.checkpoint),
                    f"Spark runs epoch {epoch}, but the newest published epoch is "
                    f"{last.epoch}. Its directory 'spark' belongs to another history; "
                    "restore both directories from the same backup.",
                )
            if self.placements.have_changed(executors):
                for recent in self._recent.values():
                    recent.forget_ready()
            ready = {name: recent.ready for name, recent in self._recent.items()}
            decision = self.timelines.begin(epoch, ready)
            stored = self.journal.intent(epoch)  # of a replay, which may have other workers
            self._place(epoch, (stored or decision).routings, executors, held, decision.timelines)
            intent = self.journal.begin(
                Intent(
                    epoch=epoch,
                    generation=self.journal.generation,
                    query=query,
                    offsets=offsets,
                    routings=decision.routings,
                    merges=plan_merges(self.published.trees, last, decision.timelines),
                    taken=decision.taken,
                    refused=decision.refused,
                    migrations=decision.migrations,
                    watermarks=self.published.time.next(decision.finished),
                    sources=decision.sources,
                    dropped=decision.dropped,
                    asked_workers=decision.asked_workers,
                    asked_bins=decision.asked_bins,
                    backlog=backlog,
                    unread=unread,
                    placement=self.placements.state.record(),
                )
            )
            self.placements.decided(intent.placement)
            self.timelines.decided(decision)
            return intent

    def begin_batch(
        self,
        epoch: Epoch,
        latest: Sequence[Any],
        executors: Executors,
        unread: UnreadFiles | None,
    ) -> Intent | Manifest:
        """`begin` for a batch of Spark's, whose log has its input. `latest` are the newest offsets
        that Spark knows of each source, if it tells."""
        spark = self._spark_log
        query, offsets = query_id(spark), offsets_digest(spark, epoch)
        if query is None or offsets is None:  # Spark writes both before a batch runs
            raise CheckpointError(
                str(self.checkpoint),
                f"Spark runs epoch {epoch}, of which its log in spark/ says nothing. Has somebody "
                "deleted or moved it? Restore the whole checkpoint from one backup",
            )
        left = unread_offsets(latest, source_offsets(spark, epoch))
        planned = planned_at(spark, epoch)
        return self.begin(epoch, query, offsets, left, executors, unread, planned)

    def place(self, intent: Intent, executors: Executors) -> None:
        """Decide anew where the workers of an epoch run, since an executor was lost in it."""
        held = self.placements.replicas()
        with self.monitor:
            timelines = {name: self.timelines[name] for name in self.operators}
            self._place(intent.epoch, intent.routings, executors, held, timelines)

    def work(self, intent: Intent, operator: str) -> Work:
        """What the workers of `operator` have to do in this epoch."""
        it = self.operators[operator]
        waits = any(is_timed(spec) for spec in it.tables)
        passed = self.published.time.watermarks.get(operator)
        keeper = self.placements.keeper
        return Work(
            operator=it,
            epoch=intent.epoch,
            store=self.files,
            trees=self.published.trees[operator],
            merges=merges_by_worker(intent, operator),
            cache=self.cache,
            bins=intent.routings[operator].bins,
            slices=slices_of(intent.routings[operator]),
            routing=intent.routings[operator] if waits else None,
            span=WatermarkSpan(passed, intent.watermarks.get(operator)),
            ahead=self._ahead(operator),
            prefold=it.prefold if self._recent[operator].prefold_pays else None,
            neighbours=keeper.neighbours if keeper else None,
        )

    def commit(self, intent: Intent, receipts: Mapping[str, Sequence[Receipt]]) -> Manifest:
        """Publish `intent`'s epoch with one receipt a worker and operator; then it has happened."""
        for operator, group in receipts.items():
            self._check_receipts(intent, operator, group)
        faults.reach("receipts", "after", intent.epoch)
        trees = {
            name: grown(self.published.trees[name], intent, name, receipts[name])
            for name in self.operators
        }
        seen = {name: [receipt.clocks for receipt in group] for name, group in receipts.items()}
        time = self.published.time.after(intent, seen, self._begun)
        manifest = self.journal.publish(self._manifest(intent, receipts, trees, time.clocks))
        with self.monitor:
            self.published.become(manifest, trees, time)
            for name, group in receipts.items():
                self._recent[name].add(group)
            self.placements.published(manifest.epoch, manifest.executors)
            self.monitor.wake()
        self._garbage.collect(manifest)
        return manifest

    def addition(self, names: Collection[str]) -> Intent:
        """What the workers of operators that the newest manifest lacks load their initial state by;
        nobody writes it down."""
        last = self.published.manifest
        assert last is not None
        routings = {name: self.routing(name) for name in names}
        return Intent(last.epoch, self.journal.generation, last.query, last.offsets, routings, {})

    def add(self, intent: Intent, receipts: Mapping[str, Sequence[Receipt]]) -> None:
        """Give the newest manifest operators that it lacks, with the state that was loaded."""
        for operator, group in receipts.items():
            self._check_receipts(intent, operator, group)
        trees = {
            name: grown(self.published.trees[name], intent, name, group)
            for name, group in receipts.items()
        }
        manifest = self._manifest(intent, receipts, trees, {})
        self.journal.add(Addition(manifest, intent.routings))
        self._garbage.collect(self.published.read_again())

    def _manifest(
        self,
        intent: Intent,
        receipts: Mapping[str, Sequence[Receipt]],
        trees: Trees,
        clocks: Mapping[str, Clocks],
    ) -> Manifest:
        """Of the operators that there are receipts of."""
        return Manifest(
            epoch=intent.epoch,
            generation=self.journal.generation,
            query=intent.query,
            offsets=intent.offsets,
            operators={name: self._described[name] for name in trees},
            trees={
                name: {table: tree.pack() for table, tree in tables.items()}
                for name, tables in trees.items()
            },
            outputs={
                name: tuple(r.outputs for r in group if r.outputs)
                for name, group in receipts.items()
            },
            receipts={
                name: tuple(r.statistics() for r in group) for name, group in receipts.items()
            },
            clocks=clocks,
            graph=self.graph,
            late={
                name: tuple(r.late_records for r in group if r.late_records)
                for name, group in receipts.items()
                if self._described[name].late is not None
            },
        )

    def report(
        self, manifest: Manifest, parts: Mapping[str, float], unread: UnreadFiles | None
    ) -> EpochReport:
        """The epoch that was begun last and is published now, whose parts took so many seconds."""
        placement = self.placements.placement
        replicas = (
            ReplicaReport.all(manifest.epoch, placement, self.placements.replicas())
            if placement
            else ()
        )
        return EpochReport.of(
            manifest,
            self._before.routings,
            {name: self.timelines[name] for name in self.operators},
            self.published.time.watermarks,
            parts,
            self._before.backlog,
            replicas,
            unread,
        )

    def check(self) -> None:
        """Raise FencedError if another driver has taken over."""
        self.journal.check()

    def _place(
        self,
        epoch: Epoch,
        routings: Mapping[str, Routing],
        executors: Executors,
        held: Replicas,
        timelines: Mapping[str, Timeline],
    ) -> None:
        own = {name: routings[name] for name in self.operators}  # an intent may know one more
        if not executors:
            self.placements.begin(Seen(epoch, executors, held, ()))
            return
        sizes = bytes_by_worker(self.published.trees, own)
        moving = {name: timelines[name].migration for name in own}
        goals = {name: one.goal if (one := moving[name]) else own[name] for name in own}
        origins = new_workers_origins(self._before.routings, goals)
        self.placements.begin(Seen(epoch, executors, held, sizes, origins))

    def _same(self, last: Manifest, epoch: Epoch, offsets: str) -> Manifest:
        """The newest manifest, if it is that of this epoch, with the same input."""
        if epoch != last.epoch or offsets != last.offsets:
            raise CheckpointError(
                str(self.checkpoint),
                f"Spark replays epoch {epoch} with other offsets than those that were published "
                f"(newest published epoch: {last.epoch}). Its directory 'spark' belongs to "
                "another history; restore both directories from the same backup.",
            )
        return last

    def _ahead(self, operator: str) -> Ahead | None:
        """What destinations of an open migration are to fetch ahead of its steps."""
        timeline = self.timelines[operator]
        migration = timeline.migration
        if migration is None:
            return None
        budget = self._recent[operator].fetch_budget(migration.strategy)
        if budget is None:
            return None
        return Ahead(timeline.sought(), slices_of(migration.goal), budget)

    def _check_receipts(self, intent: Intent, operator: str, group: Sequence[Receipt]) -> None:
        for receipt in group:
            if receipt.failure is not None:
                raise receipt.failure
        workers = intent.routings[operator].workers
        if sorted(receipt.worker for receipt in group) != list(range(workers)):
            raise CheckpointError(
                str(self.checkpoint),
                f"epoch {intent.epoch} of operator '{operator}' returned receipts of workers "
                f"{sorted(r.worker for r in group)} instead of 0 to {workers - 1}; not published",
            )
