"""Control requests are accepted once, in order, and however many updates they hold."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import RefusedError
from godwit.log import History, RequestLog
from godwit.model.ids import Epoch
from godwit.model.requests import AbortRequest, MigrateRequest, Request, ScheduleRequest, Updates
from godwit.model.routing import Routing, Update
from godwit.storage.local import LocalStore
from tests.support.log_samples import journal_at, schedule_of

SMALL = st.integers(0, 5)
UPDATES = st.lists(st.builds(Update, epoch=SMALL, bin=SMALL, worker=SMALL))


@given(UPDATES)
def test_updates_are_in_the_order_of_epochs_and_stable(given: list[Update]) -> None:
    updates = Updates.of(given)
    ordered = sorted(given, key=lambda update: update.epoch)
    assert list(updates) == ordered
    assert [updates[index] for index in range(len(updates))] == ordered
    assert list(updates[1:3]) == ordered[1:3]
    for epoch in range(6):
        assert updates.owners(epoch) == {u.bin: u.worker for u in ordered if u.epoch == epoch}


@given(UPDATES)
def test_updates_come_back_from_json(given: list[Update]) -> None:
    updates = Updates.of(given)
    again = Updates.from_json(updates.to_json())
    assert again == updates
    assert hash(again) == hash(updates)


def test_requests_are_numbered_in_order_and_found_by_other_processes(tmp_path: Path) -> None:
    control = journal_at(tmp_path).requests
    first = control.add(schedule_of(3, 3, 5, workers=2))
    second = control.add(schedule_of(4, workers=3))
    assert (first.id, first.last, second.id, second.last) == (1, 5, 2, 4)
    found = History.inspect(tmp_path).requests
    assert found.requests() == [first, second]
    assert found.requests(after=1) == [second]


def test_concurrent_requests_are_all_accepted(tmp_path: Path) -> None:
    journal_at(tmp_path)

    def add(epoch: int) -> Request:
        return History.inspect(tmp_path).requests.add(schedule_of(epoch, workers=1))

    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(add, range(32)))
    assert sorted(request.id for request in added) == list(range(1, 33))
    found = History.inspect(tmp_path).requests.requests()
    assert found == sorted(added, key=lambda request: request.id)


def test_a_million_updates_are_stored_compactly(tmp_path: Path) -> None:
    bins = np.arange(1 << 20)
    workers = np.random.default_rng(7).integers(0, 64, len(bins))
    updates = Updates(np.full(len(bins), 9), bins, workers)
    (tmp_path / "control").mkdir()
    control = RequestLog(LocalStore(tmp_path, durable=False))
    control.add(ScheduleRequest(0, "counts", Epoch(9), updates, 1 << 20, workers=64))
    assert (tmp_path / "control" / "1.json").stat().st_size < 5_000_000
    (found,) = control.requests()
    assert isinstance(found, ScheduleRequest)
    assert found.updates == updates


def test_an_update_before_its_request_is_refused() -> None:
    with pytest.raises(RefusedError, match="update for epoch 3 in a request from epoch 4"):
        schedule_of(4, 3)


def test_other_kinds_of_requests_come_back_as_they_were(tmp_path: Path) -> None:
    control = journal_at(tmp_path).requests
    migrate = MigrateRequest(
        0, "counts", Routing.even(8, 2), Routing.even(8, 3), "fluid", 1.5, 9.5, "rollback", True
    )
    first, second = control.add(migrate), control.add(AbortRequest(0, "counts", 1, rollback=True))
    assert (first.id, second.id) == (1, 2)
    assert History.inspect(tmp_path).requests.requests() == [first, second]
    assert [control.last(number) for number in control.ids()] == [None, None]


def test_an_id_is_not_given_again_when_its_request_was_deleted(tmp_path: Path) -> None:
    control = journal_at(tmp_path).requests
    assert control.add(schedule_of(1, 1), after=7).id == 8
    assert control.add(schedule_of(1, 1), after=7).id == 9


def test_a_claim_fails_when_another_was_first(tmp_path: Path) -> None:
    control, other = journal_at(tmp_path).requests, History.inspect(tmp_path).requests
    with patch.object(control, "ids", return_value=[]):
        other.add(schedule_of(1, 1))
        with pytest.raises(FileExistsError):
            control.claim(schedule_of(1, 1), after=0)


def test_a_claim_fails_when_another_came_after_what_was_judged(tmp_path: Path) -> None:
    control, other = journal_at(tmp_path).requests, History.inspect(tmp_path).requests
    other.add(schedule_of(1, 1))
    with pytest.raises(FileExistsError):
        control.claim(schedule_of(1, 1), after=0)
    assert control.claim(schedule_of(1, 1), after=1).id == 2
