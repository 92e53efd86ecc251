"""The numbers that a start names: a request like others, so what follows it holds after a death."""

from pathlib import Path
from typing import Any

import pytest

from godwit.driver.driver import Driver
from godwit.errors import ConfigError
from godwit.log import History
from godwit.migration.strategies import fluid
from godwit.model.requests import StartRequest, request_from_json
from godwit.model.routing import Routing, Update
from tests.support.damage import intent
from tests.support.simulated import begin, content, drive, publish

Numbers = dict[str, Any]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query with 2 workers and 8 bins, after an epoch."""
    publish(drive(tmp_path, workers=2, bins=8), 0)
    return tmp_path


def asked(checkpoint: Path) -> list[StartRequest]:
    found = History.inspect(checkpoint).requests.requests()
    return [request for request in found if isinstance(request, StartRequest)]


@pytest.mark.parametrize("numbers", [{"bins": 16}, {"workers": 4}, {"workers": 1, "bins": 4}])
def test_what_a_start_accepted_holds_at_the_same_start_again(
    checkpoint: Path, numbers: Numbers
) -> None:
    """Also if it dies again and again before an epoch begins."""
    driver = drive(checkpoint, **numbers)
    target = driver.routing("counts").spread(3)
    migration = driver.requests.migrate("counts", target, strategy=fluid())
    for _ in range(2):
        again = drive(checkpoint, **numbers)
        assert again.timelines["counts"] == driver.timelines["counts"]
    assert len(asked(checkpoint)) == 1
    assert begin(again, 1).refused == {}
    epoch = 1
    while again.requests.outcome(migration.id) is None:
        publish(again, epoch)
        epoch += 1
    assert (again.requests.outcome(migration.id), again.routing("counts")) == ("done", target)


def test_a_split_during_a_replay_holds_at_the_same_start_again(checkpoint: Path) -> None:
    begin(drive(checkpoint), 1)
    driver = drive(checkpoint, bins=16)
    assert begin(driver, 1).routings["counts"].bins == 8, "it is decided"
    driver.requests.split("counts", 32)
    driver = drive(checkpoint, bins=16)
    publish(driver, 1)
    assert driver.routing("counts") == Routing.even(32, 2)
    assert begin(driver, 2).routings["counts"] == Routing.even(32, 2)


def test_numbers_that_the_program_named_before_ask_for_nothing(checkpoint: Path) -> None:
    before = content(checkpoint / "godwit" / "control")
    for same in ({}, {"workers": 2}, {"bins": 8}, {"workers": 2, "bins": 8}):
        drive(checkpoint, **same)
    assert content(checkpoint / "godwit" / "control") == before
    drive(checkpoint, workers=3, bins=8)
    drive(checkpoint, workers=3)
    drive(checkpoint, bins=16)
    assert asked(checkpoint) == [StartRequest(1, 3, None), StartRequest(2, None, 16)]


def test_a_number_counts_until_another_one_is_named(checkpoint: Path) -> None:
    """Whether an epoch has begun in between or not."""

    def numbers(driver: Driver) -> tuple[int, int]:
        routing = driver.routing("counts")
        return routing.workers, routing.bins

    assert numbers(drive(checkpoint, workers=3)) == (3, 8)
    assert numbers(drive(checkpoint, workers=2)) == (2, 8)
    driver = drive(checkpoint, workers=2, bins=16)
    publish(driver, 1)
    assert (intent(checkpoint, 1).asked_workers, intent(checkpoint, 1).asked_bins) == (2, 16)
    driver.requests.split("counts", 64)
    driver.requests.migrate("counts", Routing.even(64, 4))
    publish(driver, 2)
    assert numbers(drive(checkpoint, workers=2, bins=16)) == (4, 64)
    assert numbers(drive(checkpoint, workers=3, bins=16)) == (3, 64)


def test_it_is_judged_in_its_turn(checkpoint: Path) -> None:
    """What was asked before it is overruled, what was asked after it is not."""
    before = drive(checkpoint)
    before.requests.schedule("counts", [Update(3, 0, 1)])
    after = drive(checkpoint, workers=3)
    accepted = after.requests.schedule("counts", [Update(3, 1, 2)])
    for driver in (after, drive(checkpoint, workers=3)):
        assert driver.timelines["counts"].scheduled == (accepted,)
    publish(driver, 1)
    assert drive(checkpoint, workers=3).timelines["counts"].scheduled == (accepted,)


def test_numbers_that_cannot_be_are_refused_before_anything_is_written(checkpoint: Path) -> None:
    before = content(checkpoint)
    for wrong in ({"workers": 0}, {"bins": 12}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))} must be"):
            drive(checkpoint, **wrong)
    assert content(checkpoint) == before


def test_before_the_first_epoch_a_start_says_it_all(tmp_path: Path) -> None:
    drive(tmp_path, workers=2, bins=8)
    driver = drive(tmp_path, workers=3, bins=16)
    assert driver.routing("counts") == Routing.even(16, 3)
    assert asked(tmp_path) == []
    publish(driver, 0)
    drive(tmp_path, workers=3, bins=16)
    assert asked(tmp_path) == []


def test_it_comes_back_from_json() -> None:
    for request in (StartRequest(7, 3, None), StartRequest(8, None, 64)):
        assert request_from_json(request.to_json()) == request
