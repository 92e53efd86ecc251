"""A query whose hosts are lost, cut off from each other and booted again.

Its checkpoint lies in a directory that all hosts share.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hosts import clock
from lab.hosts.cluster import Cluster
from tests.support.hosts.story import Story, healed

HOUR = 3600

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where checkpoints and inputs of all stories are."""
    return tmp_path_factory.mktemp("shared"), tmp_path_factory.mktemp("inputs")


@pytest.fixture(scope="module")
def cluster(homes: tuple[Path, Path], _namespaces: None) -> Iterator[Cluster]:
    """The clocks of hosts differ by an hour, if there can be such."""
    shared, inputs = homes
    skews = {"worker-2": HOUR, "elsewhere": -HOUR} if clock.unavailable() is None else {}
    with Cluster(
        2,
        [inputs],
        shared=[shared],
        store=False,
        others=["elsewhere"],
        cores=2,
        memory="2g",
        lost_after=15,
        skews=skews,
    ) as cluster:
        yield cluster


@pytest.fixture
def story(
    cluster: Cluster, homes: tuple[Path, Path], request: pytest.FixtureRequest
) -> Iterator[Story]:
    shared, inputs = homes
    with healed(cluster):
        yield Story(cluster, str(shared / request.node.name), inputs / request.node.name)


def test_a_query_outlives_the_host_of_an_executor(story: Story, cluster: Cluster) -> None:
    driver = story.drive("driver")
    story.feed(6)
    driver.begin("all")
    driver.epochs(2)
    cluster.hosts["worker-1"].kill()
    driver.answer()
    assert driver.losses
    cluster.boot("worker-1")
    story.feed(2)
    assert driver.do(["migrate", 4]) == "done"
    story.check(driver)


def test_a_query_outlives_a_partition_of_an_executor_from_the_driver(
    story: Story, cluster: Cluster
) -> None:
    driver = story.drive("driver")
    story.feed(6)
    driver.begin("all")
    driver.epochs(2)
    cluster.hosts.cut("driver", "worker-1")
    driver.answer()
    assert driver.losses
    cluster.hosts.mend("driver", "worker-1")
    story.feed(2)
    story.check(driver)


def test_a_query_goes_on_on_another_host(story: Story, cluster: Cluster) -> None:
    driver = story.drive("driver")
    story.feed(6)
    driver.begin("all")
    driver.epochs(2)
    cluster.hosts["driver"].kill()
    story.check(story.drive("elsewhere"))
