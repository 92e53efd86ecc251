"""What is checked before a query starts: Spark's settings that placement and replicas depend on."""

import logging
from collections.abc import Iterator
from typing import Final

from pyspark import SparkContext

from godwit.errors import ConfigError
from godwit.spark.executors import LOCALITY, can_stay, is_alone

WAIT: Final = "spark.locality.wait"
WAIT_PROCESS: Final = "spark.locality.wait.process"  # counts in its place, if it is set
LEAST_WAIT: Final = 10_000  # milliseconds; longer than a worker's task should take

log = logging.getLogger("godwit")


def check(context: SparkContext, replicas: int | None) -> int:
    """How many replicas are to be kept: as many as are asked for, else one where it is possible.

    Warns of settings with which workers do not stay on their executors. Raises ConfigError if that
    makes the replicas impossible that somebody asks for.
    """
    if replicas is not None and replicas < 0:
        raise ConfigError(f"replicas must be a number from 0, which is none, not {replicas}")
    if is_alone(context):
        return replicas or 0
    conf, pinned = context._jsc.sc().conf(), can_stay(context)
    if replicas and not pinned:
        raise ConfigError(
            f"replicas={replicas} needs workers that stay on their executors: start Spark with "
            f"--conf {LOCALITY}=false, or the query with replicas=0"
        )
    wait = conf.getTimeAsMs(WAIT_PROCESS, conf.get(WAIT, "3s"))
    for warning in warnings(pinned=pinned, wait=wait):
        log.warning("%s", warning)
    if not pinned:
        return 0
    return 1 if replicas is None else replicas


def warnings(*, pinned: bool, wait: int) -> Iterator[str]:
    """One for each setting that lets workers leave their executors; `wait` is in milliseconds.

    >>> list(warnings(pinned=True, wait=30_000))
    []
    >>> for warning in warnings(pinned=True, wait=3_000):
    ...     print(warning)
    spark.locality.wait is 3 s: a worker that has to wait longer for its executor, because that is \
still busy with another task, runs elsewhere and fetches its state there; start Spark with \
--conf spark.locality.wait=30s
    """
    if not pinned:
        yield (
            f"{LOCALITY} is true: Spark runs workers where most of their records are, so that they "
            "fetch state whenever they change executors, and there are no replicas, handovers and "
            f"drains; start Spark with --conf {LOCALITY}=false"
        )
    elif wait < LEAST_WAIT:
        yield (
            f"{WAIT} is {wait / 1000:g} s: a worker that has to wait longer for its executor, "
            "because that is still busy with another task, runs elsewhere and fetches its state "
            f"there; start Spark with --conf {WAIT}=30s"
        )
