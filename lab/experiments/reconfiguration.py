"""Figures 4 and 6 of Rhino: latency over time, while a query with replicas is reconfigured.

Its three queries lose an executor, get more workers, or have their load balanced. Bins move all at
once, as the paper's virtual nodes do. Under a varying rate, an executor hands its workers over.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from lab.experiments.laboratory import Lab
from lab.experiments.moves import WORKERS, moves
from lab.tools.page import Findings
from lab.workloads.catalog import NEXMARK, Workload, workload
from lab.workloads.nexmark import queries
from lab.workloads.overview import overview
from lab.workloads.plan import Departure, ScheduledMove, WorkloadRun
from lab.workloads.rate import SECOND, Rate

NBQ8: Final = Workload("nbq8", NEXMARK, partial(queries.q8, length="12 h"))
QUERIES: Final = (workload("nbq5"), NBQ8, workload("nbqx"))
CLUSTER: Final = "local-cluster[3,2,1024]"
CONF: Final = {"spark.deploy.maxExecutorRetries": "-1"}  # as many as are killed
BINS: Final = 256


def failure(lab: Lab) -> Findings:
    """How does the loss of an executor disturb Rhino's queries?"""
    return _reconfigured(lab, WORKERS, "An executor is killed.", lambda at: (Departure(at),))


def scaling(lab: Lab) -> Findings:
    """How does it disturb Rhino's queries to get twice as many workers?"""
    return _reconfigured(
        lab,
        2,
        "From 2 to 4 workers, all at once.",
        lambda at: (ScheduledMove(at, 4, "all-at-once"),),
    )


def balance(lab: Lab) -> Findings:
    """How does it disturb Rhino's queries when half of the workers give half of their bins away?"""
    return _reconfigured(
        lab,
        WORKERS,
        "Workers 0 and 1 give half of their bins to 3 and 2, all at once.",
        lambda at: moves(["all-at-once"], BINS, at, 0),
    )


def varying(lab: Lab) -> Findings:
    """How does a query bear a handover under a varying rate?"""
    step, highest = lab.pick((3, 8), (1, 4))
    up = [*range(1, highest), *range(highest, 1, -1)]
    rate = Rate.parse(", ".join(f"{thousands}k for {step} s" for thousands in up))
    cycle = len(up) * step
    warm_up, at, seconds = float(step), 1.25 * cycle, 2.0 * cycle
    leaving = (Departure(at, "drained"),)
    with lab.spark(CLUSTER, CONF) as spark:
        wanted = WorkloadRun(NBQ8, rate, WORKERS, seconds, warm_up, leaving, BINS, replicas=1)
        report = lab.run(spark, "nbq8", wanted)
    about = (
        f"NBQ8 on 3 executors with replicas; the rate goes from 1,000 to {highest},000 events a "
        f"second and back, in steps of {step} s. An executor is drained: its workers are handed "
        "over to the others."
    )
    return Findings(overview({"nbq8": report}, about), {"nbq8": report})


def _reconfigured(
    lab: Lab,
    workers: int,
    what: str,
    happens: Callable[[float], tuple[ScheduledMove | Departure, ...]],
) -> Findings:
    warm_up, at, seconds = lab.pick((8.0, 16.0, 32.0), (4.0, 7.0, 14.0))
    rate = Rate.parse(lab.pick("8k", "2k"))
    reports = {}
    with lab.spark(CLUSTER, CONF) as spark:
        for one in lab.pick(QUERIES, QUERIES[1:2]):
            wanted = WorkloadRun(
                one, rate, workers, seconds, warm_up, happens(at), BINS, replicas=1
            )
            reports[one.name] = lab.run(spark, one.name, wanted)
    about = (
        f"{rate.until(SECOND) - 1:,} events a second, {workers} workers on 3 executors, with a "
        f"replica each. {what}"
    )
    return Findings(overview(reports, about), reports)
