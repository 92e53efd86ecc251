"""The driver: decides an epoch before it runs, publishes it after it is whole.

It owns a checkpoint while it holds the newest generation. It does no computing and knows no Spark:
a runtime (Spark, or the one in memory for tests) carries the work to workers and brings receipts.
"""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from godwit import faults
from godwit.errors import CheckpointError, ConfigError, RefusedError
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.log.journal import Journal
from godwit.log.layout import HOME
from godwit.log.manifest import Manifest
from godwit.model.requests import (
    Abort,
    Finish,
    Migrate,
    OnTimeout,
    Request,
    Schedule,
    Updates,
    Wish,
)
from godwit.model.routing import Routing, Update
from godwit.operators.base import Operator
from godwit.protocol.course import Course
from godwit.protocol.migration import Ended, Phase
from godwit.runtime.compatible import check_restart
from godwit.runtime.courses import Courses
from godwit.runtime.event_time import EventTime
from godwit.runtime.garbage import Garbage
from godwit.runtime.merging import Trees, grown, merges_by_worker, plan_merges
from godwit.runtime.receipt import Receipt
from godwit.runtime.sizes import Sizes, bytes_by_bin
from godwit.runtime.work import Ahead, CacheSpec, Work
from godwit.state.timed import Span, is_timed
from godwit.state.tree import Tree
from godwit.strategies import Paced, Strategy
from godwit.strategies.steps import NOTHING, Ready

INITIAL = -1  # the epoch that loads a state given at the start
RECENT = 5  # epochs that tell what an epoch's work takes


