"""Two executors: workers stay on theirs, bins cross between them, and one of them is killed."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from godwit.log.history import History
from tests.support.cluster import application
from tests.support.cluster.application import TARGET
from tests.support.cluster.running import check, fetched, places, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, java: str) -> Path:
    """A checkpoint that the application has left when it was done."""
    home = tmp_path_factory.mktemp("cluster")
    run("tests.support.cluster.application", home, java)
    return home


def workers(home: Path, epoch: int) -> int:
    intent = History(home / "checkpoint").intent(epoch)
    assert intent is not None
    return intent.routings["counts"].workers


def test_nothing_is_lost_and_nothing_counted_twice(home: Path) -> None:
    check(home)


def test_workers_stay_on_their_executors_while_others_come(home: Path) -> None:
    first = places(home, 0)
    assert len(set(first.values())) == 2
    killed = int((home / "killed").read_text())
    for epoch in range(killed + 1):
        assert places(home, epoch).items() >= first.items()
    assert workers(home, killed) == 4
    assert Counter(places(home, killed).values()) == dict.fromkeys(first.values(), 2)


def test_bins_that_cross_are_fetched(home: Path) -> None:
    history = History(home / "checkpoint")
    moved = next(e for e in history.epochs() if workers(home, e) == 4)
    before = history.intent(moved - 1)
    assert before is not None
    assert before.routings["counts"] != TARGET
    assert fetched(home, moved) > 0


def test_the_lost_executor_is_replaced(home: Path) -> None:
    killed, last = int((home / "killed").read_text()), History(home / "checkpoint").epochs()[-1]
    before, after = set(places(home, killed).values()), set(places(home, last).values())
    assert len(after) == 2
    assert len(before & after) == 1


def test_it_goes_on_in_another_application(home: Path, spark: SparkSession) -> None:
    last = History(home / "checkpoint").epochs()[-1]
    query = application.start(spark, home)
    assert query.await_epoch(last + 2)
    query.stop()
    check(home)
    assert workers(home, last + 2) == 2
