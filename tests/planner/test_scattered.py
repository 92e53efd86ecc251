"""`scattered` is the best placement of few bins, and a proven good one of many."""

import random
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.errors import ConfigError, InfeasibleError
from godwit.model.routing import Routing
from godwit.planner import BinAssignment, scattered, single_step
from godwit.planner.shedding import cover, least
from tests.support.brute_force import SLACK, instance


def cheapest(
    owners: Sequence[int],
    workers: int,
    load: Sequence[float],
    size: Sequence[float],
    tau: float,
    drained: list[int],
    capacity: list[float] | None,
    most_moves: int | None,
) -> float | None:
    """The least cost of all placements."""
    fresh = max([*owners, *drained]) + 1
    allowed = [worker for worker in range(max(owners) + 1) if worker not in drained]
    allowed += range(fresh, fresh + workers - len(allowed))
    given = capacity or [1.0] * (max(allowed) + 1)
    whole = sum(given[worker] for worker in allowed) if capacity else workers
    limit = [(1 + tau) * sum(load) * one / whole * SLACK for one in given]
    costs = []
    for after in product(allowed, repeat=len(owners)):
        loads = [0.0] * (max(allowed) + 1)
        for worker, weight in zip(after, load, strict=True):
            loads[worker] += weight
        moved = [bin for bin, worker in enumerate(after) if worker != owners[bin]]
        if (
            len(set(after)) <= workers
            and all(loads[worker] <= limit[worker] for worker in allowed)
            and (most_moves is None or len(moved) <= most_moves)
        ):
            costs.append(sum(size[bin] for bin in moved))
    return min(costs, default=None)


@pytest.mark.parametrize("seed", range(6))
def test_equals_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        bins = rng.randint(1, 6)
        owners = [rng.randrange(3) for _ in range(bins)]
        drained = [worker for worker in range(3) if rng.random() < 0.2]
        left = {worker for worker in range(max(owners) + 1) if worker not in drained}
        workers = rng.randint(1, 4)
        weighted = workers >= len(left) and rng.random() < 0.4
        capacity = [rng.choice([1.0, 2.0, 3.0]) for _ in range(9)] if weighted else None
        load = [rng.choice([0, 1, 2, 3, 5]) for _ in range(bins)]
        size = [rng.choice([0, 1, 2, 5, 7]) for _ in range(bins)]
        tau, most_moves = rng.choice([0, 0.1, 0.2, 0.5, 1, 2]), rng.choice([None, None, 1, 2])
        best = cheapest(owners, workers, load, size, tau, drained, capacity, most_moves)
        options: dict[str, Any] = {
            "drained": drained,
            "capacity": capacity,
            "most_moves": most_moves,
        }
        if best is None:
            with pytest.raises(InfeasibleError):
                scattered(owners, workers, load, size, tau, **options)
        else:
            found = scattered(owners, workers, load, size, tau, **options)
            assert found.cost == pytest.approx(best), (owners, workers, load, size, tau, options)
            assert found.gap == pytest.approx(0, abs=1e-6)
            if capacity is None:
                assert_settled(found, owners, load, (1 + tau) * sum(load) / workers)


def assert_settled(
    found: BinAssignment, owners: Sequence[int], load: Sequence[float], limit: float
) -> None:
    """No bin has moved that could have stayed, not even one without state."""
    loads = np.bincount(found.owners, load, minlength=max(owners) + 1)
    for bin, home in enumerate(owners):
        if found.owners[bin] != home and home in found.owners:
            assert loads[home] + load[bin] > limit


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    bins, current = draw(st.integers(200, 2000)), draw(st.integers(1, 12))
    skew = draw(st.sampled_from([0.1, 0.5, 1.0]))
    contiguous = draw(st.booleans())
    owners = (
        np.sort(rng.integers(0, current, bins)) if contiguous else rng.integers(0, current, bins)
    )
    return {
        "owners": owners,
        "workers": draw(st.integers(3, 14)),
        "load": rng.lognormal(0, skew, bins),
        "size": rng.lognormal(0, 1, bins) * (rng.random(bins) < draw(st.sampled_from([0.5, 1.0]))),
        "tau": draw(st.sampled_from([0.1, 0.3])),
    }


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_many_bins_are_within_the_limit_and_cost_no_more_than_intervals(
    problem: dict[str, Any],
) -> None:
    owners, load, size = problem["owners"], problem["load"], problem["size"]
    limit = (1 + problem["tau"]) * load.sum() / problem["workers"]
    if load.max() > limit:
        with pytest.raises(InfeasibleError, match="The heaviest bin"):
            scattered(**problem)
        return
    found = scattered(**problem)
    check(found, owners, load, size)
    assert found.max_load <= limit * SLACK
    assert len(np.unique(found.owners)) <= problem["workers"]
    assert found.bound <= found.cost
    if (np.diff(owners) >= 0).all():
        ends = np.searchsorted(owners, np.arange(owners.max() + 2)).tolist()
        try:
            rival = single_step(list(pairwise(ends)), *list(problem.values())[1:])
        except InfeasibleError:
            return
        assert found.bound <= found.cost <= rival.cost * SLACK


def check(found: BinAssignment, owners: Any, load: Any, size: Any) -> None:
    """Its numbers are true."""
    moved = found.owners != owners
    assert found.moves == moved.sum()
    assert found.cost == pytest.approx(size[moved].sum())
    assert found.gain == pytest.approx(size[~moved].sum())
    assert found.max_load == pytest.approx(np.bincount(found.owners, load).max())


