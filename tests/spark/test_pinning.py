"""Slots are made anew only when workers cannot be had where they are placed."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from godwit.model.ids import ExecutorId
from godwit.placement.slots import Placement
from godwit.spark import pinning as module
from godwit.spark.pinning import BEARABLE, RETRIES, Pinning, Slots, assign

PLACES = ["0", "1", "2", "0", "1", "2"]


def placement(homes: str, executors: str = "012") -> Placement:
    return Placement.of(1, [*map(ExecutorId, executors)], map(ExecutorId, homes), [])


def slots(places: Sequence[str], made_for: Placement, *, cached: bool = True) -> Slots:
    anchor: Any = Mock(storageLevel=Mock(useMemory=cached))
    return Slots(anchor, range(len(places)), [*map(ExecutorId, places)], made_for)


@pytest.mark.parametrize(
    ("homes", "executors", "fit"),
    [
        ("0120", "012", True),
        ("1221", "12", True),  # executor 0 is lost: its slots are left alone
        ("1211", "12", False),  # executor 1 has two slots
        ("2", "2", False),  # most slots are of lost executors
        ("1233", "123", False),  # another one has come
    ],
)
def test_slots_fit(homes: str, executors: str, fit: bool) -> None:
    made = slots(PLACES, placement("012"))
    assert made.fit(placement(homes, executors)) is fit
    if fit:
        found = assign(made.executors, [*map(ExecutorId, homes)])
        assert [PLACES[slot] for slot in found] == list(homes)


class Made:
    """Slots that are spread as they come: one spread after the other, and then the last again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *spreads: str, idle: bool = True) -> None:
        self.spreads = list(spreads)
        self.count = 0
        self.welcomes = 0
        self.living = "012"
        self.anchor: Any = Mock()
        self.spark: Any = Mock()
        self.spark.sparkContext.defaultParallelism = 3
        self.pinning = Pinning(self.spark)
        monkeypatch.setattr(module, "_keys", lambda spark, count: list(range(count)))
        monkeypatch.setattr(module, "_cached", self._cached)
        monkeypatch.setattr(module, "await_idle", lambda context, executors: idle)
        monkeypatch.setattr(module, "can_stay", lambda context: True)
        monkeypatch.setattr(module, "is_alone", lambda context: False)
        monkeypatch.setattr(self.pinning._executors, "ready", dict)
        monkeypatch.setattr(self.pinning._executors, "welcome", self._welcome)
        monkeypatch.setattr(module, "_ints", lambda spark, numbers: list(numbers))

    def _cached(self, *_: object) -> tuple[Any, list[str]]:
        self.count += 1
        spread = self.spreads.pop(0) if len(self.spreads) > 1 else self.spreads[0]
        return self.anchor, list(spread)

    def _welcome(self) -> frozenset[str]:
        self.welcomes += 1
        return frozenset(self.living)

    def epoch(self, wanted: Placement, operators: int = 1) -> list[str]:
        """Run an epoch; returns where its workers are."""
        self.pinning.executors()
        for _ in range(operators):
            used = self.pinning.slots(self.spark, wanted, len(wanted.slots))
        assert used is not None
        return [used.executors[part] for part in used.of_worker]


def test_a_handover_gets_its_slot_however_new_the_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Made(monkeypatch, "012", "012012")
    assert made.epoch(placement("012")) == ["0", "1", "2"]
    assert made.epoch(placement("112")) == ["1", "1", "2"]


def test_slots_that_cannot_be_had_are_tried_again_after_some_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Made(monkeypatch, "011", idle=False)
    for _ in range(BEARABLE):
        assert made.epoch(placement("012"), operators=3) == ["0", "1", "1"]
        assert made.count == 1
    made.epoch(placement("012"))
    assert made.count == 2


@pytest.mark.parametrize(
    ("spreads", "homes", "idle", "count"),
    [
        (["001122"], "012", True, 1),
        (["000112"], "012", True, 1),  # uneven, but there is one for each worker
        (["000111", "001122"], "012", True, 2),
        (["000111"], "012", True, 1 + RETRIES),
        (["000111"], "012", False, 1),  # another query uses the executors
    ],
)
def test_slots_are_made_until_they_fit_or_executors_are_busy(
    spreads: list[str], homes: str, idle: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(monkeypatch, *spreads, idle=idle)
    made.epoch(placement(homes))
    assert made.count == count
    assert made.welcomes == count + 1  # before the first, between two, and before the epoch's job


def test_slots_of_a_lost_executor_are_cached_elsewhere_before_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Made(monkeypatch, "012012")
    made.epoch(placement("0120"))
    made.living = "12"
    for _ in range(3):
        made.epoch(placement("1221", "12"), operators=2)
    cache = made.anchor._jdf.javaToPython().collectPartitions
    cache.assert_called_once_with([0, 3])
    assert made.count == 1
