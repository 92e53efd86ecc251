"""What every test may use: one Spark session, and how long hypothesis may search."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from tests.support.kills.application import QUICK_JAVA, QUICK_SQL

# `fast` is the default; GODWIT_HYPOTHESIS=thorough searches longer. A shared machine stalls, so no
# example has a deadline of its own; pytest's timeout ends a test that hangs.
settings.register_profile("fast", max_examples=60, deadline=None)
settings.register_profile(
    "thorough",
    max_examples=5_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("GODWIT_HYPOTHESIS", "fast"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with several executors take longest, so they go first: with `--dist worksteal`, in one
    process, while the other has all the rest."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/spark/cluster/"))


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
