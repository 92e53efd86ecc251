"""Does the number of bins cost anything? Throughput from 2^4 to 2^20 bins, and one long run.

The throughput is that of one state, which is started again and again with another number of bins.
The long run has 2^20 bins of which neighbours belong to different workers, and small epochs; every
so many epochs it notes the memory of the driver's Python process, the JVM's heap after a collection
of garbage, and the time that an epoch spends outside of Spark's jobs.
"""

import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import godwit as gw
from godwit.cli.output import note
from lab.bench.application import WORKERS, Bench
from lab.bench.breakdown import outside_jobs
from lab.bench.contenders import OPERATOR, godwit_count
from lab.bench.results import BenchResults, ratios, show, summary
from lab.tools.filling import settled
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter, reported, take_turns

BITS = (4, 8, 12, 16, 20)
EPOCHS = 10
LONG_EPOCHS = 2_000
SAMPLE_EPOCHS = 100
SMALL_ROWS = 1_000


def run(bench: Bench) -> None:
    epochs = bench.epochs or bench.pick(LONG_EPOCHS, 100)
    report = BenchResults("bins", bench, {"epochs": EPOCHS, "long_run_epochs": epochs})
    _throughput(bench, report)
    _long_run(bench, report, epochs, max(1, min(SAMPLE_EPOCHS, epochs // 5)))


def _throughput(bench: Bench, report: BenchResults) -> None:
    keys = bench.pick(1_000_000, 100_000)
    rows = bench.pick(500_000, 50_000)
    checkpoint = bench.directory / "bins"
    contenders = [
        godwit_count(
            bench, checkpoint, settled(keys), rows, name=f"2^{bits}", bins=1 << bits, preload=keys
        )
        for bits in BITS
    ]
    contenders[0].turn(EPOCHS)  # a JVM that is cold is slower than any number of bins
    turns = take_turns(contenders, bench.repetitions, EPOCHS)
    base = turns[contenders[0].name]
    lines = []
    for name, mine in turns.items():
        found, ratio = summary(mine), ratios(mine, base)
        report.add({"bins": name, "rows": rows, "keys": keys}, **found, ratio=ratio)
        rate = show(found["records_per_second"], "{:,.0f}")
        lines.append([name, rate, found["epoch_seconds"]["median"], show(ratio)])
    show_table(["bins", "records/s", "epoch s", f"of {contenders[0].name}"], lines)


@dataclass(frozen=True, slots=True)
class Sample:
    """The driver after so many epochs; times are medians since the last sample."""

    epochs: int
    epoch_seconds: float
    driver_seconds: float
    python_mib: float
    heap_mib: float


def _long_run(bench: Bench, report: BenchResults, epochs: int, every: int) -> None:
    bits = BITS[-1]
    sink = EpochCounter()
    query = (
        gw.stream(bench.source(SMALL_ROWS, settled(bench.pick(1_000_000, 100_000))))
        .aggregate(OPERATOR, key="k", n=gw.count())
        .to(gw.foreach_batch(sink))
        .start(bench.directory / "long", workers=WORKERS, options=gw.Options(bins=1 << bits))
    )
    try:
        first = sink.wait(query.spark_query, 1)
        query.migrate(_scattered(1 << bits))
        samples = []
        for count in range(every, epochs + 1, every):
            sink.wait(query.spark_query, count)
            last = first + count - 1
            recent = [e for e in reported(query.spark_query, last) if e.number > last - every]
            samples.append(
                Sample(
                    epochs=count,
                    epoch_seconds=statistics.median(epoch.seconds for epoch in recent),
                    driver_seconds=statistics.median(outside_jobs(bench.spark, recent)),
                    python_mib=_resident_mib(),
                    heap_mib=_heap_mib(bench),
                )
            )
            note(f"    {samples[-1]}")
    finally:
        query.stop()
    report.add({"long_run": epochs, "bins": f"2^{bits}"}, samples=[asdict(s) for s in samples])
    show_table(
        ["epochs", "epoch s", "driver s", "Python MiB", "heap MiB"],
        [list(asdict(sample).values()) for sample in samples],
    )


def _scattered(bins: int) -> gw.Routing:
    """Owners drawn by lot: about half of all neighbours have different ones."""
    owners = np.random.default_rng(20).integers(0, WORKERS, bins, np.int32)
    return gw.Routing(owners, WORKERS)


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 2**20, 1)


def _heap_mib(bench: Bench) -> float:
    jvm: Any = bench.spark._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    used: int = runtime.totalMemory() - runtime.freeMemory()
    return round(used / 2**20, 1)
