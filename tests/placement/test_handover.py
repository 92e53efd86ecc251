"""Placements and handovers: every event in every stage, and random lives of a cluster."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import RefusedError
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.placement.handover import HandoverStage, HandoverState
from godwit.placement.placement_state import LAG, STALLED_EPOCHS, PlacementState, Seen
from godwit.placement.replica_packing import place_replicas
from godwit.placement.slots import Held, by_worker

HOSTS = {ExecutorId(str(number)): "ab"[number % 2] for number in range(6)}
MIB = 1 << 20


def seen(
    epoch: int,
    executors: str = "012",
    held: Mapping[tuple[str, int], int | None] | None = None,
    workers: int = 3,
) -> Seen:
    """`held`: by executor and worker, the epoch that it has."""
    progress: dict[ExecutorId, dict[WorkerId, Held]] = {}
    for (executor, worker), newest in (held or {}).items():
        has = Held(None if newest is None else Epoch(newest))
        progress.setdefault(ExecutorId(executor), {})[WorkerId(worker)] = has
    hosts = {executor: HOSTS[executor] for executor in map(ExecutorId, executors)}
    return Seen(Epoch(epoch), hosts, progress, [MIB] * workers)


def placed(copies: int = 1) -> PlacementState:
    """Workers 0, 1 and 2 on executors 0, 1 and 2."""
    state = PlacementState(copies).begin(seen(0))
    assert homes(state) == ("0", "1", "2")
    return state


def homes(state: PlacementState) -> tuple[ExecutorId, ...]:
    return state.placement.homes if state.placement else ()


def replicas(state: PlacementState) -> tuple[tuple[ExecutorId, ...], ...]:
    return state.placement.replicas if state.placement else ()


def ask(state: PlacementState, worker: int, target: str) -> PlacementState:
    return state.ask(WorkerId(worker), ExecutorId(target))


def drain(state: PlacementState, executor: str) -> PlacementState:
    return state.drain(ExecutorId(executor))


def publish(state: PlacementState, epoch: int, places: Mapping[int, str]) -> PlacementState:
    ran = {WorkerId(worker): ExecutorId(place) for worker, place in places.items()}
    return state.published(Epoch(epoch), ran)


def is_drained(state: PlacementState, executor: str) -> bool:
    return state.is_drained(ExecutorId(executor))


def in_stage(stage: HandoverStage) -> PlacementState:
    """The handover of worker 2, on executor 2, to executor 1 in a stage."""
    state = ask(placed(), 2, "1").begin(seen(1))
    if stage is HandoverStage.BUILDING:
        return state
    if stage is HandoverStage.FAILED:
        return ask(state, 2, "0").begin(seen(2, held={("0", 2): 1}))
    state = state.begin(seen(2, held={("1", 2): 1}))
    if stage is HandoverStage.SWITCHED:
        return state
    return publish(state, 2, {0: "0", 1: "1", 2: "1"})


def first(state: PlacementState) -> HandoverState:
    handover = state.find(1)
    assert handover is not None
    return handover


@pytest.mark.parametrize("stage", HandoverStage)
def test_a_handover_reaches_every_stage(stage: HandoverStage) -> None:
    assert first(in_stage(stage)).stage is stage


BUILDING, SWITCHED, DONE, FAILED = HandoverStage
Event = Callable[[PlacementState], PlacementState]
EVENTS: dict[str, tuple[Event, tuple[str, str, str, str]]] = {
    # An event, and by the stage before it (building, switched, done, failed): the stage after it,
    # and the executor of worker 2. The one that failed was superseded by another to executor 0.
    "nothing new": (
        lambda state: state.begin(seen(9)),
        ("building 2", "switched 1", "done 1", "failed 0"),
    ),
    "the replica is up to date": (
        lambda state: state.begin(seen(9, held={("1", 2): 8 - LAG})),
        ("switched 1", "switched 1", "done 1", "failed 0"),
    ),
    "the replica is behind": (
        lambda state: state.begin(seen(9, held={("1", 2): 8 - LAG - 1})),
        ("building 2", "switched 1", "done 1", "failed 0"),
    ),
    "the target is lost": (
        lambda state: state.begin(seen(9, "02", held={("2", 2): 8})),
        ("failed 2", "failed 2", "done 2", "failed 0"),
    ),
    "the origin is lost while the target is behind": (
        lambda state: state.begin(seen(9, "01", held={("1", 2): 3})),
        ("switched 1", "switched 1", "done 1", "failed 0"),
    ),
    "the origin is lost, and another one has more": (
        lambda state: state.begin(seen(9, "01", held={("1", 2): 3, ("0", 2): 4})),
        ("failed 0", "switched 1", "done 1", "failed 0"),
    ),
    "origin and target are lost": (
        lambda state: state.begin(seen(9, "0")),
        ("failed 0", "failed 0", "done 0", "failed 0"),
    ),
    "all executors are lost": (
        lambda state: state.begin(seen(9, "")),
        ("failed", "failed", "done", "failed"),
    ),
    "an executor joins": (
        lambda state: state.begin(seen(9, "0123")),
        ("building 2", "switched 1", "done 1", "failed 0"),
    ),
    "the worker is retired": (
        lambda state: state.begin(seen(9, workers=2)),
        ("failed", "failed", "done", "failed"),
    ),
    "the target is to be drained": (
        lambda state: drain(state, "1").begin(seen(9)),
        ("failed 2", "switched 1", "done 1", "failed 0"),
    ),
    "an epoch is published, with the worker on its target": (
        lambda state: publish(state, 9, {2: "1"}),
        ("building 2", "done 1", "done 1", "failed 0"),
    ),
    "an epoch is published, with the worker elsewhere": (
        lambda state: publish(state, 9, {2: "2"}),
        ("building 2", "switched 1", "done 1", "failed 0"),
    ),
}


@pytest.mark.parametrize("stage", HandoverStage)
@pytest.mark.parametrize("event", EVENTS)
def test_each_event_in_each_stage(event: str, stage: HandoverStage) -> None:
    happen, table = EVENTS[event]
    after = happen(in_stage(stage))
    assert [first(after).stage, *homes(after)[2:]] == table[
        list(HandoverStage).index(stage)
    ].split()


@pytest.mark.parametrize("stage", [BUILDING, SWITCHED])
def test_another_one_supersedes_one_that_is_open(stage: HandoverStage) -> None:
    again = ask(in_stage(stage), 2, "0")
    assert (first(again).stage, first(again).reason) == (FAILED, "superseded")
    assert [handover.target for handover in again.handovers] == ["0"]


def epochs(state: PlacementState, held: Held, count: int) -> PlacementState:
    """So many epochs; executor 1 has `held` of worker 2, which Spark runs on executor 2."""
    for epoch in range(3, 3 + count):
        progress = {ExecutorId("1"): {WorkerId(2): held}}
        state = state.begin(Seen(Epoch(epoch), seen(0).executors, progress, [MIB] * 3))
        state = publish(state, epoch, {2: "2"})
    return state


@pytest.mark.parametrize(("stage", "why"), [(BUILDING, "cache_bytes"), (SWITCHED, "locality")])
def test_a_handover_that_comes_no_nearer_is_given_up(stage: HandoverStage, why: str) -> None:
    state = epochs(in_stage(stage), Held(None, MIB), STALLED_EPOCHS)
    assert first(state).stage is stage
    state = epochs(state, Held(None, MIB), 3)
    assert first(state).stage is FAILED
    assert why in first(state).reason


def test_a_handover_goes_on_as_long_as_it_comes_nearer() -> None:
    state = in_stage(BUILDING)
    for lacking in range(3 * STALLED_EPOCHS, 0, -1):
        state = epochs(state, Held(None, lacking), 1)
    assert first(state).stage is BUILDING


def test_a_drain_that_cannot_be_is_given_up() -> None:
    state = drain(placed(), "2")
    for epoch in range(1, STALLED_EPOCHS + 5):
        state = state.begin(seen(epoch))
    assert not state.drained
    assert homes(state) == ("0", "1", "2")


def test_a_drain_whose_worker_stays_is_given_up() -> None:
    state = drain(placed(), "2").begin(seen(1))
    target = state.handovers[0].target
    for epoch in range(2, STALLED_EPOCHS + 6):
        state = state.begin(seen(epoch, held={(target, 2): epoch - 1}))
        state = publish(state, epoch, {0: "0", 1: "1", 2: "2"})
    assert first(state).stage is FAILED
    assert not state.drained


def test_what_was_given_up_is_not_tried_again_before_something_comes_or_goes() -> None:
    state = placed().begin(seen(1, "01", held={("1", 2): 0})).begin(seen(2, "013"))
    assert [handover.target for handover in state.handovers] == ["3"]
    for epoch in range(3, STALLED_EPOCHS + 6):
        state = state.begin(seen(epoch, "013"))
    assert not state.handovers
    state = state.begin(seen(STALLED_EPOCHS + 6, "0134"))
    assert [handover.target for handover in state.handovers] == ["3"]


@pytest.mark.parametrize(
    ("stage", "has", "goes_on"),
    [
        (BUILDING, None, False),
        (BUILDING, 8 - LAG - 1, False),
        (BUILDING, 8 - LAG, True),
        (SWITCHED, None, True),  # it did not run on its target
        (DONE, 8, False),
    ],
)
def test_an_epoch_would_bring_a_handover_further(
    stage: HandoverStage, has: int | None, goes_on: bool
) -> None:
    assert in_stage(stage).can_go_on(Epoch(9), seen(9, held={("1", 2): has}).held) is goes_on


@pytest.mark.parametrize(
    ("worker", "executor", "why"),
    [(3, "1", "no worker 3"), (-1, "1", "no worker"), (0, "7", "no executor"), (0, "0", "already")],
)
def test_what_cannot_be_is_refused(worker: int, executor: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        ask(placed(), worker, executor)


def test_without_executors_there_is_nothing_to_hand_over() -> None:
    with pytest.raises(RefusedError, match="not pinned"):
        ask(PlacementState(1), 0, "1")


def test_a_target_gets_a_replica_for_its_handover_also_where_there_are_none() -> None:
    state = placed(copies=0)
    assert replicas(state) == ((), (), ())
    assert replicas(ask(state, 2, "1").begin(seen(1))) == ((), (), ("1",))


def test_a_drained_executor_gives_its_workers_away_and_gets_nothing() -> None:
    state = drain(placed(), "2").begin(seen(1))
    (handover,) = state.handovers
    assert (handover.worker, handover.automatic) == (2, True)
    assert all("2" not in each for each in replicas(state))
    with pytest.raises(RefusedError, match="drained"):
        ask(state, 0, "2")
    state = state.begin(seen(2, held={(handover.target, 2): 1}))
    assert not is_drained(state, "2")
    state = publish(state, 2, {2: handover.target})
    assert is_drained(state, "2")
    with pytest.raises(RefusedError, match="the last one"):
        drain(drain(state, "0"), "1")


def test_a_drain_does_not_wait_for_handovers_between_others() -> None:
    state = drain(placed(), "2").begin(seen(1))
    (handover,) = state.handovers
    state = state.begin(seen(2, held={(handover.target, 2): 1}))
    state = ask(publish(state, 2, {2: handover.target}), 0, "1")
    state = state.begin(seen(3, held={("1", 0): 2}))
    assert [other.stage for other in state.handovers] == [SWITCHED]
    assert is_drained(state, "2")


def test_workers_return_to_an_executor_that_joins_when_it_has_their_state() -> None:
    state = placed().begin(seen(1, "01", held={("1", 2): 0}))
    assert homes(state) == ("0", "1", "1")
    state = state.begin(seen(2, "013"))
    (handover,) = state.handovers
    assert (handover.target, handover.automatic) == ("3", True)
    assert homes(state) == ("0", "1", "1")
    state = state.begin(seen(3, "013", held={("3", handover.worker): 2}))
    assert sorted(homes(state)) == ["0", "1", "3"]


def test_copies_stay_until_the_new_ones_are_there() -> None:
    state = placed()
    (old,) = replicas(state)[0]
    state = drain(state, old).begin(seen(1, held={(old, 0): 0}))
    (new, *kept) = replicas(state)[0]
    assert new != old
    assert kept == [old]
    state = state.begin(seen(2, held={(old, 0): 1, (new, 0): 1}))
    assert replicas(state)[0] == (new,)


@given(
    sizes=st.lists(st.integers(0, 100), min_size=1, max_size=12),
    executors=st.integers(1, 6),
    copies=st.integers(0, 3),
    data=st.data(),
)
def test_replicas_are_apart_and_even(
    sizes: list[int], executors: int, copies: int, data: st.DataObject
) -> None:
    hosts = {executor: HOSTS[executor] for executor in list(HOSTS)[:executors]}
    homes = [data.draw(st.sampled_from(sorted(hosts))) for _ in sizes]
    chosen = place_replicas(homes, sizes, hosts, copies)
    for home, each in zip(homes, chosen, strict=True):
        assert len({home, *each}) == 1 + min(copies, executors - 1)
        if copies and len(set(hosts.values())) > 1:
            assert hosts[each[0]] != hosts[home]
    assert place_replicas(homes, sizes, hosts, copies, chosen) == chosen
    if len(set(hosts.values())) == 1 and copies == 1 and executors > 2:
        load = [sum(s for s, c in zip(sizes, chosen, strict=True) if e in c) for e in hosts]
        assert max(load) <= sum(sizes) / executors * 1.25 + 2 * max(sizes)


def test_workers_of_one_executor_have_their_copies_on_several() -> None:
    homes = [*map(ExecutorId, ["0", "1", "2", "0"])]
    sizes = [1.0, 50.0, 1.0, 1.0]  # room for both copies anywhere
    chosen = place_replicas(homes, sizes, dict.fromkeys(homes, "a"), 1)
    assert {chosen[0], chosen[3]} == {("1",), ("2",)}


@pytest.mark.parametrize("seed", range(300))
def test_lives_of_a_cluster(seed: int) -> None:
    """Whatever comes: workers run where there are executors, move only to where their state is, or
    from where there is no executor, and replicas are apart."""
    chance = Random(seed)
    state = PlacementState(chance.randint(0, 2))
    versions: list[int] = []
    for epoch in range(15):
        executors = [*map(ExecutorId, sorted(chance.sample("012345", chance.randint(1, 6))))]
        workers = chance.randint(1, 5)
        held = {
            (chance.choice("012345"), chance.randint(0, 4)): chance.choice(
                [None, *range(max(0, epoch - 6), epoch)]
            )
            for _ in range(chance.randint(0, 20))
        }
        with suppress(RefusedError):
            if chance.random() < 0.4:
                state = ask(state, chance.randint(0, 5), chance.choice("012345"))
            elif chance.random() < 0.2:
                state = drain(state, chance.choice("012345"))
        before, now = state, seen(epoch, "".join(executors), held, workers)
        state = before.begin(now)
        assert state.placement is not None
        assert len(homes(state)) == workers
        assert set(homes(state)) <= set(executors)
        for worker, home in by_worker(homes(state)):
            copies = replicas(state)[worker]
            assert len({home, *copies}) == 1 + len(copies)
            assert set(copies) <= set(executors)
            was = homes(before)[worker] if worker < len(homes(before)) else None
            if was in executors and was != home:
                assert now.is_fresh(home, worker)
            if was is not None and was not in executors:
                known = [e for e in executors if now.freshness(e, worker) is not None]
                if known:
                    best = max(now.freshness(e, worker) or (0, 0) for e in known)
                    handed_over = any(h.worker == worker for h in state.handovers)
                    fresh = handed_over and now.is_fresh(home, worker)
                    assert fresh or now.freshness(home, worker) == best
        open_ones = [handover.worker for handover in state.handovers]
        assert len(set(open_ones)) == len(open_ones)
        if before.placement and before.placement != state.placement:
            assert state.placement.version > before.placement.version
        if chance.random() < 0.2:  # an executor is lost in the epoch, which is run again
            left = executors[: chance.randint(0, len(executors))]
            state = state.begin(seen(epoch, "".join(left), held, workers))
            assert set(homes(state)) <= set(left)
        versions.append(state.version)
        assert versions == sorted(versions)
        if chance.random() < 0.8:
            state = state.published(Epoch(epoch), dict(by_worker(homes(state))))
            assert all(handover.stage is BUILDING for handover in state.handovers)


# -- new workers


def come(held: Mapping[tuple[str, int], int | None], **origins: Mapping[int, int]) -> Seen:
    """Six workers instead of three, on three executors."""
    found = {
        WorkerId(int(name[1:])): {WorkerId(worker): bins for worker, bins in one.items()}
        for name, one in origins.items()
    }
    return replace(seen(1, held=held, workers=6), origins=found)


def test_new_workers_go_to_where_most_of_their_bins_are() -> None:
    origins = {"w3": {2: 5, 0: 1}, "w4": {0: 3}, "w5": {1: 1}}
    assert homes(placed().begin(come({}, **origins)))[3:] == ("2", "0", "1")


def test_new_workers_go_to_where_a_replica_of_their_bins_is() -> None:
    """Workers 0 and 1 have theirs on executor 2; that of worker 2, on 0, is too old to count."""
    held = {("2", 0): 0, ("2", 1): 0, ("0", 2): None}
    origins = {"w3": {0: 4, 1: 4}, "w4": {2: 9}, "w5": {}}
    assert homes(placed().begin(come(held, **origins)))[3:5] == ("2", "0")


def test_no_executor_gets_more_new_workers_for_what_it_has() -> None:
    origins = {"w3": {2: 1}, "w4": {2: 1}, "w5": {2: 1}}
    assert sorted(homes(placed().begin(come({}, **origins)))[3:]) == ["0", "1", "2"]
