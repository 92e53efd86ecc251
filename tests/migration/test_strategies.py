"""Every strategy ends at the target, and moves each bin once; matched is a maximum matching."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError
from godwit.migration.strategies import (
    UNREADY_EPOCHS,
    Strategy,
    all_at_once,
    batched,
    fluid,
    matched,
    paced,
    parse,
    sought,
    steps,
)
from godwit.model.routing import Move, Routing

STRATEGIES: list[Strategy] = [
    all_at_once(),
    fluid(),
    batched(1),
    batched(3),
    matched(),
    matched(gap=2),
    paced(),
    paced("+50 ms"),
]


@st.composite
def routings(draw: st.DrawFn, bins: int) -> Routing:
    workers = draw(st.integers(1, 5))
    owners = draw(st.lists(st.integers(0, workers - 1), min_size=bins, max_size=bins))
    return Routing(np.array(owners), workers)


PLANS = st.sampled_from([1, 2, 4, 16, 128]).flatmap(lambda n: st.tuples(routings(n), routings(n)))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@given(plan=PLANS)
def test_the_last_step_ends_at_the_target(
    strategy: Strategy, plan: tuple[Routing, Routing]
) -> None:
    routing, target = plan
    owners = routing.owners.copy()
    moved = Counter[int]()
    for step in steps(strategy, routing, target):
        for move in step:
            assert move == Move(move.bin, owners[move.bin], target.owners[move.bin])
            owners[move.bin] = move.target
            moved[move.bin] += 1
    assert owners.tolist() == target.owners.tolist()
    assert moved == Counter(move.bin for move in routing.moves_to(target))


def test_two_bins_of_one_worker_to_two_workers() -> None:
    routing, target = Routing(np.array([0, 0]), 3), Routing(np.array([1, 2]), 3)
    for strategy in STRATEGIES:
        assert sum(len(step) for step in steps(strategy, routing, target)) == 2


@given(plan=PLANS)
def test_a_matched_step_is_a_maximum_matching(plan: tuple[Routing, Routing]) -> None:
    routing, target = plan
    moves = list(routing.moves_to(target))
    chosen = [move for move in moves if move.bin in set(matched().step(*plan, None).tolist())]
    assert len({move.source for move in chosen}) == len(chosen)
    assert len({move.target for move in chosen}) == len(chosen)
    edges = {(move.source, move.target) for move in moves}
    largest = max(
        sum(pair in edges for pair in enumerate(places)) for places in permutations(range(5))
    )
    assert len(chosen) == largest


def test_steps_are_as_large_as_they_say() -> None:
    routing, target = Routing.even(16, 1), Routing.even(16, 4)
    assert [len(step) for step in steps(all_at_once(), routing, target)] == [12]
    assert [len(step) for step in steps(fluid(), routing, target)] == [1] * 12
    assert [len(step) for step in steps(batched(5), routing, target)] == [5, 5, 2]
    assert [len(step) for step in steps(matched(), routing, target)] == [1] * 12
    assert [len(step) for step in steps(matched(), target, target)] == []
    turned = Routing((target.owners + 1) % 4, 4)
    assert [len(step) for step in steps(matched(gap=2), target, turned)] == [4, 0, 0] * 3 + [4]


@given(plan=PLANS, size=st.integers(1, 50))
def test_every_step_of_a_batch_has_of_each_destination_its_share(
    plan: tuple[Routing, Routing], size: int
) -> None:
    """None is ahead of another by more than a bin, and each takes its bins in their order."""
    routing, target = plan
    step = batched(size).step(routing, target, None).tolist()
    to_get: dict[int, list[int]] = {}
    for move in routing.moves_to(target):
        to_get.setdefault(move.target, []).append(move.bin)
    got = {worker: [bin for bin in step if bin in bins] for worker, bins in to_get.items()}
    for worker, bins in to_get.items():
        assert got[worker] == bins[: len(got[worker])]
        for other, others in to_get.items():
            ahead = (len(got[worker]) - 0.5) / len(bins)
            assert ahead <= (len(got[other]) + 0.5) / len(others) + 1e-9


def test_in_a_batch_destinations_read_at_the_same_time() -> None:
    """In the order of their numbers, one after the other would: steps of 4, 4, 4 and 4 bins."""
    routing = Routing.even(32, 2)
    target = routing.spread(4)
    for step in steps(batched(4), routing, target):
        assert Counter(move.target for move in step) == {2: 2, 3: 2}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_names_are_parsed(strategy: Strategy) -> None:
    assert parse(str(strategy)) == strategy


@pytest.mark.parametrize("text", ["", "quick", "batched:x", "fluid:2", "batched:1:2"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="use paced"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batched", "batched needs a number of bins, such as batched:8"),
        ("batched:0", "at least one bin"),
        ("matched:-1", "cannot be -1 epochs"),
        ("paced:fast", "a share such as 20% or a time such as 50ms, not 'fast'"),
        ("paced:-5%", "not '-5%'"),
        ("paced:5", "not '5'"),
    ],
)
def test_senseless_numbers_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)


@given(plan=PLANS, data=st.data())
def test_a_paced_step_moves_what_its_destination_has(
    plan: tuple[Routing, Routing], data: st.DataObject
) -> None:
    routing, target = plan
    to_come = sought(routing, target)
    ready = {
        worker: data.draw(st.sets(st.sampled_from(segments)))
        for worker, segments in to_come.items()
    }
    moved = set(paced().step(routing, target, 0, ready).tolist())
    for move in routing.moves_to(target):
        first, last = move.bin * 64 // target.bins, ((move.bin + 1) * 64 - 1) // target.bins
        assert set(range(first, last + 1)) <= set(to_come[move.target])
        assert (move.bin in moved) == (set(range(first, last + 1)) <= ready[move.target])


def test_a_paced_migration_waits_for_its_destinations_but_not_for_ever() -> None:
    routing, target = Routing.even(256, 1), Routing.even(256, 2)
    epochs = [len(step) for step in steps(paced(), routing, target)]
    assert epochs == [0, *([0] * UNREADY_EPOCHS + [4]) * 32]
    spread = [len(step) for step in steps(paced(), routing, Routing.even(256, 4))]
    assert spread == [0, *([0] * UNREADY_EPOCHS + [12]) * 16]


def test_when_nobody_has_anything_a_paced_migration_takes_one_step() -> None:
    routing, target = Routing.even(256, 1), Routing.even(256, 2)
    assert len(paced().step(routing, target, None, None)) == 128