def test_few_bins_cost_no_more_than_intervals() -> None:
    rng = random.Random(1)
    for one in (instance(rng) for _ in range(60)):
        try:
            rival = single_step(*one.arguments)
        except InfeasibleError:
            continue
        owners = np.empty(len(one.load), np.int64)
        for node, (start, stop) in enumerate(one.intervals):
            owners[start:stop] = node
        assert scattered(owners, *one.arguments[1:]).cost <= rival.cost * SLACK


def test_many_bins_with_options() -> None:
    rng = np.random.default_rng(1)
    owners = rng.integers(0, 8, 4096)
    load, size = rng.lognormal(0, 0.5, 4096), rng.lognormal(0, 1, 4096)
    capacity = [1.0, 1, 1, 1, 2, 2, 2, 2, 4]
    found = scattered(owners, 7, load, size, 0.1, drained=[0, 3], capacity=capacity)
    check(found, owners, load, size)
    assert set(found.owners.tolist()) == {1, 2, 4, 5, 6, 7, 8}
    shares = np.bincount(found.owners, load) / load.sum()
    wanted = np.array([0, 1, 1, 0, 2, 2, 2, 2, 4]) / 14
    assert (shares <= 1.1 * wanted * SLACK).all()
    assert found.gap < 0.01


def test_fewer_moves_cost_more_state() -> None:
    rng = np.random.default_rng(2)
    owners = np.repeat(np.arange(4), 512)
    load, size = rng.lognormal(0, 1, 2048), rng.lognormal(0, 1, 2048)
    free = scattered(owners, 6, load, size, 0.1)
    capped = scattered(owners, 6, load, size, 0.1, most_moves=free.moves * 3 // 4)
    assert capped.moves <= free.moves * 3 // 4
    assert free.cost < capped.cost
    assert capped.max_load <= 1.1 * load.sum() / 6 * SLACK
    with pytest.raises(InfeasibleError, match="at most 3 moves"):
        scattered(owners, 6, load, size, 0.1, most_moves=3)


def test_heavy_bins_push_light_ones_out() -> None:
    # Neither of the two others has room for the bin of load 120, before it gives light ones away.
    owners = [0, 0, *[1] * 300, *[2] * 300]
    load = [150.0, 120.0, *[0.5] * 600]
    found = scattered(owners, 3, load, [1.0] * 602, 0.1)
    assert found.max_load <= 1.1 * sum(load) / 3 * SLACK
    assert found.owners[0] != found.owners[1]


def test_what_can_stay_stays() -> None:
    owners = np.arange(1000) % 7
    found = scattered(owners, 7, np.ones(1000), np.zeros(1000), 0.1)
    assert found.moves == 0


def test_the_refusal_names_the_heaviest_bin_and_a_tau_that_works() -> None:
    load = [1.0] * 600 + [300.0]
    with pytest.raises(InfeasibleError, match="heaviest bin, 600") as caught:
        scattered([0] * 601, 4, load, [1.0] * 601, 0.1)
    found = scattered([0] * 601, 4, load, [1.0] * 601, caught.value.tau)
    assert found.max_load == 300


@given(data=st.data(), bins=st.integers(1, 8))
def test_a_cover_is_enough_and_not_below_its_bound(data: st.DataObject, bins: int) -> None:
    weights = st.lists(st.integers(0, 9), min_size=bins, max_size=bins)
    load, price = np.array(data.draw(weights), float), np.array(data.draw(weights), float)
    needed = data.draw(st.floats(0.5, max(0.5, float(load.sum()))))
    chosen = cover(load, price, needed)
    assert load[chosen].sum() >= min(needed, load.sum())
    best = min(
        float(price[list(some)].sum())
        for some in (np.flatnonzero(bits) for bits in product([0, 1], repeat=bins))
        if load[list(some)].sum() >= min(needed, load.sum())
    )
    assert least(load, price, needed) <= best + 1e-9 <= price[chosen].sum() + 2e-9


def test_a_placement_is_a_routing() -> None:
    routing = Routing.even(8, 2)
    found = scattered(routing.owners, 4, np.ones(8), np.ones(8), 0.0)
    assert found.routing(4).workers == 4
    assert found.cost == 4


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([0, 1], 2, [1] * 3, [1] * 3, 0), {}, "give one worker for 3 bins"),
        (([0, 0.5], 2, [1] * 2, [1] * 2, 0), {}, "workers must be integers"),
        (([0, -1], 2, [1] * 2, [1] * 2, 0), {}, "bin 1 has worker -1"),
        (([0, 1], 2, [1] * 2, [1] * 2, 0), {"drained": [-1]}, "drained names worker -1"),
        (([0, 1], 2, [1] * 2, [1] * 2, 0), {"capacity": [1]}, "a number for each of 2 workers"),
        (([0, 1], 2, [1] * 2, [1] * 2, 0), {"capacity": [1, 0]}, "worker 1 has the capacity 0.0"),
        (([0, 1], 1, [1] * 2, [1] * 2, 0), {"capacity": [1, 2]}, "name those in `drained`"),
        (([0, 1], 2, [1] * 2, [1] * 2, 0), {"most_moves": -1}, "at most -1 bins"),
    ],
)
def test_a_mistake_is_one_clear_error(
    arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        scattered(*arguments, **options)
