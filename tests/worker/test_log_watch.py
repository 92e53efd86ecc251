"""How a keeper follows the log: what it sees, and how seldom it asks."""

from collections import Counter
from pathlib import Path

import pytest

from godwit.log.history import History
from godwit.model.ids import Epoch
from godwit.worker.log_watch import QUIET, SOON, LogWatch
from tests.support.placed import Placed
from tests.support.simulated import words

KEYS = [f"word {i}" for i in range(20)]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Asked(History):
    """Counts what it is asked."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(checkpoint)
        self.count = Counter[str]()

    def __getattribute__(self, name: str) -> object:
        if name in ("manifest", "intent", "epochs", "intents", "newest_generation"):
            self.count[name] += 1
        return super().__getattribute__(name)


@pytest.fixture
def sim(tmp_path: Path) -> Placed:
    sim = Placed(tmp_path, ["0", "1"], [["1"], ["0"]])
    sim.feed(words(*KEYS))
    return sim


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def history(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


@pytest.fixture
def watch(sim: Placed, history: Asked, clock: Clock) -> LogWatch:
    return LogWatch(history, sim.generation, Epoch(0), clock.monotonic)


def known(watch: LogWatch) -> tuple[int | None, int | None]:
    intent, manifest = watch.intent, watch.manifest
    return intent.epoch if intent else None, manifest.epoch if manifest else None


def test_it_starts_with_the_epoch_that_has_begun(watch: LogWatch) -> None:
    assert watch.seconds == 0
    assert watch.look()
    assert known(watch) == (0, 0)


def test_an_epoch_that_it_is_told_of_is_known_at_once(sim: Placed, watch: LogWatch) -> None:
    watch.look()
    sim.driver.begin(Epoch(1), "simulation", "1")
    assert watch.seconds > 0
    watch.hear(Epoch(1))
    assert watch.seconds == 0
    watch.look()
    assert known(watch) == (1, 0)
    assert watch.seconds > 0


def test_who_was_told_nothing_for_long_catches_up(sim: Placed, watch: LogWatch) -> None:
    watch.look()
    for _ in range(5):
        sim.feed(words(*KEYS))
    watch.hear(Epoch(5))
    assert watch.look()
    assert known(watch) == (5, 5)


def test_the_manifest_is_looked_for_after_twice_as_long_each_time(
    sim: Placed, watch: LogWatch, clock: Clock
) -> None:
    watch.look()
    sim.driver.begin(Epoch(1), "simulation", "1")
    watch.hear(Epoch(1))
    waits = []
    for _ in range(9):
        watch.look()
        waits.append(watch.seconds)
        clock.now += watch.seconds
    longest = 2 * QUIET
    assert waits[:3] == pytest.approx([2 * SOON, 4 * SOON, 8 * SOON])
    assert max(waits) == pytest.approx(longest)


def test_one_of_which_nobody_tells_is_found_in_the_end(
    sim: Placed, watch: LogWatch, clock: Clock
) -> None:
    watch.look()
    for _ in range(3):
        sim.feed(words(*KEYS))
    clock.now += watch.seconds
    assert watch.look()
    assert known(watch) == (3, 3)


def test_one_whose_epochs_are_gone_from_the_log_finds_the_newest(
    tmp_path: Path, clock: Clock
) -> None:
    sim = Placed(tmp_path, ["0", "1"], [["1"], ["0"]], retention=1)
    watch = LogWatch(History(tmp_path), sim.generation, Epoch(0), clock.monotonic)
    for _ in range(9):
        sim.feed(words(*KEYS))
    for _ in range(9):
        watch.look()
        clock.now += watch.seconds
    assert known(watch) == (8, 8)


def test_another_driver_ends_it(sim: Placed, watch: LogWatch, clock: Clock) -> None:
    watch.look()
    sim.restart()
    assert not watch.is_over
    clock.now += watch.seconds
    watch.look()
    assert watch.is_over


def test_an_idle_query_is_asked_less_than_once_a_second(
    watch: LogWatch, history: Asked, clock: Clock
) -> None:
    """By its two keepers together."""
    watch.look()
    history.count.clear()
    start = clock.now
    while clock.now < start + 3600:
        clock.now += watch.seconds
        watch.look()
    assert 2 * history.count.total() < 3600


def test_an_epoch_costs_a_few_questions(sim: Placed, watch: LogWatch, history: Asked) -> None:
    watch.look()
    history.count.clear()
    for epoch in range(1, 11):
        sim.driver.begin(Epoch(epoch), "simulation", str(epoch))
        watch.hear(Epoch(epoch))
        watch.look()
        sim.feed(words(*KEYS))
    assert history.count["intent"] == 10
    assert history.count["manifest"] <= 20
    assert set(history.count) == {"intent", "manifest"}
