"""Table 1 and Figure 1 of Rhino: how long it takes to recover from the loss of an executor.

With a replica of each worker, and without one, from the checkpoint (the paper's RhinoDFS). A limit
of 1 Gbit/s on what an executor reads from the checkpoint stands in for a network. Beside them
Spark's own operator over the same rows, whose reads are not limited.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from statistics import median_low
from typing import Final

from pyspark.sql import SparkSession

from lab.experiments.executor_loss import (
    PHASES,
    WORKERS,
    GodwitUnderLoss,
    Recovery,
    SparkUnderLoss,
)
from lab.experiments.laboratory import Lab
from lab.tools import plots
from lab.tools.page import Findings, Section
from lab.tools.session import scratch
from lab.tools.spark_query import use_store
from lab.tools.tables import ResultTable
from lab.workloads.profiles import FETCH_RATE, ROW_BYTES, ROWS

CLUSTER: Final = f"local-cluster[{WORKERS},2,1024]"
CONF: Final = {
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.sql.shuffle.partitions": str(WORKERS),  # of Spark's own query
}
HEARTBEATS: Final = {
    # A hung executor is found out within seconds; so may be one on a busy machine that is not.
    "spark.executor.heartbeatInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "6s",
    "spark.network.timeoutInterval": "1s",
}
REPLICAS: Final = "replicas"
CHECKPOINT: Final = "checkpoint"
OWN: Final = "Spark"
HUNG: Final = "replicas, hung"

Found = Mapping[tuple[float, str], Sequence[Recovery]]
"""The losses of an executor, by GB of state and way to recover."""


def recovery(lab: Lab) -> Findings:
    """How long does it take to recover from the loss of an executor, by size of the state?"""
    sizes = lab.pick((0.1, 0.25, 0.5, 1.0, 2.0), (0.1, 0.25))
    found: dict[tuple[float, str], list[Recovery]] = {}

    def note(size: float, losses: Iterator[tuple[str, Recovery]]) -> None:
        for way, one in losses:
            found.setdefault((size, way), []).append(one)
            told = ", ".join(f"{name} {taken:.2f}" for name, taken in one.phases.items())
            amounts = f"{one.fetched / 1e6:.0f} of {one.stored / 1e6:,.0f} MB fetched"
            lab.say(f"{size:g} GB, {way}: {one.whole:.2f} s ({told}), {amounts}")

    with lab.spark(CLUSTER, CONF | HEARTBEATS) as spark:
        note(sizes[0], _hung(spark, sizes[0]))
    with lab.spark(CLUSTER, CONF) as spark:
        for size in sizes:
            note(size, _killed(spark, size, times=lab.pick(3, 1)))
    return findings(found)


def _killed(spark: SparkSession, size: float, times: int) -> Iterator[tuple[str, Recovery]]:
    """With state of so many GB; the query goes on from the same checkpoint, with replicas."""
    with scratch() as directory:
        for way, replicas in ((CHECKPOINT, 0), (REPLICAS, 1)):
            query = GodwitUnderLoss.start(spark, directory / "godwit", _keys(size), replicas)
            try:
                for _ in range(times):
                    yield way, query.lose()
            finally:
                query.query.stop()
        use_store(spark, "rocksdb")
        own = SparkUnderLoss.start(spark, directory / "spark", _keys(size))
        try:
            for _ in range(times):
                yield OWN, own.lose()
        finally:
            own.query.stop()


def _hung(spark: SparkSession, size: float) -> Iterator[tuple[str, Recovery]]:
    """An executor is stopped, rather than killed."""
    with scratch() as directory:
        query = GodwitUnderLoss.start(spark, directory / "godwit", _keys(size), replicas=1)
        try:
            yield HUNG, query.lose(signal.SIGSTOP)
        finally:
            query.query.stop()


def _keys(size: float) -> int:
    return int(size * 1e9) // ROW_BYTES


def findings(found: Found) -> Findings:
    """The losses of median length, as bars and lines and a table."""
    shown = {case: _median(losses) for case, losses in found.items()}
    bars = {f"{size:g} GB, {way}": one.phases for (size, way), one in shown.items()}
    fetching = {
        way: [(size, one.fetching or 0.0) for (size, each), one in shown.items() if each == way]
        for way in (REPLICAS, CHECKPOINT)
    }
    about = (
        f"{WORKERS} executors with a worker each and {ROWS:,} records an epoch, rows of "
        f"{ROW_BYTES} bytes; the executor that came last is killed in the middle of an epoch. An "
        f"executor reads {FETCH_RATE / 1e6:.0f} MB/s from the checkpoint, in place of a network; "
        f"Spark's own reads are not limited. Of {max(map(len, found.values()))} losses, the one of "
        "median length. Spark is told only as a whole."
    )
    header = [
        "GB",
        "recovers from",
        "losses",
        *PHASES,
        "whole s",
        "from",
        "to",
        "MB fetched",
        "MB stored",
    ]
    return Findings(
        [
            Section("From the loss to the first output after it", about, plots.stacked(bars)),
            Section("Fetching", figure=plots.curves(fetching, "state, GB", "fetching, s", log="")),
            Section(
                "Seconds",
                table=ResultTable(header, [_row(*one, shown[one], found[one]) for one in found]),
            ),
        ],
        numbers={
            "losses": [
                {
                    "gb": size,
                    "way": way,
                    "whole": one.whole,
                    "fetched": one.fetched,
                    "stored": one.stored,
                    **one.phases,
                    "slowest": one.slowest,
                }
                for (size, way), losses in found.items()
                for one in losses
            ]
        },
    )


def _row(size: float, way: str, shown: Recovery, losses: Sequence[Recovery]) -> list[str]:
    phases = [shown.phases.get(name) for name in PHASES]
    wholes = [one.whole for one in losses]
    return [
        f"{size:g}",
        way,
        f"{len(losses)}",
        *("-" if taken is None else f"{taken:.2f}" for taken in phases),
        *(f"{taken:.2f}" for taken in (shown.whole, min(wholes), max(wholes))),
        f"{shown.fetched / 1e6:.1f}",
        f"{shown.stored / 1e6:.0f}",
    ]


def _median(losses: Sequence[Recovery]) -> Recovery:
    middle = median_low([one.whole for one in losses])
    return next(one for one in losses if one.whole == middle)
