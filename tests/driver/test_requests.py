"""Control requests: what the driver refuses, and what becomes of those that it accepts."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from godwit.driver.requests import Requests
from godwit.driver.timelines import REFUSALS, SOURCES
from godwit.errors import FencedError, RefusedError
from godwit.log import History, RequestLog
from godwit.model.ids import BinId, Epoch, WorkerId
from godwit.model.requests import AbortRequest, MigrateRequest, StreamedUpdates
from godwit.model.routing import Routing, Update
from godwit.operators import AggregateOperator, count
from tests.support.simulated import COUNTS, WORDS, begin, content, drive, idle, publish

EVEN = Routing.even(16, 2)

REFUSED: dict[str, tuple[Callable[[Requests], Any], str]] = {
    "an epoch that has begun": (
        lambda requests: requests.schedule("counts", [Update(0, 3, 1)]),
        "epoch 0 has begun; the earliest epoch for an update is 1",
    ),
    "one of several epochs has begun": (
        lambda requests: requests.schedule("counts", [Update(5, 3, 1), Update(0, 3, 1)]),
        "epoch 0 has begun",
    ),
    "a bin beyond the last": (
        lambda requests: requests.schedule("counts", [Update(1, 16, 0)]),
        "unknown bin 16: bins are numbered 0 to 15",
    ),
    "a negative bin": (
        lambda requests: requests.schedule("counts", [Update(1, -1, 0)]),
        "unknown bin -1",
    ),
    "a worker beyond the last": (
        lambda requests: requests.schedule("counts", [Update(1, 3, 2)]),
        "unknown worker 2: workers are 0 to 1",
    ),
    "a negative worker": (
        lambda requests: requests.schedule("counts", [Update(1, 3, -1)]),
        "unknown worker -1",
    ),
    "one bad update among good ones": (
        lambda requests: requests.schedule("counts", [Update(1, 3, 1), Update(2, 4, 7)]),
        "unknown worker 7",
    ),
    "an epoch far ahead": (
        lambda requests: requests.schedule("counts", [Update(5, 3, 1), Update(2000, 3, 1)]),
        "epoch 2000 is too far ahead; the latest epoch for an update is 1000",
    ),
    "another end than there is": (
        lambda requests: requests.migrate("counts", EVEN, on_timeout="abort"),  # type: ignore[arg-type]
        "can finish or rollback, not 'abort'",
    ),
    "a deadline in the past": (
        lambda requests: requests.migrate("counts", EVEN, deadline=-1.0),
        "a deadline is some seconds ahead",
    ),
    "no update": (lambda requests: requests.schedule("counts", []), "holds no update"),
    "an unknown operator": (
        lambda requests: requests.schedule("sums", [Update(1, 3, 1)]),
        "unknown operator 'sums'; this query has counts",
    ),
    "a migration of an unknown operator": (
        lambda requests: requests.migrate("sums", EVEN),
        "'sums'",
    ),
    "a target of more bins": (
        lambda requests: requests.migrate("counts", Routing.even(32, 2)),
        "the target has 32 bins, operator 'counts' has 16",
    ),
    "a target of fewer bins": (
        lambda requests: requests.migrate("counts", Routing.even(8, 2)),
        "has 8 bins",
    ),
    "a worker retired with its bins": (
        lambda requests: requests.schedule("counts", [Update(1, 8, 0)], workers=1),
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
        request(driver.requests)
    assert (content(tmp_path), driver.routing("counts")) == before
    assert begin(driver, 1).routings["counts"] == EVEN


def test_an_update_must_leave_room_for_those_accepted_before_it(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    driver.requests.schedule("counts", [Update(5, 2, 0), Update(5, 3, 0)], workers=1)
    before = content(tmp_path)
    with pytest.raises(RefusedError, match="worker 1 cannot be retired: it would still own bin 0"):
        driver.requests.schedule("counts", [Update(3, 0, 1)])
    assert content(tmp_path) == before
    driver.requests.schedule("counts", [Update(3, 0, 1), Update(4, 0, 0)])


def test_updates_that_have_taken_effect_do_not_count_against_later_ones(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=1, bins=4)
    driver.requests.schedule("counts", [Update(0, 3, 2), Update(9, 0, 2)], workers=3)
    publish(driver, 0)
    driver.requests.schedule("counts", [Update(1, 3, 0), Update(1, 0, 1)], workers=2)
    publish(driver, 1)
    driver.requests.schedule(
        "counts", [Update(2, 0, 0)], workers=1
    )  # worker 2 has nothing since epoch 1
    assert begin(driver, 2).routings["counts"] == Routing.even(4, 1)


def test_a_schedule_takes_effect_epoch_by_epoch(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    driver.requests.schedule(
        "counts", [Update(2, 1, 1), Update(1, 0, 1), Update(1, 0, 2)], workers=3
    )
    driver.requests.schedule("counts", [Update(2, 1, 0)])
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


def test_accepted_updates_survive_a_restart(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    driver.requests.schedule("counts", [Update(0, 0, 1), Update(2, 1, 1)])
    driver.requests.schedule("counts", [Update(1, 2, 2)], workers=3)
    publish(driver, 0)
    driver = drive(tmp_path)
    publish(driver, 1)
    assert driver.routing("counts").owners.tolist() == [1, 0, 2, 1]
    driver = drive(tmp_path)
    assert begin(driver, 2).routings["counts"].owners.tolist() == [1, 1, 2, 1]


@pytest.mark.parametrize("restart", [{"workers": 3}, {"bins": 1}])
def test_other_workers_or_fewer_bins_at_a_restart_overrule_open_requests(
    tmp_path: Path, restart: dict[str, int]
) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    publish(driver, 0)
    taken = driver.requests.schedule("counts", [Update(2, 0, 1)]).id
    driver = drive(tmp_path, **restart)
    expected = Routing.even(restart.get("bins", 4), restart.get("workers", 2))
    publish(driver, 1)
    driver = drive(tmp_path)
    assert begin(driver, 2).routings["counts"] == expected
    assert taken in History.inspect(tmp_path).requests.ids()  # nothing is deleted
    assert driver.requests.schedule("counts", [Update(3, 0, 1)]).id > taken


@pytest.mark.parametrize(("bins", "owners"), [(2, [1, 1]), (4, [1, 1, 1, 1])])
def test_a_request_is_never_read_as_one_for_other_bins(
    tmp_path: Path, bins: int, owners: list[int]
) -> None:
    """It was accepted for 2 bins, and not for 4."""
    publish(drive(tmp_path, workers=2, bins=4), 0)
    drive(tmp_path, bins=2).requests.schedule("counts", [Update(1, 0, 1)])
    assert begin(drive(tmp_path, bins=bins), 1).routings["counts"].owners.tolist() == owners


def test_an_epoch_that_has_begun_is_begun_again_as_it_was(tmp_path: Path) -> None:
    """Its updates could not be applied to the routing that it has itself: a schedule that ended
    with it had brought the third worker."""
    driver = drive(tmp_path, workers=2, bins=4)
    publish(driver, 0)
    ends = [Update(3, bin, 0) for bin in range(4)]
    driver.requests.schedule("counts", [Update(1, 0, 0), *ends], workers=2)
    driver.requests.schedule("counts", [Update(1, 3, 2)], workers=3)
    decided = begin(driver, 1).routings
    assert decided["counts"].owners.tolist() == [0, 0, 1, 2]
    for _ in range(2):
        driver = drive(tmp_path)
        assert begin(driver, 1).routings == decided
    publish(driver, 1)
    publish(driver, 2)
    assert begin(driver, 3).routings["counts"].owners.tolist() == [0, 0, 0, 0]


def test_a_request_that_another_process_was_faster_than_is_judged_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when ours is judged, and not yet claimed."""
    driver = drive(tmp_path, workers=2, bins=16)
    publish(driver, 0)
    claim = RequestLog.claim

    def late(log: RequestLog, request: MigrateRequest, after: int) -> MigrateRequest:
        monkeypatch.setattr(RequestLog, "claim", claim)
        first = MigrateRequest(0, "counts", EVEN, EVEN.spread(3), "fluid", 1.0)
        assert History.inspect(tmp_path).requests.add(first).id == 1
        return claim(log, request, after)

    monkeypatch.setattr(RequestLog, "claim", late)
    with pytest.raises(RefusedError, match="migration 1 of operator 'counts' is open"):
        driver.requests.migrate("counts", EVEN.spread(4))
    assert History.inspect(tmp_path).requests.ids() == [1]
    migration = driver.timelines["counts"].migration
    assert (migration and migration.id, begin(driver, 1).refused) == (1, {})


