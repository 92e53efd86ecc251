"""What becomes of requests: each kind, in each situation of an operator."""

from dataclasses import replace

import pytest

from godwit.errors import ConfigError, RefusedError
from godwit.migration.migration import MigrationPhase
from godwit.migration.timeline import HORIZON, PAST_MIGRATIONS, Timeline
from godwit.model.ids import Epoch
from godwit.model.requests import (
    AbortRequest,
    MigrateRequest,
    OperatorRequest,
    ScheduleRequest,
    SplitRequest,
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


def returning() -> Timeline:
    """Migration 7 from four workers has brought bins 2 and 3 to worker 0, before it turns back: so
    bins could be merged in pairs of pairs, if it were not for where it returns to."""
    timeline = Timeline("counts", Epoch(4), FOUR).take(migrate(origin=FOUR, target=TWO))
    assert timeline.migration is not None
    return replace(timeline, routing=TWO)


def split(bins: int) -> SplitRequest:
    return SplitRequest(11, "counts", bins)


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
    "a merge of bins at several workers": (
        IDLE,
        split(1),
        "cannot have 1 bin: bins 0 and 4 of 8 would be one, which are at workers 0 and 1; "
        "ask for at least 2 bins, or migrate them to one of both first",
    ),
    "a merge in the middle of a step": (
        moving(),
        split(4),
        "bins 4 and 5 of 8 would be one, which are at workers 2 and 1",
    ),
    "a merge of bins that a migration parts": (
        IDLE.take(migrate()),
        split(2),
        "bins 0 and 2 of 8 .*, which migration 7 brings to workers 0 and 1; ask for at least 4 bins"
        ", or wait for its end",
    ),
    "a merge of bins that a migration found at several workers": (
        returning(),
        split(2),
        "which migration 7 found at workers 0 and 1; ask for at least 4 bins, or wait for its end",
    ),
    "a merge while scheduled": (
        IDLE.take(schedule(6)),
        split(4),
        "scheduled up to epoch 6; merge bins when they have taken effect",
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


def test_a_restart_with_other_workers_or_too_few_bins_overrules_everything() -> None:
    timeline = moving().restart(3, None)
    assert (timeline.is_open, timeline.routing) == (False, Routing.even(8, 3))
    assert ends(timeline) == [(7, MigrationPhase.OVERRULED, 5)]
    timeline = moving().restart(None, 2)
    assert (timeline.is_open, timeline.routing) == (False, moving().routing.with_bins(2))
    assert ends(timeline) == [(7, MigrationPhase.OVERRULED, 5)]
    timeline = IDLE.take(schedule(9)).restart(None, 4)
    assert (timeline.is_open, timeline.routing) == (False, Routing.even(4, 2))
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


# -- bins split and merge --------------------------------------------------------------------------


def owners(timeline: Timeline) -> list[int]:
    owners: list[int] = timeline.routing.owners.tolist()
    return owners


def test_a_split_gives_each_part_the_worker_of_the_whole() -> None:
    timeline = IDLE.take(split(16))
    assert (timeline.routing, timeline.is_open) == (Routing.even(16, 2), False)
    assert timeline.begin(Epoch(5), 101.0).routing == Routing.even(16, 2)
    assert timeline.take(split(2)).routing == Routing.even(2, 2)
    assert IDLE.take(split(8)) == IDLE


@pytest.mark.parametrize("bins", [0, 3, 1 << 21, -8])
def test_bins_are_a_power_of_two(bins: int) -> None:
    with pytest.raises(ConfigError, match="power of two"):
        IDLE.take(split(bins))


@pytest.mark.parametrize("rollback", [False, True])
def test_a_migration_goes_on_in_finer_bins(rollback: bool) -> None:
    """Where it comes from, where it is and where it leads are told in them; its phase, its end and
    what it may do next stay as they were."""
    timeline = moving()
    if rollback:
        timeline = timeline.take(AbortRequest(9, "counts", 7, rollback=True))
    finer = timeline.take(split(32))
    before, after = timeline.migration, finer.migration
    assert before is not None
    assert after is not None
    assert (after.phase, after.stepped, after.id) == (before.phase, before.stepped, before.id)
    assert finer.routing == timeline.routing.with_bins(32)
    assert (after.origin, after.target) == (TWO.with_bins(32), FOUR.with_bins(32))
    epoch = finer.begun
    while finer.is_open:
        epoch = Epoch(epoch + 1)
        finer = finer.begin(epoch, 102.0)
    goal, phase = (TWO, MigrationPhase.ROLLED_BACK) if rollback else (FOUR, MigrationPhase.DONE)
    assert (finer.routing, finer.past[-1].phase) == (goal.with_bins(32), phase)


def test_a_late_migration_in_finer_bins_finishes_at_once() -> None:
    late = IDLE.take(migrate(deadline=110.0, strategy="fluid")).begin(Epoch(5), 101.0)
    late = late.take(split(16)).begin(Epoch(6), 110.0)
    assert (late.routing, late.is_open) == (FOUR.with_bins(16), False)


def test_a_migration_in_finer_bins_can_be_aborted_and_superseded() -> None:
    finer = moving().take(split(16))
    aborted = finer.take(AbortRequest(9, "counts", 7))
    assert (aborted.routing, ends(aborted)) == (finer.routing, [(7, MigrationPhase.ABORTED, 5)])
    back = migrate(9, origin=finer.routing, target=TWO.with_bins(16), supersede=True)
    assert ends(finer.take(back)) == [(7, MigrationPhase.SUPERSEDED, 5)]
    with pytest.raises(RefusedError, match="has 8 bins, operator 'counts' has 16"):
        finer.take(migrate(9, supersede=True))


def test_bins_merge_where_origin_target_and_routing_can() -> None:
    merged = IDLE.take(migrate()).take(split(4))
    assert merged.migration is not None
    assert (merged.routing, merged.migration.target) == (Routing.even(4, 2), Routing.even(4, 4))
    merged = merged.begin(Epoch(5), 101.0)
    assert (owners(merged), ends(merged)) == ([0, 1, 2, 3], [(7, MigrationPhase.DONE, 5)])


def test_scheduled_updates_are_for_all_parts_of_their_bins() -> None:
    timeline = IDLE.take(schedule(6)).take(split(16)).begin(Epoch(5), 101.0)
    assert owners(timeline)[:2] == [0, 0]
    assert owners(timeline.begin(Epoch(6), 102.0))[:3] == [1, 1, 0]
    with pytest.raises(RefusedError, match="has 8 bins, operator 'counts' has 16"):
        timeline.take(schedule(7, id=9))


def test_a_restart_with_other_bins_splits_and_merges_where_no_bin_moves() -> None:
    assert moving().restart(None, 16) == moving().take(split(16))
    assert moving().restart(4, 16) == moving().take(split(16))
    assert IDLE.take(migrate()).restart(None, 4) == IDLE.take(migrate()).take(split(4))
    assert IDLE.take(schedule(9)).restart(None, 16) == IDLE.take(schedule(9)).take(split(16))
    overruled = moving().restart(3, 16)
    assert (overruled.routing, overruled.is_open) == (Routing.even(16, 3), False)
