"""What every test may use: one Spark session, and how long hypothesis may search."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from pyspark.sql import SparkSession

from tests.support.kills.application import QUICK_JAVA, QUICK_SQL
from tests.support.searches import FULL
from tests.support.shares import shared_out

# `fast` is the default, and the same in each run; GODWIT_HYPOTHESIS=brief (`make check`) is a third
# of it, and GODWIT_HYPOTHESIS=thorough (`make soak`) searches longer, and elsewhere each time. A
# shared machine stalls, so no example has a deadline of its own; pytest's timeout ends a test that
# hangs.
settings.register_profile("brief", max_examples=8, derandomize=True, deadline=None)
settings.register_profile("fast", max_examples=FULL, derandomize=True, deadline=None)
settings.register_profile(
    "thorough",
    max_examples=5_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("GODWIT_HYPOTHESIS", "fast"))
if settings().derandomize:
    # Hypothesis tries constants that it reads in the modules which are loaded, and what is loaded
    # depends on the tests that a process has run before.
    setattr(providers, "_get_local_constants", Constants)  # noqa: B010

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


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark tests by their directory, and searches, which go on at night; then share out to
    processes those that were asked for."""
    for item in items:
        for directory, markers in TIERS.items():
            if item.nodeid.startswith(directory):
                for marker in markers:
                    item.add_marker(marker)
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("soak")
    yield
    by_kind: dict[str, list[pytest.Item]] = {"starting": [], "asking": [], "others": []}
    for item in items:
        by_kind[_kind(item)].append(item)
    items[:] = shared_out(**by_kind)


def _kind(item: pytest.Item) -> str:
    """Of tests that need Spark, those of a cluster share what their module has started."""
    if item.get_closest_marker("spark") is None:
        return "others"
    if item.get_closest_marker("cluster") is not None:
        return "starting"
    asks = isinstance(item, pytest.DoctestItem) or "spark" in getattr(item, "fixturenames", ())
    return "asking" if asks else "starting"


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
