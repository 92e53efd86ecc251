"""The handle of a running query."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from godwit.api.handles import Draining, Handover, Migration, Scheduled
from godwit.errors import ConfigError, FencedError, GodwitError, RefusedError
from godwit.inspect.graph import GraphView
from godwit.inspect.targets import Measured, Planner, target, targets
from godwit.log.history import History
from godwit.log.layout import SPARK
from godwit.log.spark_log import newest_commit
from godwit.migration.strategies import Strategy, parse
from godwit.model.ids import ExecutorId, WorkerId
from godwit.model.requests import OnTimeout
from godwit.model.routing import Routing, Update, check_bins
from godwit.placement.slots import Held, Placement
from godwit.planner.projected import Projected
from godwit.spark.epoch import Engine
from godwit.spark.interrupt import stopping_at_interrupt

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_COMMIT_SECONDS = 0.02  # between looks whether Spark has committed the last epoch
_TIDY_SECONDS = 10.0  # to wait for, at most, while the files of a query that has ended are deleted


class How(TypedDict, total=False):
    """How a migration goes; see `Query.migrate`."""

    strategy: Strategy | str | None
    deadline: float | None
    on_timeout: OnTimeout
    supersede: bool


class Query:
    """A running query. Its `spark_query` is Spark's own handle.

    >>> import godwit as gw
    >>> words = spark.readStream.schema("word string").json(f"{home}/input")
    >>> counts = gw.stream(words).aggregate("counts", key="word", n=gw.count())
    >>> query = counts.to(gw.files(home / "output")).start(home / "q", workers=2)
    >>> query.process_all_available()
    >>> migration = query.migrate(3)  # nothing stops
    >>> query.process_all_available()
    >>> query.routing().workers
    3
    >>> query.stop()
    >>> rows = spark.read.parquet(f"{home}/output").sort("word")
    >>> [(row.word, row.n) for row in rows.collect()]
    [('be', 1), ('to', 2)]
    """

    def __init__(self, spark_query: StreamingQuery, engine: Engine, *, available_now: bool) -> None:
        self.spark_query = spark_query
        self._available_now = available_now
        self._engine = engine
        engine.spark_query = spark_query
        self._driver = engine.driver
        self._ended = threading.Event()
        self._fenced: FencedError | None = None  # known when it has ended
        self._cleaner = threading.Thread(target=self._clean_up, name="godwit-clean-up", daemon=True)
        self._cleaner.start()
        threading.Thread(target=self._stop_if_asked, name="godwit-stop", daemon=True).start()

    def __repr__(self) -> str:
        name = f" '{self._engine.query_name}'" if self._engine.query_name else ""
        life = "running" if self._cleaner.is_alive() else "ended"
        return (
            f"<Query{name} of {', '.join(self.operators)} in {self._driver.checkpoint}: {life}, "
            f"epoch {self.epoch}>"
        )

    @property
    def operators(self) -> tuple[str, ...]:
        """The names of its stateful operators, in the order in which data flow."""
        return tuple(self._driver.operators)

    @property
    def epoch(self) -> int | None:
        """The newest published epoch."""
        return self._driver.published.epoch

    @property
    def is_active(self) -> bool:
        return bool(self.spark_query.isActive)

    def explain(self) -> None:
        """Print the graph of operators: what they take, where it goes, watermarks and workers.

        >>> query.explain()
        counts: aggregate by word
          from  source FileSource[.../input]
          to    files in .../output
          2 workers, 16 bins, no event time
        """
        driver = self._driver
        described = {name: one.describe() for name, one in driver.operators.items()}
        routings = {name: driver.routing(name) for name in driver.operators}
        print(GraphView(driver.graph, described, routings, driver.published.time.watermarks))

    def routing(self, operator: str | None = None) -> Routing:
        """The routing of the newest epoch that has begun, in the bins that there are now."""
        return self._driver.routing(self._only(operator))

    def migrate(
        self,
        target: Routing | int,
        operator: str | None = None,
        *,
        strategy: Strategy | str | None = None,
        deadline: float | None = None,
        on_timeout: OnTimeout = "finish",
        supersede: bool = False,
    ) -> Migration:
        """Bring the bins of an operator, or of all, to `target`, a step an epoch from the next on.

        A number stands for all bins spread evenly over that many workers, with as few moves as
        possible. `strategy` cuts the way into steps; by default it is `paced`, and bins move when
        their destination has fetched their files. After `deadline` seconds it finishes at once or
        rolls back, as `on_timeout` says. An operator has one migration at a time: another one is
        refused, unless it says `supersede` and goes on from where the open one is.

        Without `operator`, all operators accept it or none, and those that have the same routing
        take the same steps in the same epochs. Raises RefusedError.
        """
        if not isinstance(target, int | Routing):
            raise ConfigError(f"migrate to a number of workers or a Routing, not to {target!r}")
        targets = {
            name: self.routing(name).spread(target) if isinstance(target, int) else target
            for name in self._named(operator)
        }
        return self._migrate(
            targets,
            strategy=strategy,
            deadline=deadline,
            on_timeout=on_timeout,
            supersede=supersede,
        )

    def _migrate(
        self, targets: Mapping[str, Routing], *, strategy: Strategy | str | None = None, **how: Any
    ) -> Migration:
        requests = self._driver.requests.migrate_together(
            targets, strategy=parse(strategy) if isinstance(strategy, str) else strategy, **how
        )
        return Migration(self._driver, requests)

    def rescale(
        self,
        workers: int,
        operator: str | None = None,
        *,
        planner: Planner = "scattered",
        tau: float | None = None,
        projected: str | Path | None = None,
        **how: Unpack[How],
    ) -> Migration:
        """Migrate to so many workers, with a target that `planner` finds from the measured load.

        No worker gets more than `1 + tau` times the mean load, by default 1.1 times or as little as
        can be reached. The planner `markov` needs the directory of `projected` costs that `godwit
        project` filled. `how` is as in `migrate`. Of operators that move together, the load is that
        of all of them. Raises InfeasibleError, RefusedError.
        """
        costs = None if projected is None else Projected.load(Path(projected))
        return self._planned(operator, planner, tau, how, workers=workers, projected=costs)

    def rebalance(
        self, tau: float | None = None, operator: str | None = None, **how: Unpack[How]
    ) -> Migration:
        """Bring the load of every worker within `1 + tau` times the mean, by few bytes moved."""
        return self._planned(operator, "scattered", tau, how)

    @overload
    def drain(self, what: str) -> Draining: ...
    @overload
    def drain(
        self,
        what: int,
        operator: str | None = None,
        *,
        tau: float | None = None,
        **how: Unpack[How],
    ) -> Migration: ...
    def drain(
        self,
        what: int | str,
        operator: str | None = None,
        *,
        tau: float | None = None,
        **how: Unpack[How],
    ) -> Migration | Draining:
        """Give away what a worker (a number) or an executor (Spark's id of it, a string) has.

        The bins of a worker are shared out among the others that have some; it stays, without
        anything to do, until `rescale` or `migrate` names a number of workers. The workers of an
        executor are handed over to others, as by `handover`, and it gets none and no replicas from
        then on, so that it can be taken away. Raises RefusedError.
        """
        if isinstance(what, int):
            return self._planned(operator, "scattered", tau, how, drained=[what])
        executor = ExecutorId(what)
        self._driver.requests.drain(executor)
        return Draining(self._driver, executor)

    def handover(self, worker: int, executor: str) -> Handover:
        """Let a worker run on another executor, by Spark's id of it, from the epoch on in which
        that has the worker's state; it fetches it in the background, unless it has a replica.

        Needs several executors, and Spark started so that workers can be pinned to them. Raises
        RefusedError.
        """
        asked = self._driver.requests.handover(WorkerId(worker), ExecutorId(executor))
        return Handover(self._driver, asked.id)

    @property
    def placement(self) -> Placement | None:
        """The executor of each worker, and those with replicas; None if they are not pinned."""
        return self._driver.placements.placement

    @property
    def handovers(self) -> tuple[Handover, ...]:
        """Those that are open, also those that nobody asked for."""
        open_ones = self._driver.placements.state.handovers
        return tuple(Handover(self._driver, one.id) for one in open_ones)

    def replicas(self) -> Mapping[str, Mapping[int, Held]]:
        """By executor and worker, how far the replicas are that executors keep; what is missing is
        not known."""
        held = self._driver.placements.replicas()
        return {executor: dict(workers.items()) for executor, workers in held.items()}

    def _planned(
        self,
        operator: str | None,
        planner: Planner,
        tau: float | None,
        how: How,
        *,
        workers: int | None = None,
        drained: Sequence[int] = (),
        projected: Projected | None = None,
    ) -> Migration:
        history = History(self._driver.checkpoint)
        routings = {name: self.routing(name) for name in self._named(operator)}
        measured = {
            name: Measured.of(history, name, routing.bins) for name, routing in routings.items()
        }

        def plan(routing: Routing, load: Measured) -> Routing:
            options: dict[str, Any] = {"workers": workers, "drained": drained}
            return target(planner, routing, load, tau=tau, projected=projected, **options)

        return self._migrate(targets(plan, routings, measured), **how)

    def migration(self, operator: str | None = None) -> Migration | None:
        """The open migration of an operator, or of all; an earlier start may have accepted it."""
        timelines = [self._driver.timelines[name] for name in self._named(operator)]
        open_ones = {one.migration.id: one.operator for one in timelines if one.migration}
        if len(open_ones) > 1:
            raise ConfigError(
                "operators have migrations of their own: name one of "
                f"{', '.join(open_ones.values())}"
            )
        found = [self._driver.requests.migration(id) for id in open_ones]
        return Migration(self._driver, found[0]) if found else None

    def split(self, bins: int, operator: str | None = None) -> None:
        """Give an operator, or all, `bins` bins, a power of two: split those there are, or merge
        them.

        It costs a new routing and nothing else, also while a migration is open, which goes on. From
        now on requests number the new bins. No bin moves, so bins can merge if they are at one
        worker, where an open migration comes from and leads to as well. Raises RefusedError.

        >>> query.split(64)
        >>> query.routing().bins
        64
        """
        check_bins(bins)
        self._driver.requests.split(operator, bins)

    def schedule(
        self, updates: Iterable[Update], operator: str | None = None, workers: int | None = None
    ) -> Scheduled:
        """Give bins to workers at epochs to come; `workers` is their number from then on.

        Without `operator`, it is for all operators, which accept it or refuse it together; they
        must have equally many bins. Raises RefusedError.
        """
        request = self._driver.requests.schedule(operator, updates, workers)
        return Scheduled(self._driver, request)

    def await_epoch(self, epoch: int, timeout: float | None = None) -> bool:
        """Wait until `epoch` is published; False if the query ends or `timeout` passes before."""
        return self._driver.published.wait(epoch, timeout)

    def process_all_available(self) -> None:
        """Wait until all data that are there now are processed, timers that they let fire have
        fired, and open migrations have ended. Raises what failed the query."""
        while True:
            try:
                self.spark_query.processAllAvailable()
            except Exception:
                self._raise_failure()
                raise
            if not self.is_active:
                self._ended.wait(_TIDY_SECONDS)
                self._raise_fenced()
                return
            if not self._driver.demand.wants_epoch:
                return
            self._driver.demand.tick()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends; raises what failed it. False if it runs on after `timeout`.

        Ctrl-C stops the query and raises KeyboardInterrupt.
        """
        with stopping_at_interrupt(self.stop):
            if not self._ended.wait(timeout):
                return False
        try:
            self.spark_query.awaitTermination()
        except Exception:
            self._raise_failure()
            raise
        self._raise_fenced()
        self._cleaner.join(_TIDY_SECONDS)
        return True

    def finish(self) -> None:
        """Process all data that are there, end the stream, so that all timers fire, and stop.

        Records that come later, or in a query that goes on with the checkpoint, are late. A source
        that always has more data has no end: stop it first. An open migration stays open. Raises
        what failed the query.
        """
        if self._available_now:
            raise RefusedError("a query that runs with available_now ends before its stream can")
        if not self.is_active:
            self._raise_failure()
            raise RefusedError("the query has ended; start it again to end its stream")
        self._driver.requests.let_end()
        self.process_all_available()
        epoch = self._driver.requests.finish()
        if not self._driver.monitor.wait_for(lambda: self._engine.delivered >= epoch):
            self._raise_failure()
            raise GodwitError(
                f"the query was stopped before epoch {epoch}, with which its stream ends; that is "
                "on record, and happens when the query starts again"
            )
        self.stop()

    def stop(self) -> None:
        """Stop the query; an unfinished epoch is replayed at the next start."""
        self.spark_query.stop()
        self._cleaner.join(_TIDY_SECONDS)

    def _raise_failure(self) -> None:
        if self._engine.failure is not None:
            raise self._engine.failure from None
        # A newer driver takes Spark's log away, which Spark cannot explain.
        try:
            self._driver.check()
        except FencedError as fenced:
            raise fenced from None

    def _raise_fenced(self) -> None:
        """Spark stops a query for another start of it in the same session as if it were asked."""
        if self._fenced is not None:
            raise self._fenced from None

    def _only(self, operator: str | None) -> str:
        if operator is None and len(self.operators) > 1:
            raise ConfigError(f"name one of the query's operators: {', '.join(self.operators)}")
        return operator or self.operators[0]

    def _named(self, operator: str | None) -> Sequence[str]:
        """The operators that a request is for: all, if it names none."""
        return self.operators if operator is None else [operator]

    def _stop_if_asked(self) -> None:
        """Stop after the epoch that the request of another process lets be the last.

        The thread of an epoch cannot: Spark waits for its end.
        """
        driver, engine = self._driver, self._engine

        def is_delivered() -> bool:
            return (last := driver.timelines.last_epoch) is not None and engine.delivered >= last

        if driver.monitor.wait_for(is_delivered):
            with suppress(Exception):  # Spark may be ending
                last = driver.timelines.last_epoch
                spark_log = driver.checkpoint.within(SPARK)
                while self.is_active and newest_commit(spark_log) != last:
                    time.sleep(_COMMIT_SECONDS)
            with suppress(Exception):  # whatever became of the wait: an epoch may wait for the stop
                self.spark_query.stop()

    def _clean_up(self) -> None:
        with suppress(Exception):  # whoever asks the handle is told
            self.spark_query.awaitTermination()
        try:
            self._driver.check()
        except FencedError as fenced:
            self._fenced = fenced
        except Exception:  # the files may be gone
            pass
        self._ended.set()
        self._driver.monitor.close()
        self._engine.ticker.hold()
        with suppress(Exception):  # Spark may have ended, too
            self._engine.unhush()
            self._engine.pinning.sweep(self._driver.cache)
            self._engine.pinning.close()
        if self._driver.cache.directory:
            self._driver.cache.delete()
        with suppress(Exception):  # another driver may have taken over, or the files be gone
            self._driver.journal.end()
