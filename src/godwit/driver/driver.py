"""The driver: decides an epoch before it runs, publishes it after it is whole.

It owns a checkpoint while it holds the newest generation. It does no computing and knows no Spark:
a runtime (Spark, or the one in memory for tests) carries the work to workers and brings receipts.
"""

import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from godwit import faults
from godwit.driver.compatibility import check_restart
from godwit.driver.control import INITIAL, Control
from godwit.driver.event_time import EventTime
from godwit.driver.garbage import Garbage
from godwit.driver.merges import Trees, grown, merges_by_worker, plan_merges
from godwit.driver.placements import NOWHERE, Executors, Placements, bytes_by_worker
from godwit.driver.repetition import Repetition
from godwit.driver.timelines import Timelines
from godwit.errors import CheckpointError, ConfigError
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.log.journal import Journal
from godwit.log.layout import HOME
from godwit.log.manifest import Manifest
from godwit.log.receipt import Receipt, places
from godwit.migration.strategies import NOTHING, Paced, Ready
from godwit.model.routing import Routing
from godwit.model.unread import UnreadFiles
from godwit.operators.base import Operator
from godwit.placement.handover import Seen
from godwit.placement.slots import Replicas
from godwit.state.run import slices_of
from godwit.state.timed import WatermarkSpan, is_timed
from godwit.state.tree import Tree
from godwit.worker.keeper import KeeperSpec
from godwit.worker.work import Ahead, CacheSpec, Work

RECENT = 5  # epochs that tell what an epoch's work takes


