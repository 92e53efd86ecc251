"""Control requests: what the driver refuses, and what becomes of those that it accepts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from godwit.errors import FencedError, RefusedError
from godwit.model.routing import Routing, Update
from godwit.runtime.driver import Driver
from tests.runtime.samples import begin, content, drive, idle, publish


def owners(driver: Driver) -> list[int]:
    routing: list[int] = driver.routing("counts").owners.tolist()
    return routing


EVEN = Routing.even(16, 2)

REFUSED: dict[str, tuple[Callable[[Driver], Any], str]] = {
    "an epoch that has begun": (
        lambda d: d.schedule("counts", [Update(0, 3, 1)]),
        "epoch 0 has begun; the earliest epoch for an update is 1",
    ),
    "one of several epochs has begun": (
        lambda d: d.schedule("counts", [Update(5, 3, 1), Update(0, 3, 1)]),
        "epoch 0 has begun",
    ),
    "a bin beyond the last": (
        lambda d: d.schedule("counts", [Update(1, 16, 0)]),
        "unknown bin 16: bins are numbered 0 to 15",
    ),
    "a negative bin": (lambda d: d.schedule("counts", [Update(1, -1, 0)]), "unknown bin -1"),
    "a worker beyond the last": (
        lambda d: d.schedule("counts", [Update(1, 3, 2)]),
        "unknown worker 2: workers are 0 to 1",
    ),
    "a negative worker": (
        lambda d: d.schedule("counts", [Update(1, 3, -1)]),
        "unknown worker -1",
    ),
    "one bad update among good ones": (
        lambda d: d.schedule("counts", [Update(1, 3, 1), Update(2, 4, 7)]),
        "unknown worker 7",
    ),
    "no update": (lambda d: d.schedule("counts", []), "holds no update"),
    "an unknown operator": (
        lambda d: d.schedule("sums", [Update(1, 3, 1)]),
        "unknown operator 'sums'; this query has counts",
    ),
    "a migration of an unknown operator": (lambda d: d.migrate("sums", EVEN), "'sums'"),
    "a target of more bins": (
        lambda d: d.migrate("counts", Routing.even(32, 2)),
        "the target has 32 bins, operator 'counts' has 16",
    ),
    "a target of fewer bins": (lambda d: d.migrate("counts", Routing.even(8, 2)), "has 8 bins"),
    "a worker retired with its bins": (
        lambda d: d.schedule("counts", [Update(1, 8, 0)], workers=1),
        "worker 1 cannot be retired: it would still own bin 9",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_request_changes_nothing(tmp_path: Path, case: str) -> None:
    request, message = REFUSED[case]
    driver = drive(tmp_path, workers=2, bins=16)
    publish(driver, 0)
    before = content(tmp_path), driver.routing("counts")
    with pytest.raises(RefusedError, match=message):
        request(driver)
    assert (content(tmp_path), driver.routing("counts")) == before
    assert begin(driver, 1).routings["counts"] == EVEN


def test_an_update_must_leave_room_for_those_accepted_before_it(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    driver.schedule("counts", [Update(5, 2, 0), Update(5, 3, 0)], workers=1)
    before = content(tmp_path)
    with pytest.raises(RefusedError, match="worker 1 cannot be retired: it would still own bin 0"):
        driver.schedule("counts", [Update(3, 0, 1)])
    assert content(tmp_path) == before
    driver.schedule("counts", [Update(3, 0, 1), Update(4, 0, 0)])


def test_updates_that_have_taken_effect_do_not_count_against_later_ones(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=1, bins=4)
    driver.schedule("counts", [Update(0, 3, 2), Update(9, 0, 2)], workers=3)
    publish(driver, 0)
    driver.schedule("counts", [Update(1, 3, 0), Update(1, 0, 1)], workers=2)
    publish(driver, 1)
    driver.schedule("counts", [Update(2, 0, 0)], workers=1)  # worker 2 has nothing since epoch 1
    assert begin(driver, 2).routings["counts"] == Routing.even(4, 1)


def test_a_schedule_takes_effect_epoch_by_epoch(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    driver.schedule("counts", [Update(2, 1, 1), Update(1, 0, 1), Update(1, 0, 2)], workers=3)
    driver.schedule("counts", [Update(2, 1, 0)])
    found = [begin(driver, 0)]
    for epoch in (1, 2, 3):
        driver.commit(found[-1], idle(driver, found[-1]))
        found.append(begin(driver, epoch))
    routings = [intent.routings["counts"] for intent in found]
    assert [(r.owners.tolist(), r.workers) for r in routings] == [
        ([0, 0, 1, 1], 2),
        ([2, 0, 1, 1], 3),
        ([2, 0, 1, 1], 3),
        ([2, 0, 1, 1], 3),
    ]


def test_accepted_requests_survive_a_restart(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    driver.schedule("counts", [Update(0, 0, 1), Update(2, 1, 1)])
    driver.migrate("counts", Routing(np.array([3, 2, 1, 0]), 4))
    publish(driver, 0)
    driver = drive(tmp_path)
    publish(driver, 1)
    assert owners(driver) == [3, 2, 1, 0]
    driver = drive(tmp_path)
    assert begin(driver, 2).routings["counts"].owners.tolist() == [3, 1, 1, 0]


@pytest.mark.parametrize("restart", [{"workers": 3}, {"bins": 8}])
def test_other_workers_or_bins_at_a_restart_overrule_open_requests_for_good(
    tmp_path: Path, restart: dict[str, int]
) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    publish(driver, 0)
    taken = driver.schedule("counts", [Update(2, 0, 1)]).id
    driver = drive(tmp_path, **restart)
    expected = Routing.even(restart.get("bins", 4), restart.get("workers", 2))
    publish(driver, 1)
    driver = drive(tmp_path)
    assert begin(driver, 2).routings["counts"] == expected
    aside = [path.name for path in tmp_path.glob("godwit/undone/*/control/*")]
    assert aside == [f"{taken}.json"]  # nothing is deleted
    assert driver.schedule("counts", [Update(3, 0, 1)]).id > taken


def test_a_request_is_never_read_as_one_for_other_bins(tmp_path: Path) -> None:
    publish(drive(tmp_path, workers=2, bins=4), 0)
    drive(tmp_path, bins=2).schedule("counts", [Update(1, 0, 1)])
    assert begin(drive(tmp_path), 1).routings["counts"] == Routing.even(4, 2)


def test_requests_before_the_first_epoch_survive_too(tmp_path: Path) -> None:
    drive(tmp_path, workers=2, bins=4).schedule("counts", [Update(0, 0, 1)])
    driver = drive(tmp_path, workers=2, bins=4)
    assert begin(driver, 0).routings["counts"].owners.tolist() == [1, 0, 1, 1]


def test_a_driver_that_was_taken_over_accepts_nothing(tmp_path: Path) -> None:
    old = drive(tmp_path, workers=2, bins=4)
    new = drive(tmp_path, workers=2, bins=4)
    before = content(tmp_path)
    with pytest.raises(FencedError, match="generation 2 exists"):
        old.schedule("counts", [Update(0, 0, 1)])
    assert content(tmp_path) == before
    assert begin(new, 0).routings["counts"] == Routing.even(4, 2)