class Driver:
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
    ) -> None:
        if retention < 1:
            raise ConfigError(f"retention must be at least one epoch, not {retention}")
        self.checkpoint = checkpoint
        self.root = checkpoint / HOME
        self.operators = {operator.name: operator for operator in operators}
        if len(self.operators) < len(operators):
            raise ConfigError(
                "two operators have the same name; an operator's name is its identity"
            )
        self._described = {name: operator.describe() for name, operator in self.operators.items()}
        check_restart(History(checkpoint), self._described, workers, bins)
        self._durable = durable
        self._journal = Journal.open(checkpoint, durable=durable)
        for name, operator in self.operators.items():
            for spec in operator.tables:
                self._journal.files.make(f"state/{name}/{spec.name}")
            self._journal.files.make(f"outputs/{name}")
        self._last = self._journal.last()
        self._changed = threading.Condition()
        self._trees: Trees = self._load_trees(self._last)
        self._time = self._load_time()
        self._begun = max(self._journal.intents(), default=INITIAL)
        begun = self._journal.intent(self._begun)
        self._given = begun.given if begun and workers is None else workers
        routings = self._first_routings(begun, workers, bins, default_workers)
        self._courses = Courses(self._journal, routings, self._begun)
        self._ready: dict[str, Ready] = {}  # by operator, as of the newest epoch of this process
        self._seconds: dict[str, deque[float]] = {  # of the slowest worker in the last epochs
            name: deque(maxlen=RECENT) for name in self.operators
        }
        self._closed = self._unhurried = False
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
        self, epoch: int, query: str, offsets: str, backlog: int | None = None
    ) -> Intent | Manifest:
        """Decide `epoch`, or return its intent, or its manifest if it is published already.

        A replay of an epoch that was decided but not published gets the same intent.
        """
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
            decision = self._courses.begin(epoch, self._ready)
            finished = {name for name, course in decision.courses.items() if course.is_finished}
            intent = self._journal.begin(
                Intent(
                    epoch=epoch,
                    generation=self._journal.generation,
                    query=query,
                    offsets=offsets,
                    routings=decision.routings,
                    merges=plan_merges(self._trees, self._last, decision.courses),
                    control=decision.control,
                    refused=decision.refused,
                    migrations=decision.migrations,
                    watermarks=self._time.next(finished),
                    sources=decision.sources,
                    given=self._given,
                    backlog=backlog,
                )
            )
            if epoch > self._begun:  # a replay was decided before
                self._begun = epoch
                self._courses.decided(decision)
            return intent

    def work(self, intent: Intent, operator: str) -> Work:
        """What the workers of `operator` have to do in this epoch."""
        waits = any(is_timed(spec) for spec in self.operators[operator].tables)
        return Work(
            operator=self.operators[operator],
            epoch=intent.epoch,
            root=str(self.root),
            trees=self._trees[operator],
            merges=merges_by_worker(intent, operator),
            cache=self.cache,
            bins=intent.routings[operator].bins,
            routing=intent.routings[operator] if waits else None,
            span=Span(self.watermarks.get(operator), intent.watermarks.get(operator)),
            durable=self._durable,
            ahead=self._ahead(operator),
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
            self._trees = self._load_trees(manifest) if adopted else trees
            self._last = manifest
            self._time = self._load_time() if adopted else after
            for name, group in receipts.items():
                self._ready[name] = {receipt.worker: receipt.ready for receipt in group}
                self._seconds[name].append(max(receipt.work_seconds for receipt in group))
            self._changed.notify_all()
        self._garbage.collect(manifest)
        return manifest

    @property
    def wants_epoch(self) -> bool:
        """Does something wait for another epoch, with records or without?"""
        with self._changed:
            moving = self._courses.are_open and not self._unhurried
            return moving or self._time.is_due(self._trees)

    def tick(self) -> None:
        """Ask for another epoch."""
        self._journal.tick()

    def forget_ready(self) -> None:
        """Workers may run elsewhere from now on: they have to say again what they have."""
        with self._changed:
            self._ready = dict.fromkeys(self._ready, NOTHING)

    def check(self) -> None:
        """Raise FencedError if another driver took the checkpoint over."""
        self._journal.check()

    def spark_log(self) -> Path:
        """The path at which this driver's Spark must address its log; call it once."""
        return self._journal.spark_log()

    # -- control -------------------------------------------------------------------------------

    def course(self, operator: str) -> Course:
        """What is decided for an operator: its routing in the newest epoch that has begun (or in
        the first, if none has), and what is to come."""
        with self._changed:
            return self._courses[operator]

    def routing(self, operator: str) -> Routing:
        """The routing of the newest epoch that has begun (or of the first, if none has)."""
        return self.course(operator).routing

    def schedule(
        self, operator: str, updates: Iterable[Update], workers: int | None = None
    ) -> Schedule:
        """Accept updates for epochs that have not begun, durably; or refuse them all."""
        packed = Updates.of(updates)
        first = packed[0].epoch if packed else 0
        request = self._ask(
            operator,
            lambda course: Schedule(0, operator, first, packed, course.routing.bins, workers),
        )
        assert isinstance(request, Schedule)
        return request

    def wish(self, epoch: int, wishes: Iterable[Wish]) -> None:
        """Take updates that `epoch` read as data as requests, each once; they are for later epochs.

        Those that name no operator are for all. Like requests of other processes they are judged
        when they are taken in: the intent of the next epoch says which were refused.
        """
        with self._changed:
            for wish in wishes:
                updates = [Update(epoch + 1 if e is None else e, b, w) for e, b, w in wish.updates]
                packed = Updates.of(updates)
                first = packed[0].epoch if packed else epoch + 1
                for name in [wish.operator] if wish.operator else self.operators:
                    known = name in self.operators
                    bins = self._courses[name].routing.bins if known else 1
                    self._courses.add(Schedule(0, name, first, packed, bins, wish.workers, wish.id))

    def migrate(
        self,
        operator: str,
        target: Routing,
        *,
        strategy: Strategy | None = None,
        deadline: float | None = None,
        on_timeout: OnTimeout = "finish",
        supersede: bool = False,
    ) -> Migrate:
        """Accept a migration to `target`, durably, or refuse it; `deadline` is in seconds."""
        now = time.time()
        request = self._ask(
            operator,
            lambda course: Migrate(
                0,
                operator,
                course.routing,
                target,
                str(strategy or Paced()),
                now,
                None if deadline is None else now + deadline,
                on_timeout,
                supersede,
            ),
        )
        assert isinstance(request, Migrate)
        return request

    def abort(self, operator: str, migration: int, *, rollback: bool = False) -> None:
        """End an open migration after the steps that have begun, or move its bins back."""
        self._ask(operator, lambda _: Abort(0, operator, migration, rollback))

    def let_end(self) -> None:
        """Run no more epochs for requests alone: what is open goes on at the next start."""
        self._timed()
        self._unhurried = True

    def finish(self) -> int:
        """End the stream: let all timers fire in the next epoch, whose number this returns."""
        timed = self._timed()
        for name in timed:
            self._ask(name, lambda course: Finish(0, course.operator))
        with self._changed:
            return max(self._courses[name].finish or 0 for name in timed)

    def _timed(self) -> list[str]:
        timed = [name for name, operator in self.operators.items() if operator.delay is not None]
        if not timed:
            raise RefusedError("no operator of this query has event time: there is nothing to end")
        return timed

    def sizes(self, operator: str) -> Sizes:
        """The bytes of state of each bin, estimated."""
        with self._changed:
            bins = self._courses[operator].routing.bins
            return bytes_by_bin(self._trees[operator].values(), bins)

    def pace(self) -> float | None:
        """The mean time from one of the last epochs to the next, in seconds."""
        return self._journal.pace()

    def outcome(self, migration: int) -> Phase | None:
        """How a migration ended, once its last epoch is published; None as long as it is open."""
        with self._changed:
            ended = self._courses.ends.get(migration)
            return ended.phase if ended and self._is_published(ended.epoch) else None

    def ended(self, migration: int) -> Ended | None:
        """What has become of a migration, if it has ended."""
        with self._changed:
            return self._courses.ends.get(migration)

    def is_dropped(self, schedule: int) -> bool:
        """Was a schedule given up before its last update?"""
        with self._changed:
            return schedule in self._courses.dropped

    def open_request(self, operator: str) -> Migrate | None:
        """The request of an operator's open migration."""
        migration = self.course(operator).migration
        request = self._journal.control.request(migration.id) if migration else None
        assert request is None or isinstance(request, Migrate)
        return request

    def wait(self, epoch: int, timeout: float | None = None) -> bool:
        """Wait until `epoch` is published; False if the query ends or `timeout` passes before."""
        return self.wait_for(lambda: self._is_published(epoch), timeout)

    def wait_for(self, happened: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until something has `happened`; False if it has not by the end of the query."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or happened(), timeout)
            return happened()

    def wake(self) -> None:
        """Something has happened: let those who wait look."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """The query has ended: wake those who wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_published(self, epoch: int) -> bool:
        """Before the first epoch there is nothing to publish."""
        return epoch <= INITIAL or (self._last is not None and self._last.epoch >= epoch)

    def _ask(self, operator: str, make: Callable[[Course], Request]) -> Request:
        with self._changed:
            request = self._courses.ask(operator, make)
            self._changed.notify_all()
        self.tick()
        return request

    # -- parts ---------------------------------------------------------------------------------

    def _first_routings(
        self, begun: Intent | None, workers: int | None, bins: int | None, default_workers: int
    ) -> dict[str, Routing]:
        """A number of workers that a program names counts until it names another one: in between,
        migrations have the last word."""
        if begun is None:
            routing = Routing.even(bins or 4096, workers or default_workers)
            return dict.fromkeys(self.operators, routing)
        if workers == begun.given:
            workers = None
        return {
            name: routing.with_bins(bins or routing.bins).with_workers(workers or routing.workers)
            for name, routing in begun.routings.items()
        }

    def _load_trees(self, manifest: Manifest | None) -> Trees:
        stored = manifest.trees if manifest else {}
        return {
            name: {
                spec.name: Tree.from_json(stored[name][spec.name])
                if spec.name in stored.get(name, {})
                else Tree.empty()
                for spec in operator.tables
            }
            for name, operator in self.operators.items()
        }

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
        migration, segments = self._courses[operator].migration, self._courses[operator].sought()
        if migration is None or not isinstance(migration.strategy, Paced):
            return None
        recent = self._seconds[operator]
        return Ahead(segments, migration.strategy.seconds(median(recent) if recent else 0.0))

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
