"""`sequence` is as cheap as the best of all series, and its parts follow on each other."""

import random
from itertools import product

import numpy as np
import pytest

from godwit.errors import ConfigError, InfeasibleError
from godwit.planner import Assignment, sequence, single_step
from tests.support.brute_force import SLACK, Instance, Interval, instance, most_kept, partitionings


def cheapest(one: Instance, counts: list[int], taus: list[float]) -> float | None:
    """The least cost of all series of partitionings, by trying each."""
    layers = [list(partitionings(one.load, n, tau)) for n, tau in zip(counts, taus, strict=True)]
    total = sum(one.size)
    costs = []
    known: dict[str, float] = {}
    for series in product(*layers):
        cost, before = 0.0, one.intervals
        for parts in series:
            step = f"{before}{parts}"
            if step not in known:
                known[step] = total - most_kept(before, parts, one.size)
            cost += known[step]
            before = parts
        costs.append(cost)
    return min(costs, default=None)


@pytest.mark.parametrize("seed", range(10))
def test_equals_exhaustive_search(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(15):
        one = instance(rng, tasks=5, nodes=3)
        counts = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
        taus = [rng.choice([0.2, 0.5, 1.0]) for _ in counts]
        best = cheapest(one, counts, taus)
        if best is None:
            with pytest.raises(InfeasibleError):
                sequence(one.intervals, counts, one.load, one.size, taus)
        else:
            found = sequence(one.intervals, counts, one.load, one.size, taus)
            assert sum(step.cost for step in found) == pytest.approx(best), (one, counts, taus)
            check(one, counts, taus, found)


def check(
    one: Instance, counts: list[int], taus: list[float], found: tuple[Assignment, ...]
) -> None:
    """Each step is balanced, has its number of nodes, and costs what it says."""
    before: list[Interval | None] = list(one.intervals)
    owners = np.empty(len(one.load), np.int64)
    for node, (start, stop) in enumerate(one.intervals):
        owners[start:stop] = node
    for step, count, tau in zip(found, counts, taus, strict=True):
        kept = [interval for interval in step.intervals if interval is not None]
        assert len(kept) == count
        assert step.max_load <= (1 + tau) * sum(one.load) / count * SLACK
        assert step.cost == pytest.approx(np.array(one.size)[owners != step.owners].sum())
        old = {node for node, interval in enumerate(before) if interval is not None}
        new = {node for node, interval in enumerate(step.intervals) if interval is not None}
        assert old <= new or new <= old
        assert all(node >= len(before) for node in new - old)
        before, owners = list(step.intervals), step.owners.astype(np.int64)


def test_looking_ahead_pays() -> None:
    """Two nodes, three, two: what single steps save first they pay for later."""
    rng = random.Random(4)
    won = 0
    for _ in range(30):
        load = [rng.choice([1.0, 2.0, 3.0]) for _ in range(12)]
        size = [rng.choice([1.0, 2.0, 5.0]) for _ in range(12)]
        now = [(0, 6), (6, 12)]
        try:
            ahead = sum(one.cost for one in sequence(now, [3, 2, 4], load, size, 0.5))
        except InfeasibleError:
            continue
        cost = 0.0
        for nodes in (3, 2, 4):
            step = single_step(now, nodes, load, size, 0.5)
            now = [one for one in step.intervals if one is not None]
            cost += step.cost
        assert ahead <= cost
        won += ahead < cost
    assert won > 0


def test_one_migration_is_a_single_step() -> None:
    rng = random.Random(3)
    for one in (instance(rng, tasks=12) for _ in range(50)):
        try:
            step = single_step(*one.arguments)
        except InfeasibleError:
            continue
        (found,) = sequence(one.intervals, [one.nodes], one.load, one.size, one.tau)
        assert found.cost == step.cost


def test_ids_are_not_used_again() -> None:
    first, second = sequence([(0, 2), (2, 4)], [1, 2], [1] * 4, [1] * 4, 0.0)
    assert None in first.intervals
    assert len(second.intervals) == 3
    assert [one is None for one in second.intervals[:2]] == [one is None for one in first.intervals]


def test_as_many_taus_as_migrations() -> None:
    with pytest.raises(ConfigError, match="2 migrations and 1 values of tau"):
        sequence([(0, 1)], [1, 1], [1], [1], [0.5])


def test_no_migration_is_no_assignment() -> None:
    assert sequence([(0, 1)], [], [1], [1], 0.5) == ()
