"""What becomes of requests: each kind, in each situation of an operator."""

from dataclasses import replace

import pytest

from godwit.errors import RefusedError
from godwit.model.requests import Abort, Migrate, OfOperator, Schedule, Updates
from godwit.model.routing import Routing, Update
from godwit.protocol.course import HORIZON, PAST, Course
from godwit.protocol.migration import Phase

TWO, FOUR = Routing.even(8, 2), Routing.even(8, 4)
IDLE = Course("counts", 4, TWO)


def migrate(id: int = 7, **changes: object) -> Migrate:
    request = Migrate(id, "counts", TWO, FOUR, "batched:4", 100.0)
    return replace(request, **changes)  # type: ignore[arg-type]


def schedule(*epochs: int, id: int = 8, bins: int = 8) -> Schedule:
    updates = Updates.of([Update(epoch, 0, 1) for epoch in epochs])
    return Schedule(id, "counts", min(epochs, default=5), updates, bins, None)


def moving() -> Course:
    """In the middle of migration 7, in epoch 5."""
    course = IDLE.take(migrate()).begin(5, 101.0)
    assert course.migration is not None
    return course


def ends(course: Course) -> list[tuple[int, Phase, int]]:
    return [(ended.id, ended.phase, ended.epoch) for ended in course.past]


def test_a_migration_from_begin_to_end() -> None:
    course = IDLE.take(migrate())
    assert (course.routing, course.is_open) == (TWO, True)
    course = course.begin(5, 101.0).begin(6, 102.0)
    assert (course.routing, course.is_open) == (FOUR, False)
    assert ends(course) == [(7, Phase.DONE, 6)]
    assert course.begin(7, 103.0).routing == FOUR


def test_a_schedule_from_begin_to_end() -> None:
    course = IDLE.take(schedule(5, 7))
    for epoch, open in ((5, True), (6, True), (7, False)):
        course = course.begin(epoch, 100.0)
        assert (course.routing.owners[0], course.is_open) == (1, open)


REFUSED: dict[str, tuple[Course, OfOperator, str]] = {
    "an update of an epoch that has begun": (IDLE, schedule(4), "epoch 4 has begun"),
    "an update far ahead": (IDLE, schedule(5 + HORIZON), "too far ahead; the latest epoch"),
    "no update": (IDLE, schedule(), "holds no update"),
    "a schedule for other bins": (IDLE, schedule(5, bins=16), "has 16 bins"),
    "a schedule while moving": (moving(), schedule(9), "migration 7 of operator 'counts' is open"),
    "a target of other bins": (IDLE, migrate(target=Routing.even(16, 4)), "has 16 bins"),
    "a plan for another routing": (IDLE, migrate(origin=FOUR), "for another routing"),
    "an unknown strategy": (IDLE, migrate(strategy="quick"), "unknown strategy 'quick'"),
    "a migration while moving": (moving(), migrate(9), "open; wait for its end, abort it or"),
    "a migration while scheduled": (
        IDLE.take(schedule(6)),
        migrate(),
        "scheduled up to epoch 6; migrate when they have taken effect, or supersede them",
    ),
    "an abort of nothing": (IDLE, Abort(9, "counts", 7), "migration 7 .* is unknown; only an open"),
    "an abort of another": (moving(), Abort(9, "counts", 3), "migration 3 .* is unknown"),
    "an abort after the end": (
        moving().begin(6, 102.0),
        Abort(9, "counts", 7),
        "migration 7 of operator 'counts' is done",
    ),
    "a second way back": (
        moving().take(Abort(9, "counts", 7, rollback=True)),
        Abort(10, "counts", 7, rollback=True),
        "moving back already",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    course, request, message = REFUSED[case]
    with pytest.raises(RefusedError, match=message):
        course.take(request)


def test_abort() -> None:
    course = moving().take(Abort(9, "counts", 7))
    assert (course.is_open, course.routing) == (False, moving().routing)
    assert ends(course) == [(7, Phase.ABORTED, 5)]


def test_abort_rolling_back() -> None:
    course = moving().take(Abort(9, "counts", 7, rollback=True))
    assert course.is_open
    course = course.begin(6, 102.0)
    assert (course.routing, ends(course)) == (TWO, [(7, Phase.ROLLED_BACK, 6)])


def test_superseded() -> None:
    course = moving()
    back = migrate(9, origin=course.routing, target=TWO, supersede=True)
    course = course.take(back)
    assert ends(course) == [(7, Phase.SUPERSEDED, 5)]
    course = course.begin(6, 102.0)
    assert (course.routing, ends(course)[-1]) == (TWO, (9, Phase.DONE, 6))
    course = IDLE.take(schedule(6)).take(migrate(9, supersede=True))
    assert course.scheduled == ()


def test_a_restart_that_asks_for_nothing_else_changes_nothing() -> None:
    for workers in (None, 4):
        assert moving().restart(workers, None) == moving()
        assert moving().restart(workers, 8) == moving()


def test_a_restart_with_other_workers_or_bins_overrules_everything() -> None:
    course = moving().restart(3, None)
    assert (course.is_open, course.routing) == (False, Routing.even(8, 3))
    assert ends(course) == [(7, Phase.OVERRULED, 5)]
    course = moving().restart(None, 16)
    assert (course.is_open, course.routing) == (False, moving().routing.with_bins(16))
    course = IDLE.take(schedule(9)).restart(3, None)
    assert (course.is_open, course.routing, course.past) == (False, Routing.even(8, 3), ())


def test_a_restart_overrules_a_migration_that_leads_to_other_workers_than_it_names() -> None:
    course = Course("counts", 4, FOUR).take(migrate(origin=FOUR, target=TWO)).begin(5, 101.0)
    assert course.routing.workers == 4  # some bins have not moved yet
    assert course.restart(2, None) == course
    course = course.restart(4, None)
    assert (course.is_open, course.routing) == (False, FOUR)
    assert ends(course) == [(7, Phase.OVERRULED, 5)]


def test_a_restart_keeps_a_schedule_that_leads_to_the_workers_that_it_names() -> None:
    three = replace(schedule(9), workers=3)
    course = IDLE.take(three)
    assert course.restart(3, None) == course
    assert course.restart(2, None) == replace(IDLE, scheduled=())


def test_a_restart_that_overrules_a_migration_without_a_step_leaves_the_bins_alone() -> None:
    uneven = Routing(TWO.owners[::-1].copy(), 2)
    course = Course("counts", 4, uneven).take(migrate(origin=uneven)).restart(2, None)
    assert (course.is_open, course.routing) == (False, uneven)


def test_only_the_newest_of_the_past_is_remembered() -> None:
    course = IDLE
    for id in range(PAST + 5):
        course = course.take(migrate(id, target=TWO)).begin(course.begun + 1, 0.0)
    assert [ended.id for ended in course.past] == list(range(5, PAST + 5))
