"""Runs that nobody made: an epoch a second, and migrations that take two."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from pyspark.sql import SparkSession

from lab.experiments.lab import LOCAL, Lab
from lab.workloads.catalog import workload
from lab.workloads.rate import SECOND, Rate
from lab.workloads.report import Epoch, Migration, Report, Usage
from lab.workloads.running import Departure, Move, Run


@dataclass(frozen=True, slots=True)
class Imagined(Lab):
    """A lab that runs nothing."""

    @contextmanager
    def spark(
        self, master: str = LOCAL, conf: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[SparkSession]:
        yield cast(SparkSession, None)

    def run(self, spark: SparkSession, label: str, wanted: Run) -> Report:
        wanted.check()
        self.say(label)
        return imagined(wanted)

    def other(self, label: str, make: Callable[[], Report]) -> Report:
        self.say(label)
        report = Report(Rate.parse("10 for 5 s, 20 for 5 s"), 2.0, {"label": label})
        report.epochs = [Epoch(n, 10 * n, 10 * n + 10, n + 2.0) for n in range(8)]
        report.migrations = [Migration("counts", "restart", 0, 1.0, 4.0, 6.0, "done")]
        return report


def run_of(name: str = "key-count", **options: object) -> Run:
    given = {"rate": Rate.parse("1k"), "workers": 2, "seconds": 10.0, "warm_up": 2.0} | options
    return Run(workload(name), **given)  # type: ignore[arg-type]


def imagined(wanted: Run) -> Report:
    report = Report(wanted.rate, wanted.warm_up, wanted.to_json())
    report.closing = wanted.workload.closing
    report.migrations = [
        Migration("ids", _strategy(move), 16, 0.25, move.at, move.at + 2, "done")
        for move in wanted.moves
    ]
    whole = wanted.epoch_events or wanted.rate.until(SECOND)
    for number, first in enumerate(range(0, wanted.events, whole)):
        last = min(first + whole, wanted.events)
        at = number * whole / wanted.rate.until(SECOND)
        moving = any(move.at <= at <= move.at + 2 for move in wanted.moves)
        delivered = at + (3.0 if moving else 1.5)
        moved = {"ids": 8} if moving else {}
        share = 0.125 if moving else 0.0
        report.epochs.append(Epoch(number, first, last, delivered, moved, share, {"ids": 100}))
    report.usage = Usage(10.0, 1.0, 10**6, 60.0)
    report.memory = [(float(at), 1000.0 + at) for at in range(int(wanted.seconds) + 5)]
    return report


def _strategy(move: Move | Departure) -> str:
    return move.how if isinstance(move, Departure) else move.strategy
