"""What is to be run: a workload, its rate, and what happens to it meanwhile."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from godwit.errors import ConfigError
from godwit.inspect.targets import Planner
from godwit.migration.strategies import parse
from godwit.model.routing import check_workers
from godwit.model.time import micros
from lab.workloads.catalog import Workload
from lab.workloads.rate import SECOND, Rate
from lab.workloads.report import RunReport
from lab.workloads.source import register

BINS: Final = 4096
REBALANCE: Final[Literal["rebalance"]] = "rebalance"

_MOVE: Final = re.compile(r"at (.+?) (?:to (\d+) workers?|rebalance)(?: with (\S+))?")


@dataclass(frozen=True, slots=True)
class ScheduledMove:
    """A migration that is asked for so many seconds after the start: to a number of workers, to a
    routing, or to what balances the load that was measured until then (`rebalance`). Which bins
    workers get is up to a `planner`, if there is one; `projected` costs are for `markov`."""

    at: float
    target: int | gw.Routing | Literal["rebalance"]
    strategy: str = "paced"
    planner: Planner | None = None
    projected: Path | None = None

    @classmethod
    def parse(cls, text: str) -> "ScheduledMove":
        """
        >>> move = ScheduledMove.parse("at 20s to 4 workers with batched:64")
        >>> move.at, move.target, move.strategy
        (20.0, 4, 'batched:64')
        >>> ScheduledMove.parse("at 20s rebalance").target
        'rebalance'
        """
        if (found := _MOVE.fullmatch(text.strip())) is None:
            raise ConfigError(
                f"'{text}' is no move; write it like 'at 20s to 4 workers with paced' or "
                "'at 20s rebalance'"
            )
        strategy = found[3] or "paced"
        parse(strategy)
        at = micros(found[1]) / SECOND
        return cls(at, int(found[2]) if found[2] else REBALANCE, strategy)

    def ask(self, query: gw.Query, operator: str) -> gw.Migration:
        """Begin the migration of an operator."""
        if isinstance(self.target, int) and self.planner is not None:
            return query.rescale(
                self.target,
                operator,
                planner=self.planner,
                projected=self.projected,
                strategy=self.strategy,
                supersede=True,
            )
        if isinstance(self.target, str):
            return query.rebalance(None, operator, strategy=self.strategy, supersede=True)
        return query.migrate(self.target, operator, strategy=self.strategy, supersede=True)


@dataclass(frozen=True, slots=True)
class Departure:
    """The executor of worker 0 leaves so many seconds after the start: it is killed, or drained."""

    at: float
    how: Literal["killed", "drained"] = "killed"


@dataclass(frozen=True, slots=True)
class WorkloadRun:
    """What is to be run: `warm_up` seconds at the start are not measured.

    An epoch takes all events whose time has come, or at most `epoch_events` of them.
    """

    workload: Workload
    rate: Rate
    workers: int
    seconds: float
    warm_up: float
    moves: tuple[ScheduledMove | Departure, ...] = ()
    bins: int = BINS
    epoch_events: int | None = None
    replicas: int = 0  # of each worker, on other executors

    def check(self) -> None:
        """Refuse what cannot be run."""
        check_workers(self.workers)
        if not 0 <= self.warm_up < self.seconds:
            raise ConfigError(
                f"a run of {self.seconds:g} s leaves nothing to measure after a warm-up of "
                f"{self.warm_up:g} s"
            )
        for move in self.moves:
            if isinstance(move, ScheduledMove) and isinstance(move.target, int):
                check_workers(move.target)
            if move.at >= self.seconds:
                raise ConfigError(f"a move at {move.at:g} s comes after the end of the run")

    @property
    def events(self) -> int:
        return self.rate.until(int(self.seconds * SECOND))

    def rows(self, spark: SparkSession) -> DataFrame:
        """The events as a stream."""
        register(spark)
        source = spark.readStream.format(self.workload.source)
        source = source.options(rate=str(self.rate), events=self.events, **self.workload.options)
        if self.epoch_events is not None:
            source = source.option("epochEvents", self.epoch_events)
        return source.load()

    def report(self) -> RunReport:
        """One that has nothing in it yet."""
        about, closing = self.to_json(), self.workload.closing
        return RunReport(self.rate, self.warm_up, about, closing=closing)

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload.name,
            "rate": str(self.rate),
            "workers": self.workers,
            "seconds": self.seconds,
            "bins": self.bins,
            "epoch_events": self.epoch_events,
            "replicas": self.replicas,
        }
