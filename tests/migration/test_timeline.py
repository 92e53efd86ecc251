"""What becomes of requests: each kind, in each situation of an operator."""

from dataclasses import replace

import pytest

from godwit.errors import RefusedError
from godwit.migration.migration import MigrationPhase
from godwit.migration.timeline import HORIZON, PAST_MIGRATIONS, Timeline
from godwit.model.ids import Epoch
from godwit.model.requests import (
    AbortRequest,
    MigrateRequest,
    OperatorRequest,
    ScheduleRequest,
    Updates,
)
from godwit.model.routing import Routing, Update

TWO, FOUR = Routing.even(8, 2), Routing.even(8, 4)
IDLE = Timeline("counts", Epoch(4), TWO)


def migrate(id: int = 7, **changes: object) -> MigrateRequest:
    request = MigrateRequest(id, "counts", TWO, FOUR, "batched:4", 100.0)
    return replace(request, **changes)  # type: ignore[arg-type]


def schedule(*epochs: int, id: int = 8, bins: int = 8) -> ScheduleRequest:
    updates = Updates.of([Update(epoch, 0, 1) for epoch in epochs])
    return ScheduleRequest(id, "counts", Epoch(min(epochs, default=5)), updates, bins, None)


def moving() -> Timeline:
    """In the middle of migration 7, in epoch 5."""
    timeline = IDLE.take(migrate()).begin(Epoch(5), 101.0)
    assert timeline.migration is not None
    return timeline


def ends(timeline: Timeline) -> list[tuple[int, MigrationPhase, int]]:
    return [(ended.id, ended.phase, ended.epoch) for ended in timeline.past]


def test_a_migration_from_begin_to_end() -> None:
    timeline = IDLE.take(migrate())
    assert (timeline.routing, timeline.is_open) == (TWO, True)
    timeline = timeline.begin(Epoch(5), 101.0).begin(Epoch(6), 102.0)
    assert (timeline.routing, timeline.is_open) == (FOUR, False)
    assert ends(timeline) == [(7, MigrationPhase.DONE, 6)]
    assert timeline.begin(Epoch(7), 103.0).routing == FOUR


def test_a_schedule_from_begin_to_end() -> None:
    timeline = IDLE.take(schedule(5, 7))
    for epoch, open in ((5, True), (6, True), (7, False)):
        timeline = timeline.begin(Epoch(epoch), 100.0)
        assert (timeline.routing.owners[0], timeline.is_open) == (1, open)


