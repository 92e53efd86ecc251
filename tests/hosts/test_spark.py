"""Spark's own cluster on hosts."""

import sys
from collections.abc import Iterator

import pytest

from lab.hosts.cluster import Cluster

JOB = [sys.executable, "-m", "tests.support.hosts.spark_job"]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(_namespaces: None) -> Iterator[Cluster]:
    with Cluster(2, store=False, others=["elsewhere"]) as cluster:
        yield cluster


@pytest.mark.parametrize("driver", ["driver", "elsewhere"])
def test_a_job_runs_on_the_executors_of_two_hosts(cluster: Cluster, driver: str) -> None:
    before = {name: cluster.hosts[name].traffic for name in cluster.workers}
    assert cluster.hosts[driver].run(JOB).split() == ["worker-1", "worker-2"]
    for name, traffic in before.items():
        assert cluster.hosts[name].traffic.sent > traffic.sent