def test_the_id_of_a_deleted_request_is_not_given_again(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    one = driver.requests.schedule("counts", [Update(3, 0, 1)])
    History.inspect(tmp_path).requests.add(replace(one, workers=1))  # which is refused
    publish(driver, 0)
    shutil.rmtree(tmp_path / "godwit" / "undone")
    driver = drive(tmp_path)
    assert driver.requests.schedule("counts", [Update(3, 1, 1)]).id == 3


def test_requests_before_the_first_epoch_survive_too(tmp_path: Path) -> None:
    drive(tmp_path, workers=2, bins=4).requests.schedule("counts", [Update(0, 0, 1)])
    driver = drive(tmp_path, workers=2, bins=4)
    assert begin(driver, 0).routings["counts"].owners.tolist() == [1, 0, 1, 1]


def test_a_driver_that_was_taken_over_accepts_nothing(tmp_path: Path) -> None:
    old = drive(tmp_path, workers=2, bins=4)
    new = drive(tmp_path, workers=2, bins=4)
    before = content(tmp_path)
    with pytest.raises(FencedError, match="generation 2 exists"):
        old.requests.schedule("counts", [Update(0, 0, 1)])
    assert content(tmp_path) == before
    assert begin(new, 0).routings["counts"] == Routing.even(4, 2)


def streamed(
    id: str, operator: str | None, *, bin: int, worker: int, workers: int | None = None
) -> StreamedUpdates:
    """One update for the next epoch."""
    return StreamedUpdates(id, operator, ((None, BinId(bin), WorkerId(worker)),), workers)


def test_updates_as_data_that_name_no_operator_are_for_all(tmp_path: Path) -> None:
    other = AggregateOperator.of("others", "word", {"rows": count()}, WORDS)
    driver = drive(tmp_path, COUNTS, other, workers=2, bins=4)
    publish(driver, 0)
    for _ in range(2):  # an epoch that is delivered twice asks twice
        driver.requests.add_streamed(
            Epoch(0),
            [
                streamed("all", None, bin=0, worker=1),
                streamed("one", "others", bin=3, worker=0),
            ],
        )
    publish(driver, 1)
    assert driver.routing("counts").owners.tolist() == [1, 0, 1, 1]
    assert driver.routing("others").owners.tolist() == [1, 0, 1, 0]
    assert len(driver.timelines["counts"].scheduled) == 0


def test_an_id_counts_once_however_many_operators_it_is_for(tmp_path: Path) -> None:
    others = [
        AggregateOperator.of(f"others{i}", "word", {"rows": count()}, WORDS) for i in range(5)
    ]
    driver = drive(tmp_path, COUNTS, *others, workers=2, bins=4)
    publish(driver, 0)
    ids = [f"id {number}" for number in range(SOURCES)]
    driver.requests.add_streamed(Epoch(0), [streamed(id, None, bin=0, worker=1) for id in ids])
    publish(driver, 1)
    driver = drive(tmp_path, COUNTS, *others)
    before = content(tmp_path)
    driver.requests.add_streamed(Epoch(1), [streamed(ids[0], None, bin=0, worker=1)])
    assert content(tmp_path) == before
    driver.requests.add_streamed(Epoch(1), [streamed("new", "counts", bin=0, worker=1)])
    told = begin(driver, 2).sources
    assert len({source.partition(":")[2] for source in told}) == SOURCES
    assert told[-1] == "counts:new"


def test_updates_as_data_that_cannot_be_are_refused_and_do_not_stop_the_query(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    publish(driver, 0)
    many = streamed("many", "counts", bin=0, worker=1, workers=100_000)
    driver.requests.add_streamed(Epoch(0), [many])
    assert "request 1 was refused: workers must be from 1 to 65536" in caplog.text
    driver = drive(tmp_path)
    publish(driver, 1)
    assert driver.routing("counts") == Routing.even(4, 2)


def test_no_refusal_is_forgotten_before_an_intent_has_told_it(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    publish(driver, 0)
    control = History.inspect(tmp_path).requests
    unknown = control.add(AbortRequest(0, "counts", 99))
    driver.requests.add_streamed(
        Epoch(0), [streamed(f"{n}", "counts", bin=9, worker=1) for n in range(2 * REFUSALS)]
    )
    told = begin(driver, 1)
    assert len(told.refused) == 1 + 2 * REFUSALS
    assert "migration 99 of operator 'counts' is unknown" in told.refused[unknown.id]
    driver.commit(told, idle(driver, told))
    assert len(begin(driver, 2).refused) == REFUSALS
