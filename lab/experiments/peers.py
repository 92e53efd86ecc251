"""Steady throughput and the time of an epoch: counts, a join and windows, beside Spark's own.

Events are there before they are asked for, so each query works as fast as it can. Spark has RocksDB
with changelog checkpoints and as many shuffle partitions as there are workers. Contenders take
turns (A B A B ...), each from an empty state; in the first turn each tries two sizes of epoch, and
goes on with that in which it took more events a second.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame

import godwit as gw
from lab.experiments.laboratory import LOCAL, Lab
from lab.tools import plots
from lab.tools.page import Findings, Section
from lab.tools.spark_query import ROCKSDB
from lab.tools.tables import ResultTable
from lab.workloads import spark_queries as spark
from lab.workloads.catalog import NEXMARK, NUMBERED, Workload
from lab.workloads.counts import count_record, hash_count, random_ids
from lab.workloads.nexmark import queries
from lab.workloads.overview import surroundings
from lab.workloads.plan import WorkloadRun
from lab.workloads.rate import Rate
from lab.workloads.report import RunReport

WORKERS: Final = 2
KEYS: Final = 1_000_000
RATE: Final = 10_000_000  # events a second: more than anybody takes
TURNS: Final = 3
EPOCHS: Final = 4
SKIPPED: Final = 1  # of them, which starts processes
WINDOW: Final = "10 seconds"
DILATION: Final = "200"  # so that windows close
LARGE: Final = (250_000, 1_000_000)
MEDIUM: Final = (100_000, 500_000)
SMALL: Final = (2_000, 5_000)
OURS: Final = "Godwit"
ABOUT: Final = (
    "Two workers on local[2], 1,000,000 keys, none of them known at the start; events are there "
    "before they are asked for. Every contender has the better of two sizes of epoch, and begins "
    "each of three turns with no state; of a turn's four epochs the first is not counted, and time "
    "ends with the last epoch that has events. Bars and rates are medians, with the lowest and the "
    "highest turn. A join scans the source once for each side, Spark's and Godwit's alike, so that "
    "all events are made twice; a function for each record of one scan is told beside them."
)


@dataclass(frozen=True, slots=True)
class PeerCase:
    """A way to answer a question, and the sizes of epoch that it may choose from."""

    question: str
    name: str
    workload: Workload
    sizes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of a contender with one size of epoch."""

    size: int
    reports: list[RunReport]

    @property
    def middle(self) -> RunReport:
        """The turn with the median of events a second, or the slower one of two."""
        return sorted(self.reports, key=RunReport.throughput)[(len(self.reports) - 1) // 2]

    @property
    def rates(self) -> plots.Middle:
        """Events a second: of the middle turn, the lowest and the highest."""
        all = [report.throughput() for report in self.reports]
        return self.middle.throughput(), min(all), max(all)

    @property
    def epoch(self) -> float:
        """The median length of the epochs of the middle turn that have events, in seconds."""
        delivered = [one.delivered for one in self.middle.epochs if one.last > one.first]
        return float(np.median(np.diff(delivered)[SKIPPED:]))


def peers(lab: Lab) -> Findings:
    """How fast is Godwit beside Spark's own operators, while nothing moves?"""
    found: dict[tuple[str, str], Turns] = {}
    runs: dict[str, RunReport] = {}
    with lab.spark(LOCAL, ROCKSDB) as session:
        for turn in range(lab.pick(TURNS, 1)):
            for one in contenders(lab.pick(KEYS, 20_000)):
                key = one.question, one.name
                sizes = sorted({lab.pick(size, max(500, size // 50)) for size in one.sizes})
                tried = []
                for size in sizes if turn == 0 else [found[key].size]:
                    label = f"{', '.join(key)}, {size:,} an epoch, turn {turn + 1}"
                    runs[label] = lab.run(session, label, _run(one, size))
                    tried.append(Turns(size, [runs[label]]))
                if turn == 0:
                    found[key] = max(tried, key=lambda one: one.rates)
                else:
                    found[key].reports.extend(tried[0].reports)
    return findings(found, runs)


def findings(found: Mapping[tuple[str, str], Turns], runs: Mapping[str, RunReport]) -> Findings:
    """What the turns of all contenders show, by question and name; and all runs that there were."""
    bars: dict[str, dict[str, plots.Middle]] = {}
    for (question, name), turns in found.items():
        bars.setdefault(question, {})[name] = turns.rates
    middle = {f"{question}: {name}": turns.middle for (question, name), turns in found.items()}
    return Findings(
        [
            Section("Events a second", ABOUT, plots.bars(bars, "events a second", OURS)),
            Section("By question", table=_table(found)),
            *surroundings(middle),
        ],
        runs,
        {"events_a_second": bars},
    )


def contenders(keys: int) -> Iterator[PeerCase]:
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
        yield PeerCase(question, name, counting(name, make=partial(make, keys=keys)), sizes)
    auctions = partial(Workload, source=NEXMARK)
    yield PeerCase("join", OURS, auctions("q3", make=queries.q3), MEDIUM)
    one_scan = auctions("q3", make=sellers_by_function)
    yield PeerCase("join", f"{OURS}, one scan", one_scan, MEDIUM)
    joined = auctions("sellers", make=spark.sellers)
    yield PeerCase("join", "stream-stream join", joined, MEDIUM)
    windows = partial(auctions, "windows", options={"dilation": DILATION}, closing=True)
    ours = partial(queries.hot_items, length=WINDOW, slide=WINDOW, delay="0 s")
    yield PeerCase("windows", OURS, windows(make=ours), LARGE)
    theirs = partial(spark.bids_by_window, length=WINDOW)
    yield PeerCase("windows", "groupBy(window)", windows(make=theirs), LARGE)


def sellers_by_function(events: DataFrame) -> gw.Stream:
    """Query 3 from one stream of persons and auctions, by a Python function for each record."""
    rows = events.where("person.state IN ('OR', 'ID', 'CA') OR auction.category = 10").selectExpr(
        "coalesce(person.id, auction.seller) AS seller",
        "person.name",
        "person.city",
        "person.state",
        "auction.id AS auction",
    )
    return gw.stream(rows).state_machine(
        "sellers",
        key="seller",
        function=match_seller,
        state={
            "person": gw.Value("name string, city string, state string"),
            "waiting": gw.List("auction long"),
        },
        output="name string, city string, state string, auction long",
    )


def match_seller(key: int, value: Any, state: Any) -> Iterator[tuple[Any, ...]]:
    """A record is a person or an auction."""
    person = state.person
    if value.auction is None:
        person.name, person.city, person.state = value.name, value.city, value.state
        for auction in state.waiting:
            yield person.name, person.city, person.state, auction
        state.waiting.clear()
    elif person.exists:
        yield person.name, person.city, person.state, value.auction
    else:
        state.waiting.append(value.auction)


def count_by_function(events: DataFrame, keys: int) -> gw.Stream:
    """How often has each id come? By a Python function for each record."""
    return gw.stream(random_ids(events, keys)).state_machine(
        "ids", key="id", function=count_record, state="n long", output=spark.COUNTS
    )


def _run(one: PeerCase, size: int) -> WorkloadRun:
    seconds, skipped = size * EPOCHS / RATE, size * SKIPPED / RATE
    rate = Rate.parse(str(RATE))
    return WorkloadRun(one.workload, rate, WORKERS, seconds, skipped, epoch_events=size)


def _table(found: Mapping[tuple[str, str], Turns]) -> ResultTable:
    rows = []
    for (question, name), turns in found.items():
        rate, lowest, highest = turns.rates
        faster = found[question, OURS].rates[0] / rate
        told = f"{rate:,.0f} ({lowest:,.0f}-{highest:,.0f})"
        cells = [told, f"{turns.epoch:.2f}", f"{turns.size:,}"]
        rows.append([question, name, *cells, "" if OURS in name else f"{faster:,.1f} x"])
    header = ["", "by", "events/s", "epoch, s", "events an epoch", "Godwit is faster"]
    return ResultTable(header, rows)
