"""`single_step` is optimal, keeps the limit, and says when nothing can."""

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from godwit.errors import ConfigError, InfeasibleError
from godwit.model.routing import Routing
from godwit.planner import Assignment, intervals_of, single_step
from tests.support.brute_force import SLACK, Instance, instance, most_kept, partitionings


def check(given: Instance, found: Assignment) -> None:
    """It is an assignment to the wanted nodes, within the limit, and its numbers are true."""
    n, m = len(given.intervals), len(given.load)
    kept = [one for one in found.intervals if one is not None]
    assert len(found.intervals) == max(n, given.nodes)
    assert len(kept) == given.nodes
    tiles = sorted(one for one in kept if one[0] < one[1])
    assert [0, *[stop for _, stop in tiles]] == [*[start for start, _ in tiles], m]
    assert all(0 <= start <= stop <= m for start, stop in kept)
    before = np.empty(m, np.int64)
    for node, (start, stop) in enumerate(given.intervals):
        before[start:stop] = node
    stays = before == found.owners
    assert found.gain == pytest.approx(np.array(given.size)[stays].sum())
    assert found.cost == pytest.approx(np.array(given.size)[~stays].sum())
    assert found.max_load == pytest.approx(max(sum(given.load[a:b]) for a, b in kept))
    assert found.max_load <= (1 + given.tau) * sum(given.load) / given.nodes * SLACK


@pytest.mark.parametrize("seed", range(20))
def test_equals_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        one = instance(rng)
        candidates = list(partitionings(one.load, one.nodes, one.tau))
        if candidates:
            found = single_step(*one.arguments)
            check(one, found)
            best = max(most_kept(one.intervals, parts, one.size) for parts in candidates)
            assert found.gain == pytest.approx(best), one
        else:
            with pytest.raises(InfeasibleError):
                single_step(*one.arguments)


def refusal(one: Instance) -> InfeasibleError | None:
    try:
        single_step(*one.arguments)
    except InfeasibleError as error:
        return error
    return None


def test_the_smallest_tau_is_the_smallest() -> None:
    rng = random.Random(0)
    refused = 0
    for one in (instance(rng) for _ in range(500)):
        if error := refusal(one):
            refused += 1
            heaviest = [
                max(sum(one.load[a:b]) for a, b in parts)
                for parts in partitionings(one.load, one.nodes, 1e9)
            ]
            mean = sum(one.load) / one.nodes
            assert error.tau == pytest.approx(min(heaviest) / mean - 1)
            assert error.load == one.load[error.task] == max(one.load)
            check(replace(one, tau=error.tau), single_step(*one.arguments[:-1], error.tau))
    assert refused > 100


@pytest.mark.parametrize("seed", range(10))
def test_equals_the_best_matching_of_all_partitionings_of_more_nodes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(6):
        one = instance(rng, tasks=9, nodes=6)
        gains = [
            float(kept[linear_sum_assignment(kept, maximize=True)].sum())
            for parts in partitionings(one.load, one.nodes, one.tau)
            for kept in [_kept(one, parts)]
        ]
        if gains:
            assert single_step(*one.arguments).gain == pytest.approx(max(gains)), one


def _kept(one: Instance, parts: list[tuple[int, int]]) -> Any:
    sizes = np.concatenate([[0.0], np.cumsum(one.size)])
    old, new = np.array(one.intervals), np.array(parts)
    start = np.maximum(old[:, None, 0], new[None, :, 0])
    stop = np.minimum(old[:, None, 1], new[None, :, 1])
    return np.where(start < stop, sizes[stop] - sizes[np.minimum(start, stop)], 0.0)


WEIGHTS = st.one_of(st.integers(0, 10), st.floats(0, 10, allow_subnormal=False))


@given(data=st.data(), m=st.integers(1, 40), tau=st.floats(0, 3))
def test_any_instance_is_assigned_within_the_limit_or_refused(
    data: st.DataObject, m: int, tau: float
) -> None:
    load = data.draw(st.lists(WEIGHTS, min_size=m, max_size=m))
    size = data.draw(st.lists(WEIGHTS, min_size=m, max_size=m))
    cuts = sorted(data.draw(st.lists(st.integers(0, m), max_size=8)))
    intervals = data.draw(st.permutations(list(pairwise([0, *cuts, m]))))
    one = Instance(intervals, data.draw(st.integers(1, 9)), load, size, tau)
    if error := refusal(one):
        assert error.tau > tau
        one = replace(one, tau=error.tau)
    check(one, single_step(*one.arguments))


