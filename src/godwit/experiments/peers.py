"""Steady throughput and the time of an epoch: counts, a join and windows, beside Spark's own.

Events are there before they are asked for, so each query works as fast as it can. Spark has RocksDB
with changelog checkpoints and as many shuffle partitions as there are workers. Each contender that
takes large epochs has the better of two sizes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame

import godwit as gw
from godwit.experiments import plots
from godwit.experiments import spark_queries as spark
from godwit.experiments.lab import LOCAL, Lab
from godwit.experiments.page import Findings, Section, Table
from godwit.workloads.catalog import NEXMARK, NUMBERED, Workload
from godwit.workloads.counts import hash_count, random_ids
from godwit.workloads.nexmark import queries
from godwit.workloads.rate import Rate
from godwit.workloads.report import Report
from godwit.workloads.running import Run

WORKERS: Final = 2
KEYS: Final = 1_000_000
RATE: Final = 10_000_000  # events a second: more than anybody takes
EPOCHS: Final = 6
SKIPPED: Final = 2  # of them, which warm up
WINDOW: Final = "10 seconds"
DILATION: Final = "200"  # so that windows close
LARGE: Final = (500_000, 2_000_000)
MEDIUM: Final = (100_000, 500_000)
SMALL: Final = (10_000,)
OURS: Final = "Godwit"
ABOUT: Final = (
    "Two workers on local[2], 1,000,000 keys, none of them known at the begin; events are there "
    "before they are asked for. Of six epochs the first two are not counted. Python functions of "
    "Spark get epochs of 10,000 events, all others the better of two sizes."
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to answer a question, and the sizes of epoch that it may choose from."""

    question: str
    name: str
    workload: Workload
    sizes: Sequence[int]


def peers(lab: Lab) -> Findings:
    """How fast is Godwit beside Spark's own operators, while nothing moves?"""
    best: dict[tuple[str, str], Report] = {}
    with lab.spark(LOCAL) as session:
        spark.use_rocksdb(session)
        for one in contenders(lab.pick(KEYS, 20_000)):
            tried = [
                lab.run(session, f"{one.question}, {one.name}, {size:,} an epoch", _run(one, size))
                for size in (lab.pick(size, max(500, size // 50)) for size in one.sizes)
            ]
            best[one.question, one.name] = max(tried, key=Report.throughput)
    rates = {f"{question}: {name}": one.throughput() for (question, name), one in best.items()}
    return Findings(
        [
            Section("Events a second", ABOUT, plots.bars(rates, "events a second", OURS)),
            Section("By question", table=_table(best)),
        ],
        {f"{question}: {name}": one for (question, name), one in best.items()},
    )


def contenders(keys: int) -> Iterator[Contender]:
    """All of them; Godwit comes first in each question."""
    counting = partial(Workload, source=NUMBERED, mode="update")
    for question, name, make, sizes in (
        ("count", OURS, hash_count, LARGE),
        ("count", "groupBy", spark.count_by_group, LARGE),
        ("count by a function", OURS, count_by_function, MEDIUM),
        (
            "count by a function",
            "applyInPandasWithState",
            spark.count_by_group_state,
            SMALL,
        ),
        ("count by a function", "transformWithStateInPandas", spark.count_by_pandas, SMALL),
        ("count by a function", "transformWithState", spark.count_by_rows, SMALL),
    ):
        yield Contender(question, name, counting(name, make=partial(make, keys=keys)), sizes)
    auctions = partial(Workload, source=NEXMARK)
    yield Contender("join", OURS, auctions("q3", make=queries.q3), MEDIUM)
    joined = auctions("sellers", make=spark.sellers)
    yield Contender("join", "stream-stream join", joined, MEDIUM)
    windows = partial(auctions, "windows", options={"dilation": DILATION})
    ours = partial(queries.hot_items, length=WINDOW, slide=WINDOW, delay="0 s")
    yield Contender("windows", OURS, windows(make=ours), LARGE)
    theirs = partial(spark.bids_by_window, length=WINDOW)
    yield Contender("windows", "groupBy(window)", windows(make=theirs), LARGE)


def count_by_function(events: DataFrame, keys: int) -> gw.Stream:
    """How often has each id come? By a Python function for each record."""
    return gw.stream(random_ids(events, keys)).state_machine(
        "ids", key="id", function=count, state="n long", output=spark.COUNTS
    )


def count(key: int, value: Any, state: Any) -> list[tuple[int, int]]:
    state.n = (state.n or 0) + 1
    return [(key, state.n)]


def _run(one: Contender, size: int) -> Run:
    seconds, skipped = size * EPOCHS / RATE, size * SKIPPED / RATE
    rate = Rate.parse(str(RATE))
    return Run(one.workload, rate, WORKERS, seconds, skipped, epoch_events=size)


def _table(best: dict[tuple[str, str], Report]) -> Table:
    rows = []
    for (question, name), report in best.items():
        rate = report.throughput()
        faster = best[question, OURS].throughput() / rate
        epoch = float(np.median(np.diff([e.delivered for e in report.epochs])[SKIPPED - 1 :]))
        cells = [f"{rate:,.0f}", f"{epoch:.2f}", f"{report.about['epoch_events']:,}"]
        rows.append([question, name, *cells, "" if name == OURS else f"{faster:,.1f} x"])
    header = ["", "by", "events/s", "epoch, s", "events an epoch", "Godwit is faster"]
    return Table(header, rows)
