"""Three executors that are handed workers, killed, stopped and drained while the query goes on."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from godwit.log.history import History
from godwit.model.placement import Placement
from godwit.protocol.placing import LAG
from tests.spark.cluster.failing import is_open
from tests.spark.cluster.running import check, fetched, once, places, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, java: str) -> Path:
    def fill(home: Path) -> None:
        run("tests.spark.cluster.failing", home, java, -signal.SIGKILL)
        run("tests.spark.cluster.failing", home, java)

    return once(tmp_path_factory, "failing", fill)


class Event:
    """Something that happened between two epochs: the first one that saw it, and where workers were
    before."""

    def __init__(self, home: Path, name: str) -> None:
        events: list[dict[str, Any]] = json.loads((home / "events.json").read_text())
        event = next(event for event in events if event["name"] == name)
        self.home = home
        self.epochs = range(event["before"] + 1, event["after"] + 1)
        self.before = Placement.from_json(event["placement"])

    def first_without(self, executor: str) -> int:
        return next(e for e in self.epochs if executor not in places(self.home, e).values())


def written(home: Path, epochs: range) -> int:
    """The bytes that workers wrote to their state: deltas and merged files."""
    manifests = [manifest for e in epochs if (manifest := History(home / "checkpoint").manifest(e))]
    receipts = [receipt for manifest in manifests for receipt in manifest.receipts["counts"]]
    return sum(receipt["bytes"] + receipt["merged_bytes"] for receipt in receipts)


def test_whatever_is_killed_nothing_is_lost_and_nothing_counted_twice(home: Path) -> None:
    check(home)


def test_in_the_steady_state_nothing_is_fetched(home: Path) -> None:
    event = Event(home, "nothing")
    assert [fetched(home, epoch) for epoch in event.epochs] == [0] * len(event.epochs)
    assert all(
        tuple(places(home, epoch)[worker] for worker in range(3)) == event.before.homes
        for epoch in event.epochs
    )


def test_a_handover_fetches_what_the_replica_lacks(home: Path) -> None:
    event = Event(home, "handover")
    target = event.before.replicas[0][0]
    there = next(e for e in event.epochs if places(home, e)[0] == target)
    back = next(e for e in event.epochs if e > there and places(home, e)[0] != target)
    for epoch in (there, back):
        assert fetched(home, epoch) <= written(home, range(epoch - LAG - 1, epoch))
    others = [fetched(home, epoch) for epoch in event.epochs if epoch not in (there, back)]
    assert not any(others)


@pytest.mark.parametrize(
    ("name", "worker"), [("a worker's executor", 0), ("twice in a row", 2), ("hung", 0)]
)
def test_a_worker_that_loses_its_executor_flees_to_its_replica(
    home: Path, name: str, worker: int
) -> None:
    event = Event(home, name)
    epoch = event.first_without(event.before.homes[worker])
    assert places(home, epoch)[worker] == event.before.replicas[worker][0]
    assert fetched(home, epoch) <= written(home, range(epoch - LAG - 2, epoch))


def test_without_any_executor_the_checkpoint_serves(home: Path) -> None:
    event = Event(home, "all executors")
    epoch = event.first_without(event.before.homes[1])
    assert not set(places(home, epoch).values()) & set(event.before.executors)
    assert fetched(home, epoch) > 0


def test_without_any_copy_a_worker_goes_to_who_is_left_and_the_checkpoint_serves(
    home: Path,
) -> None:
    event = Event(home, "all copies of a worker")
    lost = {event.before.homes[0], event.before.replicas[0][0]}
    (left,) = set(event.before.executors) - lost
    epoch = event.first_without(event.before.homes[0])
    assert places(home, epoch)[0] == left
    assert fetched(home, epoch) > 0


def test_executors_that_are_killed_at_random_are_replaced(home: Path) -> None:
    event = Event(home, "at random")
    assert len({one for e in event.epochs for one in places(home, e).values()}) > 3


def test_a_handover_that_was_open_when_its_driver_was_killed_is_gone(home: Path) -> None:
    history = History(home / "checkpoint")
    intents = [intent for e in history.epochs() if (intent := history.intent(e)) is not None]
    first = next(i for i, one in enumerate(intents) if one.generation == intents[-1].generation)
    assert is_open(intents[first - 1])
    placement = intents[first].placement
    assert placement is not None
    assert placement["handovers"] == []


def test_handovers_are_over_when_an_executor_of_theirs_is_killed(home: Path) -> None:
    event = Event(home, "target of a handover")
    intent = History(home / "checkpoint").intent(event.epochs[-1])
    assert intent is not None
    assert intent.placement is not None
    asked = [one["stage"] for one in intent.placement["handovers"] if not one["automatic"]]
    assert len(asked) == 4
    assert set(asked) <= {"done", "failed"}


def test_a_drained_executor_has_neither_workers_nor_replicas(home: Path) -> None:
    event = Event(home, "drained")
    drained = event.before.homes[1]
    epoch = event.first_without(drained)
    assert fetched(home, epoch) <= written(home, range(epoch - LAG - 2, epoch))
    for later in range(epoch, event.epochs[-1] + 1):
        intent = History(home / "checkpoint").intent(later)
        assert drained not in places(home, later).values()
        assert intent is not None
        assert intent.placement is not None
        assert all(drained not in copies for copies in intent.placement["replicas"])
