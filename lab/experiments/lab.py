"""Where experiments are made: Spark applications, runs with progress, and quarters that move."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from godwit.spark.session import session
from godwit.spark.start import START_SETTINGS
from lab.experiments import plots
from lab.experiments.page import Findings, Section, Table
from lab.workloads import counts
from lab.workloads.catalog import NUMBERED, Workload
from lab.workloads.rate import Rate
from lab.workloads.report import Disturbance, Report
from lab.workloads.running import Move, Run, Say, run

T = TypeVar("T")

WORKERS: Final = 4
CLUSTER: Final = "local-cluster[2,2,1536]"  # two executors, with caches of their own
LOCAL: Final = "local[2]"
EXCLUDED: Final = (
    "Not measured are the events of the warm-up, and what happens once all events have been "
    "delivered: migrations that are still open end, and windows that are left close. Outputs that "
    "wait for windows to close come with the epoch after that of the record that closes them; of "
    "these queries, the events of the last epoch are not measured either."
)
_CONF: Final = {
    # So that workers stay where they are; see docs/how-it-works.md.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "30s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # all executors are there at the begin
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": "2",
    **START_SETTINGS,  # for Spark's own queries, too: the faster way to write their logs
}


@dataclass(frozen=True, slots=True)
class Experiment:
    """What answers a question, and the minutes that it takes in small and in full."""

    run: Callable[["Lab"], Findings]
    minutes: tuple[float, float]

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def question(self) -> str:
        return self.run.__doc__ or ""


@dataclass(frozen=True, slots=True)
class Lab:
    """Whether all is to be measured in `full`, and who is told of the progress."""

    full: bool
    say: Say

    def pick(self, full: T, small: T) -> T:
        """A size: the one for serious measuring, or one to try the experiment out."""
        return full if self.full else small

    @contextmanager
    def spark(
        self, master: str = CLUSTER, conf: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[SparkSession]:
        """An application of its own, after a run that warms up its JVMs; its executors write to a
        directory that is deleted."""
        with tempfile.TemporaryDirectory(prefix="godwit-", ignore_cleanup_errors=True) as scratch:
            os.environ["SPARK_WORKER_DIR"] = scratch  # of a cluster
            with session(master, _CONF | {"spark.local.dir": scratch} | dict(conf)) as spark:
                workers = 2 if master == LOCAL else WORKERS
                rate = Rate.parse("20k")
                self.run(spark, "warming up", Run(hash_counts(100_000), rate, workers, 25.0, 0.0))
                yield spark

    def run(self, spark: SparkSession, label: str, wanted: Run) -> Report:
        """One run, in a directory that is deleted afterwards."""
        self.say(f"{label}: {wanted.seconds:.0f} s")
        with tempfile.TemporaryDirectory(prefix="godwit-") as directory:
            report = run(spark, wanted, Path(directory), lambda line: self.say(f"  {line}"))
        report.about = {**report.about, "label": label}
        return report

    def other(self, label: str, make: Callable[[], Report]) -> Report:
        """What is no run of a workload."""
        self.say(label)
        return make()


def hash_counts(keys: int, *, count: Callable[..., gw.Stream] = counts.hash_count) -> Workload:
    """Hash or key count over a domain of `keys` keys, all of which are known from the begin."""
    return Workload(
        count.__name__.replace("_", "-"),
        NUMBERED,
        partial(count, keys=keys),
        partial(known, keys=keys, count=count),
    )


def known(
    spark: SparkSession, *, keys: int, count: Callable[..., gw.Stream]
) -> Mapping[str, DataFrame]:
    """A count of one for each key."""
    key = "xxhash64(id, 1)" if count is counts.hash_count else "id"
    return {"ids": spark.range(keys).selectExpr(f"{key} AS id", "1L AS n")}


def quarters(bins: int) -> list[gw.Routing]:
    """Four routings over four workers, from the even one on: each moves a quarter of the bins.

    The first moves one half of the bins of workers 0 and 1 to 3 and 2, the second as many back, the
    third the other halves, and the fourth as many back. No bin moves twice, so no worker finds the
    files of a bin in its cache because it had the bin before.

    >>> [routing.owners.tolist() for routing in quarters(8)]
    [[3, 0, 2, 1, 2, 2, 3, 3], [3, 0, 2, 1, 1, 2, 0, 3], [3, 3, 2, 2, 1, 2, 0, 3], \
[3, 3, 2, 2, 1, 1, 0, 0]]
    """
    even = gw.Routing.even(bins, WORKERS).owners
    half = np.arange(bins) % (bins // WORKERS) < bins // WORKERS // 2
    other = WORKERS - 1 - even
    owners, found = even.copy(), []
    for low, first in ((True, True), (False, True), (True, False), (False, False)):
        moved = ((even < WORKERS // 2) == low) & (half == first)
        owners = np.where(moved, other, owners)
        found.append(gw.Routing(owners, WORKERS))
    return found


def moves(strategies: Sequence[str], bins: int, first: float, gap: float) -> tuple[Move, ...]:
    """A quarter of the state moves by each strategy in turn, from `first` on, every `gap` s."""
    targets = quarters(bins)
    return tuple(
        Move(first + gap * number, targets[number % len(targets)], strategy)
        for number, strategy in enumerate(strategies)
    )


def one_each(wanted: Run, strategies: Sequence[str], at: float) -> dict[str, Run]:
    """The same run for each strategy, which moves a quarter of the state `at` seconds."""
    return {name: replace(wanted, moves=moves([name], wanted.bins, at, 0)) for name in strategies}


def overview(
    reports: Mapping[str, Report],
    about: str = "",
    *,
    group: Callable[[str], str] = str,
    kind: Callable[[str], str] = str,
    by_size: bool = False,
) -> list[Section]:
    """What there is to see of runs, one beside the other: with runs of a `group` in one colour,
    strategies of a `kind` as well, and runs of growing size as such."""
    moving = {label: report for label, report in reports.items() if report.migrations}
    sections = [
        Section("Latency over time", f"{about} {EXCLUDED}".strip(), plots.timelines(reports))
    ]
    if moving:
        tradeoff = plots.tradeoff(moving, kind, by_size=by_size)
        sections += [
            Section("What each migration cost", table=disturbance_table(moving)),
            Section("Latency while state moves", figure=plots.ccdfs(moving)),
            Section("Greatest latency against duration", figure=tradeoff),
        ]
    else:
        sections.append(Section("All latencies", figure=plots.ccdfs(reports, "all", group)))
    sections.append(Section("Latencies", table=latency_table(reports)))
    return [*sections, *surroundings(reports, group)]


def surroundings(
    reports: Mapping[str, Report], group: Callable[[str], str] = str
) -> Iterator[Section]:
    """What runs took, and what they were."""
    if measured := {label: report for label, report in reports.items() if report.memory}:
        yield Section("Memory of all processes", figure=plots.memories(measured, group))
    names = list(dict.fromkeys(name for report in reports.values() for name in report.about))
    rows = [
        [label, *(str(report.about.get(name, "-")) for name in names), f"{report.warm_up:g} s"]
        for label, report in reports.items()
    ]
    yield Section("Configuration", table=Table(["", *names, "warm-up"], rows))


def disturbance_table(reports: Mapping[str, Report]) -> Table:
    """The three papers' metrics, a row for each migration."""
    header = ["", "operator", "strategy", "outcome", "max s before", "max s", "duration s"]
    header += ["disruption s", "jitter s", "state moved", "MiB fetched"]
    rows = [
        [label, one.operator, one.strategy, one.outcome, _seconds(usual), *_cells(one)]
        for label, report in reports.items()
        for usual in [before(report)]
        for one in report.disturbances()
    ]
    return Table(header, rows)


def before(report: Report) -> float | None:
    """The greatest latency before anything moved, in seconds."""
    return float(report.steady().max()) if len(report.steady()) else None


def latency_table(reports: Mapping[str, Report]) -> Table:
    """Percentiles by kind of events: with state that moves, of keys that moved and of others."""
    header = ["", "events", "number", "p50 s", "p99 s", "p99.9 s", "max s"]
    rows = [
        [label, kind, f"{found['events']:,}"]
        + [f"{found[name]:.2f}" for name in ("p50", "p99", "p99.9", "max")]
        for label, report in reports.items()
        for kind, found in report.summary().items()
    ]
    return Table(header, rows)


def _cells(one: Disturbance) -> list[str]:
    seconds = map(_seconds, (one.greatest, one.duration, one.disruption, one.jitter))
    return [*seconds, f"{one.share:.0%}", f"{one.fetched / 2**20:.1f}"]


def _seconds(some: float | None) -> str:
    return "-" if some is None else f"{some:.2f}"
