from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.errors import ConfigError, InfeasibleError
from godwit.planner.chain import Chain
from godwit.planner.iteration import project
from godwit.planner.markov import markov_step
from godwit.planner.projected import Problem
from godwit.planner.task_merging import merge_tasks
from tests.support import planner_model as model

CHAIN = Chain((2, 3, 4), ((0.3, 0.6, 0.1), (0.3, 0.4, 0.3), (0.1, 0.5, 0.4)))  # Table 4


@settings(max_examples=60)
@given(st.data(), model.chains(), st.integers(1, 6), st.sampled_from([0.0, 0.8]))
def test_a_step_is_the_minimum_over_all_balanced_partitionings(
    data: st.DataObject, chain: Chain, tasks: int, gamma: float
) -> None:
    """With gamma = 0 that is the least state moved: the optimal single step."""
    load, size = data.draw(model.weights(tasks)), data.draw(model.weights(tasks))
    tau = model.least_tau(load, chain.nodes)
    projected = project(Problem.of(chain, load, size, tau, gamma))
    cuts = sorted(data.draw(st.lists(st.integers(0, tasks), max_size=4)))
    intervals = data.draw(st.permutations(list(pairwise([0, *cuts, tasks]))))
    nodes = data.draw(st.sampled_from(chain.nodes))

    step = markov_step(intervals, nodes, load, size, tau, projected)

    costs = model.projected(chain, load, size, tau, gamma)
    origin = tuple(sorted(stop for start, stop in intervals if start < stop))
    best = min(
        model.moved(origin, row, size) + gamma * costs[row]
        for row in model.balanced(load, nodes, tau)
    )
    assert step.cost + gamma * step.projected == pytest.approx(best, abs=1e-7)
    kept = [each for each in step.intervals if each is not None]
    assert len(kept) == nodes
    assert len(step.intervals) == max(nodes, len(intervals))
    stays = sum(
        sum(size[max(old[0], new[0]) : min(old[1], new[1])])
        for old, new in zip(intervals, step.intervals, strict=False)
        if new is not None and max(old[0], new[0]) < min(old[1], new[1])
    )
    assert step.gain == pytest.approx(stays, abs=1e-9)
    assert step.cost + step.gain == pytest.approx(sum(size), abs=1e-9)
    assert sorted(task for start, stop in kept for task in range(start, stop)) == list(range(tasks))
    heaviest = max(sum(load[start:stop]) for start, stop in kept)
    assert step.max_load == pytest.approx(heaviest, abs=1e-9)


def test_the_migrations_to_come_change_the_step() -> None:
    """Steps with a view to the migrations to come move less in all than steps without."""
    ones = np.ones(12)
    short = project(Problem.of(CHAIN, ones, ones, 0.5, 0.0))
    far = project(Problem.of(CHAIN, ones, ones, 0.5, 0.9))
    total = {0.0: 0.0, 0.9: 0.0}
    for projected in (short, far):
        rng = np.random.default_rng(1)
        for _ in range(30):
            intervals, nodes = [(0, 6), (6, 12)], 2
            for _ in range(8):
                nodes = int(rng.choice(CHAIN.nodes, p=CHAIN.matrix[CHAIN.nodes.index(nodes)]))
                step = markov_step(intervals, nodes, ones, ones, 0.5, projected)
                intervals = [each for each in step.intervals if each is not None]
                total[projected.problem.gamma] += step.cost
    assert total[0.9] < total[0.0]


def test_balance_is_that_of_the_load_now() -> None:
    ones = np.ones(8)
    projected = project(Problem.of(CHAIN, ones, ones, 0.5, 0.8))
    load = np.array([3.0, 1, 1, 1, 1, 1, 1, 1])
    step = markov_step([(0, 4), (4, 8)], 2, load, ones, 0.0, projected)
    assert step.max_load == 5
    with pytest.raises(InfeasibleError, match=r"a tau of at least 0\.8"):
        markov_step([(0, 4), (4, 8)], 2, [9, 0, 0, 0, 0, 0, 0, 1], ones, 0.1, projected)


def test_larger_state_has_larger_projected_costs() -> None:
    ones = np.ones(8)
    projected = project(Problem.of(CHAIN, ones, ones, 0.5, 0.8))
    one = markov_step([(0, 4), (4, 8)], 3, ones, ones, 0.5, projected)
    many = markov_step([(0, 4), (4, 8)], 3, ones, 1000 * ones, 0.5, projected)
    assert many.intervals == one.intervals
    assert (many.cost, many.projected) == pytest.approx((1000 * one.cost, 1000 * one.projected))


def test_with_merged_tasks_the_state_moved_is_that_of_the_tasks_themselves() -> None:
    rng = np.random.default_rng(2)
    load, size = rng.random(100), rng.random(100)
    problem = merge_tasks(CHAIN, load, size, 0.5, 0.8, partitionings=300)
    projected = project(problem)
    intervals = [(0, 37), (37, 100)]
    step = markov_step(intervals, 3, load, size, 0.5, projected)
    stops = sorted(each[1] for each in step.intervals if each is not None)
    assert set(stops) <= set(problem.edges)
    assert step.cost == pytest.approx(model.moved((37, 100), tuple(stops), size.tolist()))


def test_nodes_that_were_removed_stay_so() -> None:
    ones = np.ones(8)
    projected = project(Problem.of(CHAIN, ones, ones, 0.5, 0.8))
    step = markov_step([None, (4, 8), None, (0, 4)], 3, ones, ones, 0.5, projected)
    assert [interval is None for interval in step.intervals] == [True, False, True, False, False]
    assert step.cost + step.gain == 8


@pytest.mark.parametrize(
    ("intervals", "nodes", "tasks", "message"),
    [
        ([(0, 4), (4, 8)], 5, 8, "not for 5; compute them with a chain that knows 5"),
        ([(0, 4), (4, 9)], 2, 9, "for 8 tasks, not for 9"),
        ([(0, 4), (5, 8)], 2, 8, "scattered"),
        ([(0, 5), (4, 8)], 2, 8, "scattered"),
        ([(0, 4)], 2, 8, "scattered"),
    ],
)
def test_refuses_what_it_cannot_plan(
    intervals: list[tuple[int, int]], nodes: int, tasks: int, message: str
) -> None:
    projected = project(Problem.of(CHAIN, np.ones(8), np.ones(8), 0.5, 0.8))
    with pytest.raises(ConfigError, match=message):
        markov_step(intervals, nodes, np.ones(tasks), np.ones(tasks), 0.5, projected)