class Driver(Control):
    """One checkpoint, opened under a generation.

    An epoch is either decided and not published (its intent exists), or published (its manifest
    exists); what no manifest names does not exist.
    """

    def __init__(
        self,
        checkpoint: Path,
        operators: Sequence[Operator],
        *,
        workers: int | None = None,
        bins: int | None = None,
        default_workers: int = 1,
        retention: int = 20,
        cache: CacheSpec | None = None,
        durable: bool = True,
        replicas: int = 0,
    ) -> None:
        if retention < 1:
            raise ConfigError(f"retention must be at least one epoch, not {retention}")
        self.checkpoint = checkpoint
        self.root = checkpoint / HOME
        named = {operator.name: operator for operator in operators}
        if len(named) < len(operators):
            raise ConfigError(
                "two operators have the same name; an operator's name is its identity"
            )
        self._described = {name: operator.describe() for name, operator in named.items()}
        check_restart(History(checkpoint), self._described, workers, bins)
        self._durable = durable
        journal = Journal.open(checkpoint, durable=durable)
        for name, operator in named.items():
            for spec in operator.tables:
                journal.files.make(f"state/{name}/{spec.name}")
            journal.files.make(f"outputs/{name}")
        last = journal.last()
        self._begun = max(journal.intents(), default=INITIAL)
        begun = journal.intent(self._begun)
        self._given = begun.given if begun and workers is None else workers
        placed = Placements(self.root, journal.generation, replicas)
        first = Routing.even(bins or 4096, workers or default_workers)
        timelines = Timelines(journal, named, first, self._begun, placed)
        if begun is not None:
            # A number of workers that a program names counts until it names another one: in
            # between, migrations have the last word.
            timelines.restart(None if workers == begun.given else workers, bins)
        super().__init__(
            named,
            journal,
            timelines,
            placed,
            last,
            _load_trees(named, last),
        )
        self._time = self._load_time()
        self._placed_anew = False  # otherwise than the newest intent says
        self._ready: dict[str, Ready] = {}  # by operator, as of the newest epoch of this process
        self._seconds: dict[str, deque[float]] = {  # of the slowest worker in the last epochs
            name: deque(maxlen=RECENT) for name in self.operators
        }
        self._repeats = {name: Repetition() for name in self.operators}
        if self.wants_epoch:
            self.tick()
        self._garbage = Garbage(self.root, self._journal, retention)
        self.cache = cache or CacheSpec(f"godwit-{uuid.uuid4().hex}", 8 << 30)

    # -- the life of an epoch ------------------------------------------------------------------

    @property
    def committed(self) -> int | None:
        """The newest published epoch."""
        return self._last.epoch if self._last else None

    @property
    def watermarks(self) -> Mapping[str, int]:
        """Of the newest published epoch, for operators that have one."""
        return self._time.watermarks

    def begin(
        self,
        epoch: int,
        query: str,
        offsets: str,
        backlog: int | None = None,
        executors: Executors = NOWHERE,
        unread: UnreadFiles | None = None,
    ) -> Intent | Manifest:
        """Decide `epoch`, or return its intent, or its manifest if it is published already.

        A replay of an epoch that was decided but not published gets the same intent; only where its
        workers run is decided anew, from the `executors` that there are.
        """
        held = self._placements.progress() if executors else {}
        with self._changed:
            if self._last is not None and epoch <= self._last.epoch:
                return self._published(epoch, offsets)
            if self._last is not None and epoch != self._last.epoch + 1:
                raise CheckpointError(
                    str(self.checkpoint),
                    f"Spark runs epoch {epoch}, but the newest published epoch is "
                    f"{self._last.epoch}. Its directory 'spark' belongs to another history; "
                    "restore both directories from the same backup.",
                )
            if self._placements.have_changed(executors):  # workers have to say again what they have
                self._ready = dict.fromkeys(self._ready, NOTHING)
            decision = self._timelines.begin(epoch, self._ready)
            stored = self._journal.intent(epoch)  # of a replay, which may have other workers
            self._place(epoch, (stored or decision).routings, executors, held)
            finished = {
                name for name, timeline in decision.timelines.items() if timeline.is_finished
            }
            intent = self._journal.begin(
                Intent(
                    epoch=epoch,
                    generation=self._journal.generation,
                    query=query,
                    offsets=offsets,
                    routings=decision.routings,
                    merges=plan_merges(self._trees, self._last, decision.timelines),
                    control=decision.control,
                    refused=decision.refused,
                    migrations=decision.migrations,
                    watermarks=self._time.next(finished),
                    sources=decision.sources,
                    given=self._given,
                    backlog=backlog,
                    unread=unread,
                    placement=self._placements.state.to_json(),
                )
            )
            self._placed_anew = intent.placement != self._placements.state.to_json()
            if epoch > self._begun:  # a replay was decided before
                self._begun = epoch
                self._timelines.decided(decision)
            return intent

    def place(self, intent: Intent, executors: Executors) -> None:
        """Decide anew where the workers of an epoch run, since an executor was lost in it."""
        held = self._placements.progress()
        with self._changed:
            self._place(intent.epoch, intent.routings, executors, held)
            self._placed_anew = True

    def _place(
        self,
        epoch: int,
        routings: Mapping[str, Routing],
        executors: Executors,
        held: Replicas,
    ) -> None:
        sizes = bytes_by_worker(self._trees, routings) if executors else ()
        self._placements.begin(Seen(epoch, executors, held, sizes))

    def work(self, intent: Intent, operator: str) -> Work:
        """What the workers of `operator` have to do in this epoch."""
        it = self.operators[operator]
        waits = any(is_timed(spec) for spec in it.tables)
        return Work(
            operator=it,
            epoch=intent.epoch,
            root=str(self.root),
            trees=self._trees[operator],
            merges=merges_by_worker(intent, operator),
            cache=self.cache,
            bins=intent.routings[operator].bins,
            slices=slices_of(intent.routings[operator]),
            routing=intent.routings[operator] if waits else None,
            span=WatermarkSpan(self.watermarks.get(operator), intent.watermarks.get(operator)),
            durable=self._durable,
            ahead=self._ahead(operator),
            prefold=it.prefold if self._repeats[operator].are_many else None,
        )

    def commit(self, intent: Intent, receipts: Mapping[str, Sequence[Receipt]]) -> Manifest:
        """Publish `intent`'s epoch with one receipt a worker and operator; then it has happened."""
        for operator, group in receipts.items():
            self._check_receipts(intent, operator, group)
        faults.reach("receipts", "after", intent.epoch)
        trees = {
            name: grown(self._trees[name], intent, name, receipts[name]) for name in self.operators
        }
        shown = {name: [receipt.clocks for receipt in group] for name, group in receipts.items()}
        after = self._time.after(intent, shown)
        manifest = self._journal.publish(
            Manifest(
                epoch=intent.epoch,
                generation=self._journal.generation,
                query=intent.query,
                offsets=intent.offsets,
                operators=self._described,
                trees={
                    name: {table: tree.to_json() for table, tree in tables.items()}
                    for name, tables in trees.items()
                },
                outputs={
                    name: [r.outputs.to_json() for r in group if r.outputs]
                    for name, group in receipts.items()
                },
                receipts={
                    name: [r.statistics() for r in group] for name, group in receipts.items()
                },
                clocks=after.clocks,
            )
        )
        adopted = manifest.generation != self._journal.generation
        with self._changed:
            self._trees = _load_trees(self.operators, manifest) if adopted else trees
            self._last = manifest
            self._time = self._load_time() if adopted else after
            for name, group in receipts.items():
                self._ready[name] = {receipt.worker: receipt.ready for receipt in group}
                self._seconds[name].append(max(receipt.work_seconds for receipt in group))
                table = self.operators[name].tables[0].name  # of aggregates: it has a row a key
                self._repeats[name].add(
                    sum(r.records for r in group), sum(r.changed(table) for r in group)
                )
            self._placements.published(manifest.epoch, places(manifest))
            self._changed.notify_all()
        self._garbage.collect(manifest)
        return manifest

    @property
    def wants_epoch(self) -> bool:
        """Does something wait for another epoch, with records or without?"""
        with self._changed:
            moving = self._timelines.are_open or self._placements.are_open
            return (moving and not self._unhurried) or self._time.is_due(self._trees)

    @property
    def can_settle(self) -> bool:
        """Would an epoch bring a handover further, also one that nobody asked for, or tell keepers
        and people where workers went when an executor was lost in the last one?"""
        if self._unhurried:
            return False
        if self._placed_anew:
            return True
        if not self.handovers:
            return False
        held = self._placements.progress()
        with self._changed:
            return self._placements.state.can_go_on(self._begun + 1, held)

    @property
    def keeper(self) -> KeeperSpec | None:
        """What keeps the replicas of the newest epoch that has begun, if it has any."""
        placement = self.placement
        if placement is None or not any(placement.replicas):
            return None
        return KeeperSpec(str(self.root), self._journal.generation, self.cache, executor="")

    def check(self) -> None:
        """Raise FencedError if another driver took the checkpoint over."""
        self._journal.check()

    def spark_log(self) -> Path:
        """The path at which this driver's Spark must address its log; call it once."""
        return self._journal.spark_log()

    # -- parts ---------------------------------------------------------------------------------

    def _load_time(self) -> EventTime:
        intent = self._journal.intent(self._last.epoch) if self._last else None
        return EventTime.of(self.operators, self._last, intent)

    def _published(self, epoch: int, offsets: str) -> Manifest:
        assert self._last is not None
        if epoch != self._last.epoch or offsets != self._last.offsets:
            raise CheckpointError(
                str(self.checkpoint),
                f"Spark replays epoch {epoch} with other offsets than those that were published "
                f"(newest published epoch: {self._last.epoch}). Its directory 'spark' belongs to "
                "another history; restore both directories from the same backup.",
            )
        return self._last

    def _ahead(self, operator: str) -> Ahead | None:
        """What destinations of an open migration are to fetch ahead of its steps."""
        migration, segments = (
            self._timelines[operator].migration,
            self._timelines[operator].sought(),
        )
        if migration is None or not isinstance(migration.strategy, Paced):
            return None
        recent = self._seconds[operator]
        budget = migration.strategy.seconds(median(recent) if recent else 0.0)
        return Ahead(segments, slices_of(migration.goal), budget)

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


def _load_trees(operators: Mapping[str, Operator], manifest: Manifest | None) -> Trees:
    stored = manifest.trees if manifest else {}
    return {
        name: {
            spec.name: Tree.from_json(stored[name][spec.name])
            if spec.name in stored.get(name, {})
            else Tree.empty()
            for spec in operator.tables
        }
        for name, operator in operators.items()
    }
