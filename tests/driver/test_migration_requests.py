"""Requests for migrations: how they begin, go on over restarts, and end."""

import time
from pathlib import Path

import pytest

from godwit.driver.driver import Driver
from godwit.errors import RefusedError
from godwit.log import History, restore
from godwit.migration.strategies import all_at_once, batched, fluid
from godwit.model.requests import AbortRequest, MigrateRequest
from godwit.model.routing import Routing, Update
from tests.support.simulated import begin, content, drive, idle, publish, simulate

THREE = Routing.even(4, 3)


def owners(driver: Driver) -> list[int]:
    routing: list[int] = driver.routing("counts").owners.tolist()
    return routing


def test_a_migration_goes_on_after_restarts(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=1, bins=4)
    id = driver.requests.migrate("counts", THREE, strategy=fluid()).id
    found = []
    for epoch in range(4):
        publish(driver, epoch)
        found.append((owners(driver), driver.routing("counts").workers))
        driver = drive(tmp_path)
    assert THREE.owners.tolist() == [0, 0, 1, 2]
    assert found == [([0, 0, 1, 0], 3), ([0, 0, 1, 2], 3), ([0, 0, 1, 2], 3), ([0, 0, 1, 2], 3)]
    assert driver.requests.outcome(id) == "done"


def test_a_migration_is_open_until_its_last_epoch_is_published(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    id = driver.requests.migrate("counts", THREE, strategy=all_at_once()).id
    assert driver.requests.outcome(id) is None
    intent = begin(driver, 0)
    assert driver.requests.outcome(id) is None
    driver.commit(intent, idle(driver, intent))
    assert driver.requests.outcome(id) == "done"


def test_one_migration_at_a_time(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=1, bins=4)
    first = driver.requests.migrate("counts", THREE, strategy=fluid()).id
    publish(driver, 0)
    before = content(tmp_path)
    with pytest.raises(RefusedError, match=f"migration {first} of operator 'counts' is open; wait"):
        driver.requests.migrate("counts", Routing.even(4, 2))
    with pytest.raises(RefusedError, match=f"migration {first} of operator 'counts' is open"):
        driver.requests.schedule("counts", [Update(3, 0, 0)])
    assert content(tmp_path) == before
    even, strategy = Routing.even(4, 2), all_at_once()
    second = driver.requests.migrate("counts", even, strategy=strategy, supersede=True).id
    publish(driver, 1)
    assert driver.routing("counts") == Routing.even(4, 2)
    assert (driver.requests.outcome(first), driver.requests.outcome(second)) == (
        "superseded",
        "done",
    )


def test_scheduled_updates_come_first(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    driver.requests.schedule("counts", [Update(1, 0, 1)])
    with pytest.raises(RefusedError, match="are scheduled up to epoch 1; migrate when"):
        driver.requests.migrate("counts", THREE)


def test_superseded_updates_do_not_come_back(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    schedule = driver.requests.schedule("counts", [Update(1, 0, 1)])
    driver.requests.migrate("counts", THREE, strategy=all_at_once(), supersede=True)
    assert driver.timelines.is_dropped(schedule.id)
    publish(driver, 0)
    publish(drive(tmp_path), 1)
    assert drive(tmp_path).routing("counts") == THREE


@pytest.mark.parametrize("rollback", [False, True])
def test_abort(tmp_path: Path, rollback: bool) -> None:
    driver = drive(tmp_path, workers=1, bins=4)
    id = driver.requests.migrate("counts", THREE, strategy=batched(1)).id
    publish(driver, 0)
    half = driver.routing("counts")
    driver.requests.abort("counts", id, rollback=rollback)
    assert driver.requests.outcome(id) == (None if rollback else "aborted")
    driver = drive(tmp_path)
    publish(driver, 1)
    assert driver.routing("counts") == (Routing.even(4, 1) if rollback else half)
    assert driver.requests.outcome(id) == ("rolled back" if rollback else "aborted")
    with pytest.raises(RefusedError, match="only an open one can be aborted"):
        driver.requests.abort("counts", id)


def test_a_deadline_is_kept_over_a_restart(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=1, bins=4)
    id = driver.requests.migrate("counts", THREE, strategy=fluid(), deadline=60).id
    publish(driver, 0)
    driver = drive(tmp_path, clock=lambda: time.time() + 61)
    publish(driver, 1)
    assert driver.routing("counts") == THREE
    assert driver.requests.outcome(id) == "done"


@pytest.mark.parametrize("restart", [{"workers": 2}, {"bins": 1}])
def test_other_workers_or_fewer_bins_overrule_a_migration(
    tmp_path: Path, restart: dict[str, int]
) -> None:
    driver = drive(tmp_path, workers=1, bins=4)
    id = driver.requests.migrate("counts", THREE, strategy=fluid()).id
    publish(driver, 0)
    driver = drive(tmp_path, **restart)
    publish(driver, 1)
    driver = drive(tmp_path)
    assert driver.requests.outcome(id) == "overruled"
    assert driver.timelines["counts"].migration is None


def test_a_migration_goes_on_in_other_bins(tmp_path: Path) -> None:
    """Those of a request, and those of a start; the ones that a program named before ask for
    nothing."""
    driver = drive(tmp_path, workers=1, bins=4)
    id = driver.requests.migrate("counts", THREE, strategy=fluid()).id
    publish(driver, 0)
    driver.requests.split("counts", 16)
    assert driver.routing("counts").bins == 16
    publish(driver, 1)
    driver = drive(tmp_path, bins=4)
    publish(driver, 2)
    assert driver.routing("counts").bins == 16
    driver = drive(tmp_path, bins=32)
    assert driver.routing("counts").bins == 32
    for epoch in range(3, 30):
        publish(driver, epoch)
    assert driver.requests.outcome(id) == "done"
    assert driver.routing("counts") == THREE.with_bins(32)


def test_another_process_asks_through_the_checkpoint(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    publish(driver, 0)
    control = History.inspect(tmp_path).requests
    now = driver.routing("counts")
    asked = control.add(MigrateRequest(0, "counts", now, THREE, "all-at-once", time.time()))
    stale = control.add(MigrateRequest(0, "counts", THREE, now, "fluid", time.time()))
    unknown = control.add(AbortRequest(0, "sums", asked.id))
    intent = begin(driver, 1)
    assert intent.routings["counts"] == THREE
    assert intent.taken == unknown.id
    assert set(intent.refused) == {stale.id, unknown.id}
    assert "is open" in intent.refused[stale.id]
    assert "unknown operator 'sums'" in intent.refused[unknown.id]
    driver.commit(intent, idle(driver, intent))
    control.add(MigrateRequest(0, "counts", now, THREE, "all-at-once", time.time()))
    again = begin(driver, 2)
    assert list(again.refused.values())[2:] == [
        "the plan was made for another routing than operator 'counts' has now; plan again"
    ]
    driver = drive(tmp_path)
    assert begin(driver, 2).refused == again.refused


def test_another_process_supersedes_a_migration_that_goes_on_meanwhile(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=64)
    driver.requests.migrate("counts", Routing.even(64, 4), strategy=fluid())
    publish(driver, 0)
    seen, target = driver.routing("counts"), Routing.even(64, 1)
    publish(driver, 1)
    assert driver.routing("counts") != seen
    request = MigrateRequest(0, "counts", seen, target, "all-at-once", time.time(), supersede=True)
    asked = History.inspect(tmp_path).requests.add(request)
    before = driver.routing("counts")
    publish(driver, 2)
    assert driver.requests.outcome(asked.id) == "done"
    assert driver.routing("counts") == target

    slow = MigrateRequest(0, "counts", seen, before, "fluid", time.time(), supersede=True)
    asked = History.inspect(tmp_path).requests.add(slow)
    publish(driver, 3)
    driver = drive(tmp_path)  # which knows where the migration began
    driver.requests.abort("counts", asked.id, rollback=True)
    publish(driver, 4)
    assert driver.requests.outcome(asked.id) == "rolled back"
    assert driver.routing("counts").owners.tolist() == target.owners.tolist()


def test_the_handle_takes_in_what_others_asked_before_it(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    now = driver.routing("counts")
    other = MigrateRequest(0, "counts", now, THREE, "all-at-once", time.time())
    asked = History.inspect(tmp_path).requests.add(other)
    with pytest.raises(RefusedError, match=f"migration {asked.id} of operator 'counts' is open"):
        driver.requests.migrate("counts", now)


def test_a_rollback_of_the_checkpoint_takes_a_migration_back(tmp_path: Path) -> None:
    sim = simulate(tmp_path, workers=1, bins=4)
    sim.feed([])
    id = sim.migrate(THREE, strategy=fluid())
    sim.feed([])
    sim.feed([])
    restore(tmp_path, 1, durable=False)
    driver = drive(tmp_path)
    migration = driver.timelines["counts"].migration
    assert migration is not None
    assert (migration.id, owners(driver).count(0)) == (id, 3)
    restore(tmp_path, 0, durable=False)
    driver = drive(tmp_path)
    assert not driver.timelines["counts"].is_open
    assert driver.requests.migrate("counts", THREE).id > id


def test_what_has_arrived_is_remembered(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=1, bins=4)
    id = driver.requests.migrate("counts", THREE, strategy=fluid()).id
    publish(driver, 0)
    driver.requests.abort("counts", id)
    publish(driver, 1)
    ended = drive(tmp_path).timelines.ended(id)
    assert ended["counts"].arrived == 1


def test_a_migration_that_is_asked_for_before_the_first_epoch_survives_a_restart(
    tmp_path: Path,
) -> None:
    id = (
        drive(tmp_path, workers=2, bins=4)
        .requests.migrate("counts", THREE, strategy=all_at_once())
        .id
    )
    driver = drive(tmp_path, workers=2, bins=4)
    publish(driver, 0)
    assert (driver.routing("counts"), driver.requests.outcome(id)) == (THREE, "done")


def test_a_number_of_workers_counts_until_the_program_names_another(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    driver.requests.migrate("counts", THREE, strategy=all_at_once())
    publish(driver, 0)
    for epoch, workers in ((1, 2), (2, None), (3, 2)):
        driver = drive(tmp_path, workers=workers)
        assert driver.routing("counts") == THREE
        publish(driver, epoch)
    for _ in range(2):  # until an epoch has begun with it
        assert drive(tmp_path, workers=1).routing("counts").workers == 1
