"""What every test may use: one Spark session, and how long hypothesis may search."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from pyspark.sql import SparkSession

from tests.support.kills.application import QUICK_JAVA, QUICK_SQL

# `fast` is the default, and the same in each run; GODWIT_HYPOTHESIS=thorough (`make soak`) searches
# longer, and elsewhere each time. A shared machine stalls, so no example has a deadline of its own;
# pytest's timeout ends a test that hangs.
settings.register_profile("fast", max_examples=24, derandomize=True, deadline=None)
settings.register_profile(
    "thorough",
    max_examples=5_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("GODWIT_HYPOTHESIS", "fast"))

# A shell lets what it runs in the background ignore interrupts. Programs that tests start would
# inherit that, and those that a test interrupts would run for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The markers of all tests of these directories.
TIERS = {
    "tests/spark/cluster/": ("cluster", "spark"),
    "tests/spark/kills/": ("kill", "spark"),
    "tests/hosts/": ("hosts",),
}
# With `--dist worksteal` these go first, in one process, while the other has all the rest: they
# take longest, so that both end at about the same time.
LONGEST = ("cluster", "kill", "spark")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their directory, and searches, which go on at night; let the longest begin."""
    for item in items:
        for directory, markers in TIERS.items():
            if item.nodeid.startswith(directory):
                for marker in markers:
                    item.add_marker(marker)
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("soak")
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    ranks = (LONGEST.index(tier) for tier in LONGEST if item.get_closest_marker(tier))
    return next(ranks, len(LONGEST))


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """A local Spark with two cores that tries a failed task three times more, as a cluster does.

    Its Python workers can import `tests`, wherever pytest was started: functions of a test module
    are pickled by reference.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2,4]")
        .appName("godwit-tests")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", QUICK_JAVA)
        .config("spark.executorEnv.PYTHONPATH", str(pytestconfig.rootpath))
        .config("spark.python.daemon.module", "godwit.spark.daemon")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.log.level", "ERROR")
        .config(map=QUICK_SQL)
        .getOrCreate()
    )
    yield session
    session.stop()