REFUSED: dict[str, tuple[Timeline, OperatorRequest, str]] = {
    "an update of an epoch that has begun": (IDLE, schedule(4), "epoch 4 has begun"),
    "an update far ahead": (IDLE, schedule(5 + HORIZON), "too far ahead; the latest epoch"),
    "no update": (IDLE, schedule(), "holds no update"),
    "a schedule for other bins": (IDLE, schedule(5, bins=16), "has 16 bins"),
    "a schedule while moving": (moving(), schedule(9), "migration 7 of operator 'counts' is open"),
    "a target of other bins": (IDLE, migrate(target=Routing.even(16, 4)), "has 16 bins"),
    "a plan for another routing": (IDLE, migrate(origin=FOUR), "for another routing"),
    "an unknown strategy": (IDLE, migrate(strategy="quick"), "unknown strategy 'quick'"),
    "a migration while moving": (
        moving(),
        migrate(9),
        "open; wait for its end .*--queue.*, abort it, or supersede it with --supersede",
    ),
    "a migration while scheduled": (
        IDLE.take(schedule(6)),
        migrate(),
        "scheduled up to epoch 6; migrate when they .*, or supersede them with --supersede",
    ),
    "an abort of nothing": (
        IDLE,
        AbortRequest(9, "counts", 7),
        "migration 7 .* is unknown; only an open",
    ),
    "an abort of another": (moving(), AbortRequest(9, "counts", 3), "migration 3 .* is unknown"),
    "an abort after the end": (
        moving().begin(Epoch(6), 102.0),
        AbortRequest(9, "counts", 7),
        "migration 7 of operator 'counts' is done",
    ),
    "a second way back": (
        moving().take(AbortRequest(9, "counts", 7, rollback=True)),
        AbortRequest(10, "counts", 7, rollback=True),
        "moving back already",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    timeline, request, message = REFUSED[case]
    with pytest.raises(RefusedError, match=message):
        timeline.take(request)


def test_abort() -> None:
    timeline = moving().take(AbortRequest(9, "counts", 7))
    assert (timeline.is_open, timeline.routing) == (False, moving().routing)
    assert ends(timeline) == [(7, MigrationPhase.ABORTED, 5)]


def test_abort_rolling_back() -> None:
    timeline = moving().take(AbortRequest(9, "counts", 7, rollback=True))
    assert timeline.is_open
    timeline = timeline.begin(Epoch(6), 102.0)
    assert (timeline.routing, ends(timeline)) == (TWO, [(7, MigrationPhase.ROLLED_BACK, 6)])


def test_superseded() -> None:
    timeline = moving()
    back = migrate(9, origin=timeline.routing, target=TWO, supersede=True)
    timeline = timeline.take(back)
    assert ends(timeline) == [(7, MigrationPhase.SUPERSEDED, 5)]
    timeline = timeline.begin(Epoch(6), 102.0)
    assert (timeline.routing, ends(timeline)[-1]) == (TWO, (9, MigrationPhase.DONE, 6))
    timeline = IDLE.take(schedule(6)).take(migrate(9, supersede=True))
    assert timeline.scheduled == ()


def test_a_restart_that_asks_for_nothing_else_changes_nothing() -> None:
    for workers in (None, 4):
        assert moving().restart(workers, None) == moving()
        assert moving().restart(workers, 8) == moving()


def test_a_restart_with_other_workers_or_bins_overrules_everything() -> None:
    timeline = moving().restart(3, None)
    assert (timeline.is_open, timeline.routing) == (False, Routing.even(8, 3))
    assert ends(timeline) == [(7, MigrationPhase.OVERRULED, 5)]
    timeline = moving().restart(None, 16)
    assert (timeline.is_open, timeline.routing) == (False, moving().routing.with_bins(16))
    timeline = IDLE.take(schedule(9)).restart(3, None)
    assert (timeline.is_open, timeline.routing, timeline.past) == (False, Routing.even(8, 3), ())


def test_a_restart_overrules_a_migration_that_leads_to_other_workers_than_it_names() -> None:
    timeline = (
        Timeline("counts", Epoch(4), FOUR)
        .take(migrate(origin=FOUR, target=TWO))
        .begin(Epoch(5), 101.0)
    )
    assert timeline.routing.workers == 4  # some bins have not moved yet
    assert timeline.restart(2, None) == timeline
    timeline = timeline.restart(4, None)
    assert (timeline.is_open, timeline.routing) == (False, FOUR)
    assert ends(timeline) == [(7, MigrationPhase.OVERRULED, 5)]


def test_a_restart_keeps_a_schedule_that_leads_to_the_workers_that_it_names() -> None:
    three = replace(schedule(9), workers=3)
    timeline = IDLE.take(three)
    assert timeline.restart(3, None) == timeline
    assert timeline.restart(2, None) == replace(IDLE, scheduled=())


def test_a_restart_that_overrules_a_migration_without_a_step_leaves_the_bins_alone() -> None:
    uneven = Routing(TWO.owners[::-1].copy(), 2)
    timeline = Timeline("counts", Epoch(4), uneven).take(migrate(origin=uneven)).restart(2, None)
    assert (timeline.is_open, timeline.routing) == (False, uneven)


def test_only_the_newest_of_the_past_is_remembered() -> None:
    timeline = IDLE
    for id in range(PAST_MIGRATIONS + 5):
        timeline = timeline.take(migrate(id, target=TWO)).begin(Epoch(timeline.begun + 1), 0.0)
    assert [ended.id for ended in timeline.past] == list(range(5, PAST_MIGRATIONS + 5))
