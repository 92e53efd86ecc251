"""When an idle stream is asked for an epoch: while something waits that one would bring further."""

import threading
from unittest.mock import Mock, create_autospec

import pytest

from godwit.driver.demand import Demand
from godwit.driver.placements import Placements
from godwit.model.ids import ExecutorId
from godwit.spark.executors import Executors
from godwit.spark.pinning import Pinning
from godwit.spark.ticks import Ticker


class Idle:
    """A query whose epoch has just ended; `looked` is set by the third look for executors."""

    def __init__(self) -> None:
        self.ticked, self.looked, self.looks = threading.Event(), threading.Event(), 0
        self.demand = create_autospec(
            Demand, instance=True, wants_epoch=False, can_settle=False, awaits_silence=False
        )
        self.demand.tick.side_effect = self.ticked.set
        self.placements = create_autospec(Placements, instance=True, placement=None)
        self.pinning = create_autospec(Pinning, instance=True, is_possible=True)
        self.pinning.have_changed.side_effect = self._look
        self.changed = False
        self.ticker = Ticker(self.demand, self.placements, self.pinning, 0.0, idle_seconds=0.001)

    def _look(self, placement: object) -> bool:
        self.looks += 1
        if self.looks == 3:
            self.looked.set()
        return self.changed


@pytest.fixture
def idle() -> Idle:
    return Idle()


def test_nothing_waits_so_no_epoch_is_asked_for(idle: Idle) -> None:
    idle.ticker.go_on(records=5)
    assert idle.looked.wait(60)
    idle.ticker.hold()
    assert not idle.ticked.is_set()


def test_what_somebody_asked_for_does_not_wait(idle: Idle) -> None:
    idle.demand.wants_epoch = True
    idle.ticker.go_on(records=0)
    assert idle.ticked.is_set()


@pytest.mark.parametrize("case", ["executors", "handover"])
def test_one_epoch_is_asked_for_when_something_has_changed(idle: Idle, case: str) -> None:
    if case == "executors":
        idle.changed = True
    else:
        idle.demand.can_settle = True
    idle.ticker.go_on(records=0)
    assert idle.ticked.wait(60)
    idle.demand.tick.assert_called_once()


def test_where_rows_wait_for_a_source_to_be_idle_it_goes_on_looking(idle: Idle) -> None:
    idle.pinning.is_possible = False
    idle.demand.awaits_silence = True
    idle.ticker.go_on(records=5)
    assert idle.looked.wait(60)
    assert not idle.ticked.is_set()
    idle.demand.wants_epoch = True
    assert idle.ticked.wait(60)
    idle.demand.tick.assert_called_once()


@pytest.mark.parametrize(
    ("living", "placed", "changed"),
    [
        ("01", "01", False),
        ("0", "01", True),  # one was lost
        ("01", "0", True),  # one was welcomed
        ("013", "01", False),  # one that cannot be welcomed
        ("012", "01", True),  # one is to be welcomed
        ("", "", False),
    ],
)
def test_executors_have_changed(
    living: str, placed: str, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("godwit.spark.executors.live", lambda context: frozenset(living))
    executors = Executors(Mock())
    executors._hosts = dict.fromkeys(map(ExecutorId, "01"), "here")
    executors._tried = frozenset({ExecutorId("3")})
    assert executors.have_changed([*map(ExecutorId, placed)]) is changed
