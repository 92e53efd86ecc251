"""The driver is composed of parts with one subject each, and no handle of a user shows it."""

import dataclasses
import threading
from pathlib import Path

import pytest

from godwit import faults
from godwit.api import handles
from godwit.api.query import Query
from godwit.driver.demand import Demand
from godwit.driver.driver import Driver
from godwit.driver.garbage import Garbage
from godwit.driver.monitor import Monitor
from godwit.driver.placements import Placements
from godwit.driver.published import Published
from godwit.driver.recent import RecentEpochs
from godwit.driver.requests import Requests
from godwit.driver.timelines import Timelines
from godwit.migration.strategies import all_at_once, fluid
from godwit.model.ids import ExecutorId
from godwit.model.routing import Routing, Update
from tests.support.simulated import begin, drive

PARTS = (
    Demand,
    Driver,
    Garbage,
    Monitor,
    Placements,
    Published,
    RecentEpochs,
    Requests,
    Timelines,
)
MOST = 13  # members that a part may offer


def offered(thing: object) -> set[str]:
    return {member for member in dir(thing) if not member.startswith("_")}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_a_part_is_small_and_says_what_holds_of_it(part: type) -> None:
    assert len(offered(part)) <= MOST
    assert part.__bases__ == (object,)
    assert part.__doc__
    assert len(part.__doc__.splitlines()) > 1


def test_a_driver_offers_the_life_of_an_epoch_and_its_parts(tmp_path: Path) -> None:
    driver = drive(tmp_path)
    assert offered(Driver) == {
        *("begin", "begin_batch", "place", "work", "commit", "report"),
        *("addition", "add"),  # of operators that are new at a restart
        *("check", "routing"),
    }
    parts = {"demand", "journal", "monitor", "placements", "published", "requests", "timelines"}
    assert offered(driver) - offered(Driver) == parts | {
        "cache",
        "checkpoint",
        "files",
        "graph",
        "operators",
    }


@pytest.mark.parametrize("name", ["Migration", "Handover", "Draining", "Scheduled", "Query"])
def test_a_handle_shows_nothing_of_the_driver(name: str) -> None:
    handle = Query if name == "Query" else getattr(handles, name)
    assert "driver" not in offered(handle)
    if dataclasses.is_dataclass(handle):
        assert "driver" not in {field.name for field in dataclasses.fields(handle)}


def test_handles_print_what_was_asked_for_alone(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    request = driver.requests.schedule("counts", [Update(1, 0, 1)])
    texts = [
        repr(handles.Scheduled(driver, request)),
        repr(handles.Draining(driver, ExecutorId("1"))),
    ]
    request_of = drive(tmp_path / "other", workers=2, bins=4).requests.migrate
    migration = request_of("counts", Routing.even(4, 3), strategy=fluid())
    texts.append(repr(handles.Migration(driver, (migration,))))
    texts.append(repr(handles.Handover(driver, 7)))
    assert not [text for text in texts if "Driver" in text or "driver" in text]


def test_who_asks_while_an_epoch_is_decided_sees_all_parts_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intent is about to be written: until it is, nobody is told of what it decides."""
    driver = drive(tmp_path, workers=2, bins=4)
    target = Routing.even(4, 3)
    driver.requests.migrate("counts", target, strategy=all_at_once())
    asking, told = threading.Event(), []

    def ask() -> None:
        asking.set()
        timeline = driver.timelines["counts"]
        told.append((timeline.routing, timeline.begun, driver.demand.wants_epoch))

    asker = threading.Thread(target=ask, daemon=True)

    def reach(point: str, side: faults.Side, epoch: int) -> None:
        if (point, side) == ("intent", "before"):
            asker.start()
            assert asking.wait(60)

    monkeypatch.setattr(faults, "handler", reach)
    begin(driver, 0)
    asker.join(60)
    assert told == [(target, 0, False)]
