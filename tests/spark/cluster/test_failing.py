"""Three executors that are handed workers, killed, stopped and drained while the query goes on."""

import json
import os
import random
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from godwit.log.history import History
from godwit.model.ids import WorkerId
from godwit.placement.placement_state import LAG
from godwit.placement.slots import Placement
from godwit.worker.replicas import Share
from tests.support.cluster.failing import EVENTS, REPLICATION, SEED, stages
from tests.support.cluster.running import PRINTED, check, check_state, fetched, once, places, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


CHAIN = pytest.mark.skipif(
    os.environ.get("GODWIT_HYPOTHESIS") != "thorough", reason="plays at night: `make soak`"
)


@pytest.fixture(
    scope="module",
    params=["pull", pytest.param("chain", marks=[CHAIN, pytest.mark.soak])],
)
def home(
    tmp_path_factory: pytest.TempPathFactory, java: str, request: pytest.FixtureRequest
) -> Path:
    def fill(home: Path) -> None:
        (home / SEED).write_text(str(random.randrange(1 << 32)))
        (home / REPLICATION).write_text(request.param)
        run("tests.support.cluster.failing", home, java, -signal.SIGKILL)
        run("tests.support.cluster.failing", home, java)

    return once(tmp_path_factory, f"failing-{request.param}", fill)


@pytest.fixture(autouse=True)
def seed(home: Path) -> None:
    """Shown when a test fails."""
    print("seed", (home / SEED).read_text())


class Event:
    """Something that happened between two epochs: the first one that saw it, where workers were
    before, and what else there is to say of it."""

    def __init__(self, home: Path, name: str) -> None:
        events: list[dict[str, Any]] = json.loads((home / EVENTS).read_text())
        self.home = home
        self.told = next(event for event in events if event["name"] == name)
        self.epochs = range(self.told["before"] + 1, self.told["after"] + 1)
        self.before = Placement.from_json(self.told["placement"])

    def first_without(self, executor: str) -> int:
        return next(e for e in self.epochs if executor not in places(self.home, e).values())

    def first_placed_without(self, executor: str) -> int:
        """The first that was decided, or placed anew, after an executor was lost.

        In one that was only decided before, Spark may have run the lost tasks again itself,
        anywhere: small ones end before the driver sees the loss.
        """
        anew = re.findall(
            r"^epoch (\d+): lost executor (.*);", (self.home / PRINTED).read_text(), re.M
        )
        assert anew, "the log of losses reads otherwise"
        lost = {int(epoch) for epoch, executors in anew if executor in executors.split(", ")}
        return next(
            e for e in self.epochs if e in lost or executor not in placed(self.home, e).executors
        )

    def assert_little_is_fetched(self, epoch: int, worker: int, held: int | None = None) -> None:
        """No more than was written since the epoch that replicas had, and that is little of the
        worker's state."""
        held = self.told["held"] if held is None else held
        amount = fetched(self.home, epoch)
        assert amount <= written(self.home, range(held + 1, epoch))
        assert amount < share(self.home, held, worker) / 10


def placed(home: Path, epoch: int) -> Placement:
    """Where workers are to run, as the epoch was decided."""
    intent = History(home / "checkpoint").intent(epoch)
    assert intent is not None
    assert intent.placement is not None
    return intent.placement.placement


def written(home: Path, epochs: range) -> int:
    """The bytes that workers wrote to their state: deltas and merged files."""
    manifests = [manifest for e in epochs if (manifest := History(home / "checkpoint").manifest(e))]
    receipts = [receipt for manifest in manifests for receipt in manifest.receipts["counts"]]
    return sum(receipt.bytes + receipt.merged_bytes for receipt in receipts)


def share(home: Path, epoch: int, worker: int) -> int:
    """The bytes of a worker's state."""
    history = History(home / "checkpoint")
    intent, manifest = history.intent(epoch), history.manifest(epoch)
    assert intent is not None
    assert manifest is not None
    return sum(ref.bytes for ref in Share.of(WorkerId(worker), intent, manifest).files.values())


def test_whatever_is_killed_nothing_is_lost_and_nothing_counted_twice(home: Path) -> None:
    check(home)


def test_in_the_steady_state_nothing_is_fetched(home: Path) -> None:
    event = Event(home, "nothing")
    assert [fetched(home, epoch) for epoch in event.epochs] == [0] * len(event.epochs)
    assert all(
        tuple(places(home, epoch)[worker] for worker in range(3)) == event.before.homes
        for epoch in event.epochs
    )


def test_a_slow_keeper_lags_and_holds_nobody_up(home: Path) -> None:
    event = Event(home, "a slow keeper")
    assert event.told["lag"] >= 3
    assert [fetched(home, epoch) for epoch in event.epochs] == [0] * len(event.epochs)


