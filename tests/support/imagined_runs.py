"""Runs that nobody made: an epoch a second or so, and migrations that take two."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import numpy as np
from pyspark.sql import SparkSession

from lab.experiments.laboratory import LOCAL, Lab
from lab.workloads.catalog import workload
from lab.workloads.plan import Departure, ScheduledMove, WorkloadRun
from lab.workloads.rate import SECOND, Rate
from lab.workloads.report import DeliveredEpoch, ObservedMigration, RunReport, Usage


@dataclass(frozen=True, slots=True)
class Imagined(Lab):
    """A lab that runs nothing; runs of different labels differ."""

    @contextmanager
    def spark(
        self, master: str = LOCAL, conf: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[SparkSession]:
        yield cast(SparkSession, None)

    def run(self, spark: SparkSession, label: str, wanted: WorkloadRun) -> RunReport:
        wanted.check()
        self.say(label)
        return imagined(wanted, label)

    def other(self, label: str, make: Callable[[], RunReport]) -> RunReport:
        self.say(label)
        report = RunReport(Rate.parse("10 for 5 s, 20 for 5 s"), 2.0, {"label": label})
        report.epochs = [DeliveredEpoch(n, 10 * n, 10 * n + 10, n + 2.0) for n in range(8)]
        report.migrations = [ObservedMigration("counts", "restart", 0, 1.0, 4.0, 6.0, "done")]
        return report


def run_of(name: str = "key-count", **options: object) -> WorkloadRun:
    given = {"rate": Rate.parse("1k"), "workers": 2, "seconds": 10.0, "warm_up": 2.0} | options
    return WorkloadRun(workload(name), **given)  # type: ignore[arg-type]


def imagined(wanted: WorkloadRun, label: str = "") -> RunReport:
    """Epochs come later while state moves, and each a little earlier or later than the others."""
    rng = np.random.default_rng(zlib.crc32(label.encode()))
    report = wanted.report()
    report.migrations = [
        ObservedMigration("ids", _strategy(move), 16, 0.25, move.at, move.at + 2, "done")
        for move in wanted.moves
    ]
    a_second = wanted.rate.until(SECOND)
    whole = wanted.epoch_events or a_second
    for number, first in enumerate(range(0, wanted.events, whole)):
        last = min(first + whole, wanted.events)
        at = number * whole / a_second
        moving = any(move.at <= at <= move.at + 2 for move in wanted.moves)
        late = (3.0 if moving else 1.5) + 0.3 * rng.random() * whole / a_second
        moved = {"ids": 8} if moving else {}
        share, fetched = (0.125 if moving else 0.0), {"ids": int(rng.integers(1000))}
        epoch = DeliveredEpoch(number, first, last, at + late, moved, share, fetched)
        report.epochs.append(epoch)
    report.usage = Usage(10.0 + rng.random(), rng.random(), int(rng.integers(10**6)), 60.0)
    moments = np.arange(int(wanted.seconds) + 5)
    mib = 1000 + 500 * rng.random(len(moments))
    report.memory = list(zip(moments.astype(float).tolist(), mib.tolist(), strict=True))
    return report


def _strategy(move: ScheduledMove | Departure) -> str:
    return f"executor {move.how}" if isinstance(move, Departure) else move.strategy
