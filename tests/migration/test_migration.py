"""The table of a migration's life: each event in each phase."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import RefusedError
from godwit.migration.migration import (
    OPEN,
    EndedMigration,
    MigrationPhase,
    MigrationState,
    OpenMigration,
)
from godwit.migration.strategies import all_at_once, batched, fluid, left, matched, paced
from godwit.model.ids import Epoch
from godwit.model.requests import MigrateRequest
from godwit.model.routing import Routing

ORIGIN, TARGET = Routing.even(8, 2), Routing.even(8, 4)
ENDS = [phase for phase in MigrationPhase if phase not in OPEN]
STRATEGIES = [all_at_once(), fluid(), batched(3), matched(), matched(gap=1), paced()]


def migration(**changes: object) -> MigrationState:
    new = MigrationState(7, "counts", ORIGIN, TARGET, batched(4), accepted=100.0, deadline=200.0)
    return replace(new, **changes)  # type: ignore[arg-type]


def test_moving_takes_a_step_an_epoch_and_is_done_with_the_last() -> None:
    one, routing = migration().begin(Epoch(5), ORIGIN, 101)
    assert (one.phase, one.stepped, one.ended) == (MigrationPhase.MOVING, 5, None)
    assert routing.owners.tolist() == [0, 0, 1, 1, 2, 1, 3, 1]
    two, routing = one.begin(Epoch(6), routing, 102)
    assert (two.phase, two.stepped, two.ended) == (MigrationPhase.DONE, 6, 6)
    assert routing == TARGET


def test_a_migration_that_moves_no_bin_is_done_at_once() -> None:
    done, routing = migration(target=Routing(ORIGIN.owners, 5)).begin(Epoch(5), ORIGIN, 101)
    assert (done.phase, routing) == (MigrationPhase.DONE, Routing(ORIGIN.owners, 5))


def test_workers_are_there_before_they_own_a_bin_and_until_they_own_none() -> None:
    _, growing = migration(strategy=fluid()).begin(Epoch(5), ORIGIN, 101)
    assert growing.workers == 4
    back = migration(origin=TARGET, target=ORIGIN, strategy=fluid())
    _, shrinking = back.begin(Epoch(5), TARGET, 101)
    assert shrinking.workers == 4


def test_a_gap_is_kept_over_epochs() -> None:
    turned = Routing((TARGET.owners + 1) % 4, 4)
    moving = migration(origin=TARGET, target=turned, strategy=matched(gap=1))
    routing, moved = TARGET, []
    for epoch in range(5, 8):
        moving, after = moving.begin(Epoch(epoch), routing, 101)
        moved.append(int((after.owners != routing.owners).sum()))
        routing = after
    assert (moved, moving.phase, moving.ended) == ([4, 0, 4], MigrationPhase.DONE, 7)


def test_late_it_finishes_at_once() -> None:
    late, routing = migration(strategy=fluid()).begin(Epoch(5), ORIGIN, 200)
    assert (late.phase, late.ended, routing) == (MigrationPhase.DONE, 5, TARGET)


def test_late_it_moves_back_if_that_was_declared() -> None:
    moving, routing = migration(strategy=batched(2), on_timeout="rollback").begin(
        Epoch(5), ORIGIN, 101
    )
    assert routing != ORIGIN
    moving, routing = moving.begin(Epoch(6), routing, 102)
    late, routing = moving.begin(Epoch(7), routing, 200)
    assert (late.phase, late.ended) == (MigrationPhase.RETURNING, None)
    back, routing = late.begin(Epoch(8), routing, 201)
    assert (back.phase, back.ended, routing) == (MigrationPhase.ROLLED_BACK, 8, ORIGIN)


def test_late_before_its_first_step_there_is_nothing_to_move_back() -> None:
    back, routing = migration(on_timeout="rollback").begin(Epoch(5), ORIGIN, 300)
    assert (back.phase, routing) == (MigrationPhase.ROLLED_BACK, ORIGIN)


def test_returning_knows_no_deadline() -> None:
    returning = migration(phase=MigrationPhase.RETURNING, strategy=fluid())
    still, routing = returning.begin(Epoch(9), TARGET, 999)
    assert (still.phase, int((routing.owners != TARGET.owners).sum())) == (
        MigrationPhase.RETURNING,
        1,
    )


@pytest.mark.parametrize("phase", OPEN)
def test_abort(phase: MigrationPhase) -> None:
    aborted = migration(phase=phase).abort(Epoch(6), rollback=False)
    assert (aborted.phase, aborted.ended) == (MigrationPhase.ABORTED, 6)


def test_abort_rolling_back() -> None:
    assert migration().abort(Epoch(6), rollback=True).phase is MigrationPhase.RETURNING
    with pytest.raises(RefusedError, match="moving back already"):
        migration(phase=MigrationPhase.RETURNING).abort(Epoch(6), rollback=True)


@pytest.mark.parametrize("phase", OPEN)
def test_superseded_and_overruled(phase: MigrationPhase) -> None:
    assert migration(phase=phase).supersede(Epoch(6)) == migration(
        phase=MigrationPhase.SUPERSEDED, ended=6
    )
    assert migration(phase=phase).overrule(Epoch(6)) == migration(
        phase=MigrationPhase.OVERRULED, ended=6
    )


@pytest.mark.parametrize("phase", ENDS)
def test_nothing_happens_after_the_end(phase: MigrationPhase) -> None:
    ended = migration(phase=phase, ended=6)
    assert ended.begin(Epoch(7), ORIGIN, 999) == (ended, ORIGIN)
    assert ended.supersede(Epoch(7)) == ended
    assert ended.overrule(Epoch(7)) == ended
    for rollback in (False, True):
        with pytest.raises(RefusedError, match=f"migration 7 has ended: it is {phase}"):
            ended.abort(Epoch(7), rollback)


@pytest.mark.parametrize("phase", OPEN)
def test_json(phase: MigrationPhase) -> None:
    request = MigrateRequest(
        7, "counts", ORIGIN, TARGET, "matched:2", 100.0, deadline=200.0, on_timeout="rollback"
    )
    for origin in (request.origin, request.target):
        one = replace(MigrationState.of(request, origin), phase=phase, stepped=Epoch(3))
        told = OpenMigration.from_json(json.loads(json.dumps(one.record().to_json())))
        assert told == one.record()
        assert told.resume(request, 8) == one
        assert told.resume(request, 32) == one.with_bins(32)


@pytest.mark.parametrize("phase", ENDS)
def test_summary(phase: MigrationPhase) -> None:
    half = ORIGIN.toward(TARGET, left(ORIGIN, TARGET)[:2])
    ended = migration(phase=phase, ended=6).summary(half)
    assert ended == EndedMigration(7, "counts", "batched:4", (2, 4), 6, 2, 100.0, phase, Epoch(6))
    assert EndedMigration.from_json(json.loads(json.dumps(ended.to_json()))) == ended


OWNERS = st.lists(st.integers(0, 3), min_size=8, max_size=8).map(lambda o: Routing(np.array(o), 4))


@given(
    origin=OWNERS,
    target=OWNERS,
    strategy=st.sampled_from(STRATEGIES),
    back_at=st.none() | st.integers(0, 6),
)
def test_it_always_ends_where_it_should(
    origin: Routing, target: Routing, strategy: object, back_at: int | None
) -> None:
    moving, routing = migration(origin=origin, target=target, strategy=strategy), origin
    for epoch in range(200):
        if epoch == back_at and moving.phase is MigrationPhase.MOVING:
            moving = moving.abort(Epoch(epoch), rollback=True)
        moving, routing = moving.begin(Epoch(epoch), routing, now=101)
    expected = {MigrationPhase.DONE: target, MigrationPhase.ROLLED_BACK: origin}[moving.phase]
    assert routing == expected