def test_the_paper_s_example_of_two_migrations() -> None:
    # Table 3 without its slip: 9, 2, 9 costs 4, and 4 more at the second migration.
    first = single_step([(0, 13), (13, 20)], 3, [1] * 20, [1] * 20, 0.4)
    assert first.cost == 4


def test_a_node_without_tasks_is_kept_with_an_empty_interval() -> None:
    start, stop = single_step([(0, 1), (1, 1)], 2, [1], [1], 1.0).intervals[1] or (0, 1)
    assert start == stop


def test_any_node_may_be_removed() -> None:
    found = single_step([(0, 2), (2, 4), (4, 6)], 2, [1] * 6, [9, 9, 1, 1, 9, 9], 0.0)
    assert found.intervals == ((0, 3), None, (3, 6))


def test_no_tasks_are_no_trouble() -> None:
    assert single_step([(0, 0)], 2, [], [], 0.0).intervals == ((0, 0), (0, 0))


def test_equal_shares_are_within_tau_zero_in_spite_of_rounding() -> None:
    for m in (3, 7, 30, 1000):
        found = single_step([(0, m)], m, [0.1] * m, [1] * m, 0.0)
        assert found.max_load == 0.1
        assert found.cost == m - 1


def test_the_refusal_names_the_heaviest_task_and_a_tau_that_works() -> None:
    with pytest.raises(InfeasibleError, match=r"task, 2, has 4\. .* is 0\.333334$") as caught:
        single_step([(0, 3)], 2, [1, 1, 4], [1, 1, 1], 0.1)
    assert caught.value.task == 2
    assert isinstance(caught.value, ValueError)
    assert single_step([(0, 3)], 2, [1, 1, 4], [1, 1, 1], 0.333334).max_load == 4


NAN = float("nan")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([(0, 2)], 1, [1, 2, 3], [1, 2, 3], 0), "task 2 is in the interval of no node"),
        (([(1, 3)], 1, [1, 2, 3], [1, 2, 3], 0), "task 0 is in the interval of no node"),
        (([(0, 1), (2, 3)], 1, [1] * 3, [1] * 3, 0), "task 1 is in the interval of no node"),
        (([(1, 3), (0, 2)], 1, [1] * 3, [1] * 3, 0), "task 1 is in the intervals of nodes 1 and 0"),
        (([(0, 4)], 1, [1] * 3, [1] * 3, 0), r"interval \(0, 4\); it must be within \(0, 3\)"),
        (([(2, 1)], 1, [1] * 3, [1] * 3, 0), r"interval \(2, 1\)"),
        (([(0, 3), None], 1, [1] * 3, [1] * 3, 0), "node 1 has None for an interval"),
        (([(0, 1.5)], 1, [1], [1], 0), "must be an integer, not 1.5"),
        (([], 1, [], [], 0), "no current node"),
        (([(0, 3)], 0, [1] * 3, [1] * 3, 0), "at least 1, not 0"),
        (([(0, 3)], 1.5, [1] * 3, [1] * 3, 0), "must be an integer, not 1.5"),
        (([(0, 3)], 1, [1] * 3, [1] * 2, 0), "3 loads and 2 sizes"),
        (([(0, 3)], 1, [1, -1, 1], [1] * 3, 0), "task 1 has load -1.0"),
        (([(0, 3)], 1, [1] * 3, [1, 1, NAN], 0), "task 2 has size nan"),
        (([(0, 3)], 1, [[1] * 3], [1] * 3, 0), r"load must have one number a task"),
        (([(0, 3)], 1, ["a"] * 3, [1] * 3, 0), "the load of every task must be a number"),
        (([(0, 3)], 1, [1e308] * 3, [1] * 3, 0), "more than a float can hold"),
        (([(0, 3)], 1, [1] * 3, [1] * 3, -0.1), "tau must be a finite number from 0 on"),
        (([(0, 3)], 1, [1] * 3, [1] * 3, NAN), "tau must be a finite number from 0 on"),
        (([(0, 3)], 1, [1] * 3, [1] * 3, "x"), "tau must be a number"),
    ],
)
def test_a_mistake_is_one_clear_error(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        single_step(*arguments)


def test_a_routing_of_intervals_in_any_order() -> None:
    routing = Routing(np.array([2, 2, 2, 0, 3, 3, 3, 3]), 5)
    assert intervals_of(routing) == [(3, 4), (0, 0), (0, 3), (4, 8), (0, 0)]


def test_a_routing_without_intervals_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"worker 1 are no interval.*`scattered`"):
        intervals_of(Routing(np.array([0, 1, 2, 1]), 3))