def test_a_handover_fetches_what_the_replica_lacks(home: Path) -> None:
    event = Event(home, "handover")
    target = event.before.replicas[0][0]
    there = next(e for e in event.epochs if places(home, e)[0] == target)
    back = next(e for e in event.epochs if e > there and places(home, e)[0] != target)
    for epoch in (there, back):
        event.assert_little_is_fetched(epoch, worker=0, held=epoch - 1 - LAG)
    others = [fetched(home, epoch) for epoch in event.epochs if epoch not in (there, back)]
    assert not any(others)


def test_bins_that_move_to_where_a_replica_is_fetch_what_it_lacks(home: Path) -> None:
    event, history = Event(home, "bins to a replica"), History(home / "checkpoint")

    def owners(epoch: int) -> list[int]:
        intent = history.intent(epoch)
        assert intent is not None
        owners: list[int] = intent.routings["counts"].owners.tolist()
        return owners

    assert 0 in owners(event.epochs[0] - 1)
    moved = next(e for e in event.epochs if 0 not in owners(e))
    assert places(home, moved)[event.told["to"]] == event.before.replicas[0][0]
    event.assert_little_is_fetched(moved, worker=0)


@pytest.mark.parametrize(
    ("name", "worker"), [("a worker's executor", 0), ("twice in a row", 2), ("hung", 0)]
)
def test_a_worker_that_loses_its_executor_flees_to_its_replica(
    home: Path, name: str, worker: int
) -> None:
    event = Event(home, name)
    fled = event.first_placed_without(event.before.homes[worker])
    assert places(home, fled)[worker] == event.before.replicas[worker][0]
    event.assert_little_is_fetched(fled, worker)


def test_a_worker_that_loses_its_refuge_flees_again(home: Path) -> None:
    event = Event(home, "twice in a row")
    second = event.told["second"]
    assert second == event.before.replicas[2][0]
    fled = event.first_without(event.before.homes[2])
    again = next(e for e in event.epochs if e > fled and second not in places(home, e).values())
    assert places(home, again)[2] not in (event.before.homes[2], second)


def test_without_any_executor_the_checkpoint_serves(home: Path) -> None:
    event = Event(home, "all executors")
    epoch = event.first_without(event.before.homes[1])
    assert not set(places(home, epoch).values()) & set(event.before.executors)
    assert fetched(home, epoch) > share(home, epoch - 1, worker=1)
    check_state(home, epoch)


def test_without_any_copy_a_worker_goes_to_who_is_left_and_the_checkpoint_serves(
    home: Path,
) -> None:
    event = Event(home, "all copies of a worker")
    lost = {event.before.homes[0], event.before.replicas[0][0]}
    (left,) = set(event.before.executors) - lost
    epoch = event.first_without(event.before.homes[0])
    assert places(home, epoch)[0] == left
    check_state(home, epoch)  # what was fetched by an attempt that failed is not told


def test_executors_that_are_killed_at_random_are_replaced(home: Path) -> None:
    event = Event(home, "at random")
    assert len({one for e in event.epochs for one in places(home, e).values()}) > 3
    migrations, handovers = zip(*event.told["open"], strict=True)
    assert "open" in migrations
    assert {"building", "switched"} & set(handovers)


def test_a_handover_that_was_open_when_its_driver_was_killed_is_gone(home: Path) -> None:
    history = History(home / "checkpoint")
    intents = [intent for e in history.epochs() if (intent := history.intent(e)) is not None]
    first = next(i for i, one in enumerate(intents) if one.generation == intents[-1].generation)
    assert {"building", "switched"} & stages(intents[first - 1])
    placement = intents[first].placement
    assert placement is not None
    assert placement.handovers == ()


@pytest.mark.parametrize("stage", ["building", "switched"])
@pytest.mark.parametrize("side", ["origin", "target"])
def test_a_handover_ends_when_an_executor_of_its_is_killed(
    home: Path, side: str, stage: str
) -> None:
    event = Event(home, f"{side}, {stage}")
    assert event.told["open"] == stage
    origin, (replica, *_) = event.before.homes[2], event.before.replicas[2]
    possible = {origin, event.told["target"], replica}
    after = event.first_without(event.told["victim"])
    assert {places(home, epoch)[2] for epoch in range(event.epochs[0], after)} <= possible
    assert places(home, after)[2] in possible - {event.told["victim"]}


def test_a_drained_executor_has_neither_workers_nor_replicas(home: Path) -> None:
    event = Event(home, "drained")
    drained = event.before.homes[1]
    epoch = event.first_without(drained)
    event.assert_little_is_fetched(epoch, worker=1, held=epoch - 2 - LAG)
    for later in range(epoch, event.epochs[-1] + 1):
        assert drained not in places(home, later).values()
        assert all(drained not in copies for copies in placed(home, later).replicas)
