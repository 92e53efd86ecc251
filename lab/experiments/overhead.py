"""Figures 13 to 15 of Megaphone: what do bins cost while nothing moves?

Hash and key count with ever more bins. "No routing" is the least that there is: a bin for each
worker, by which records are routed all the same. Spark's own `groupBy().count()` begins without
known keys.
"""

from functools import partial
from typing import Final

from lab.experiments.laboratory import LOCAL, Lab
from lab.tools import plots
from lab.tools.page import Findings, Section
from lab.tools.spark_query import ROCKSDB
from lab.workloads import counts
from lab.workloads.catalog import NUMBERED, Workload
from lab.workloads.known_counts import hash_counts
from lab.workloads.overview import overview
from lab.workloads.plan import WorkloadRun
from lab.workloads.rate import SECOND, Rate
from lab.workloads.report import RunReport
from lab.workloads.spark_queries import count_by_group

WORKERS: Final = 2
MANY_BINS: Final = tuple(1 << bits for bits in (4, 8, 12, 16, 20))


def overhead(lab: Lab) -> Findings:
    """What do bins cost while nothing moves?"""
    keys = lab.pick(1_000_000, 100_000)
    warm_up, seconds = lab.pick((8.0, 26.0), (5.0, 10.0))
    rate = Rate.parse(lab.pick("50k", "10k"))
    reports: dict[str, RunReport] = {}
    with lab.spark(LOCAL, ROCKSDB) as spark:
        for count in (counts.hash_count, counts.key_count):
            one = hash_counts(keys, count=count)
            for bins in (WORKERS, *lab.pick(MANY_BINS, MANY_BINS[::4])):
                routed = f"{bins:,} bins" if bins > WORKERS else "no routing"
                label = f"{one.name}, {routed}"
                wanted = WorkloadRun(one, rate, WORKERS, seconds, warm_up, bins=bins)
                reports[label] = lab.run(spark, label, wanted)
        make = partial(count_by_group, keys=keys)
        peer = Workload("spark", NUMBERED, make, mode="update")
        wanted = WorkloadRun(peer, rate, WORKERS, seconds, warm_up)
        reports["Spark's groupBy, RocksDB"] = lab.run(spark, "Spark's groupBy, RocksDB", wanted)
    median = {
        kind: [
            (report.about["bins"], report.histograms()["all"].percentile(50) / SECOND)
            for label, report in reports.items()
            if label.startswith(kind)
        ]
        for kind in ("hash-count", "key-count")
    }
    curve = plots.curves(median, "bins", "median latency, s", log="x")
    about = (
        f"{keys:,} keys, {rate.until(SECOND) - 1:,} events a second, two workers on local[2]; "
        '"no routing" is one bin a worker, by which records are routed all the same. All keys are '
        "known to Godwit from the start, and none to Spark."
    )
    return Findings(
        [
            Section("Median latency by bins", about, curve),
            *overview(reports),
        ],
        reports,
    )
