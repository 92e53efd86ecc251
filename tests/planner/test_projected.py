from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.errors import ConfigError, DamagedFileError, InfeasibleError
from godwit.planner import nearest as nearest_module
from godwit.planner import work as work_module
from godwit.planner.chain import Chain
from godwit.planner.iteration import SweepProgress, project
from godwit.planner.nearest import Targets, from_the_end, nearest
from godwit.planner.partitionings import Balance
from godwit.planner.projected import Problem, Projected
from godwit.planner.task_merging import excess, merge_tasks
from tests.support import planner_model as model

CHAIN = Chain((2, 3, 4), ((0.3, 0.6, 0.1), (0.3, 0.4, 0.3), (0.1, 0.5, 0.4)))  # Table 4
SKEWED = [3.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0]


def small() -> Problem:
    return Problem.of(CHAIN, SKEWED, [1.0, 2.0, 1.0, 1.0, 0.0, 3.0, 1.0, 1.0], 0.5, 0.8)


@given(st.data(), st.integers(1, 7), st.integers(1, 4), st.integers(1, 4))
def test_nearest_is_the_minimum_over_all_targets(
    data: st.DataObject, tasks: int, nodes: int, after: int
) -> None:
    size = data.draw(model.weights(tasks))
    origins, stops = (Balance.of(np.ones(tasks), n, 9.0).partitionings() for n in (nodes, after))
    price = data.draw(st.lists(st.floats(0, 9), min_size=len(stops), max_size=len(stops)))
    order = from_the_end(origins, tasks)
    moved, target = nearest(
        origins[order], Targets.of(stops, tasks), np.array(size), np.array(price)
    )
    for row, state, index in zip(origins[order].tolist(), moved, target, strict=True):
        costs = [model.moved(tuple(row), tuple(to), size) for to in stops.tolist()]
        assert state == pytest.approx(costs[index], abs=1e-9)
        assert state + price[index] == pytest.approx(min(np.add(costs, price)), abs=1e-9)


def test_many_origins_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    stops = Balance.of(np.ones(8), 3, 0.9).partitionings()
    origins = stops[from_the_end(stops, 8)]
    targets, size, price = Targets.of(stops, 8), np.arange(8.0), np.sin(np.arange(len(stops)))
    whole = nearest(origins, targets, size, price)
    monkeypatch.setattr(nearest_module, "MAX_CELLS", 50)
    parts = nearest(origins, targets, size, price)
    assert np.array_equal(whole[0], parts[0])
    assert np.array_equal(whole[1], parts[1])


@settings(max_examples=40)
@given(st.data(), model.chains(), st.integers(1, 6), st.sampled_from([0.0, 0.5, 0.8]))
def test_costs_are_those_of_plain_value_iteration(
    data: st.DataObject, chain: Chain, tasks: int, gamma: float
) -> None:
    load, size = data.draw(model.weights(tasks)), data.draw(model.weights(tasks))
    tau = model.least_tau(load, chain.nodes)
    wanted = model.projected(chain, load, size, tau, gamma)
    found = project(Problem.of(chain, load, size, tau, gamma))
    assert found.count == len(wanted)
    for row, cost in wanted.items():
        assert found.of(row) == pytest.approx(cost, abs=1e-8)


def test_costs_are_within_the_bound_and_the_bound_within_the_tolerance() -> None:
    problem = small()
    wanted = model.projected(CHAIN, problem.load, problem.size, problem.tau, problem.gamma)
    rough, fine = project(problem, tolerance=0.5), project(problem)
    assert fine.bound <= 1e-9 * problem.total < rough.bound <= 0.5 * problem.total
    assert rough.sweeps < fine.sweeps
    for found in (rough, fine):
        farthest = max(abs(found.of(row) - cost) for row, cost in wanted.items())
        assert farthest <= found.bound + 1e-9


class StoppedError(Exception):
    """What ends a computation in a test."""


def test_a_restart_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "BLOCK", 5)
    whole = project(small())
    solved: list[int] = []

    def three(solve: Callable[[int], int], blocks: Sequence[int]) -> Iterable[int]:
        for block in blocks[:3]:
            solved.append(block)
            yield solve(block)
        if len(blocks) > 3:
            raise StoppedError

    starts = 0
    while not (tmp_path / "projected.json").exists():
        starts += 1
        try:
            project(small(), tmp_path, run=three)
        except StoppedError:
            continue
    blocks = max(solved) + 1
    assert blocks > 3
    assert starts > 1
    assert len(solved) == blocks * whole.sweeps
    again = Projected.load(tmp_path)
    assert again.sweeps == whole.sweeps
    for nodes, cost in whole.cost.items():
        assert np.array_equal(again.cost[nodes], cost)


def test_what_is_finished_is_not_solved_again(tmp_path: Path) -> None:
    project(small(), tmp_path)

    def none(solve: Callable[[int], int], blocks: Sequence[int]) -> Iterable[int]:
        assert not blocks
        return []

    assert project(small(), tmp_path, run=none).bound <= 1e-9 * small().total


def test_progress_counts_every_block_of_every_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work_module, "BLOCK", 5)
    seen: list[SweepProgress] = []
    found = project(small(), progress=seen.append)
    blocks = seen[0].blocks
    assert [(p.sweep, p.done) for p in seen] == [
        (sweep, done) for sweep in range(found.sweeps) for done in range(1, blocks + 1)
    ]


def test_another_problem_is_refused_in_the_same_directory(tmp_path: Path) -> None:
    project(small(), tmp_path)
    with pytest.raises(ConfigError, match="another problem"):
        project(Problem.of(CHAIN, SKEWED, SKEWED, 0.5, 0.8), tmp_path)


def test_costs_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="make them with 'godwit project'"):
        Projected.load(tmp_path)
    with pytest.raises(ConfigError, match="none of the balanced"):
        project(small()).of([8, 8])
    with pytest.raises(ConfigError, match="none of the balanced"):
        project(small()).of([1, 2, 3, 4, 8])


def test_look_ups_know_stops_above_255() -> None:
    chain = Chain((1, 2), ((0.0, 1.0), (1.0, 0.0)))
    load = [0.0] * 255 + [1.0] + [0.0] * 255 + [1.0]
    found = project(Problem.of(chain, load, np.ones(512), 0.0, 0.5))
    for stops, cost in zip(found.stops[2], found.cost[2], strict=True):
        assert found.of(stops) == cost
    assert [256, 512] in found.stops[2].tolist()


def test_problems_too_large_to_enumerate_are_refused() -> None:
    chain = Chain((15, 16), ((0.0, 1.0), (1.0, 0.0)))
    with pytest.raises(ConfigError, match="coarsen"):
        Problem.of(chain, np.ones(64), np.ones(64), 0.5, 0.8)


@settings(max_examples=20)
@given(st.data(), model.chains(3), st.integers(5, 8))
def test_merged_tasks_cost_no_less_than_exact(
    data: st.DataObject, chain: Chain, tasks: int
) -> None:
    load, size = data.draw(model.weights(tasks)), data.draw(model.weights(tasks))
    tau = 1.0 + model.least_tau(load, chain.nodes)
    exact = project(Problem.of(chain, load, size, tau, 0.8))
    few = exact.count // 2
    try:
        problem = merge_tasks(chain, load, size, tau, 0.8, few)
    except InfeasibleError:
        return  # merged, they are too heavy for the balance
    coarse = project(problem)
    assert sum(problem.load) == pytest.approx(sum(load))
    assert sum(problem.size) == pytest.approx(sum(size))
    assert excess(coarse, exact).min() >= -1e-8


def test_merging_takes_as_many_tasks_as_the_limit_allows() -> None:
    chain = Chain((2, 3), ((0.0, 1.0), (1.0, 0.0)))
    problem = merge_tasks(chain, np.ones(1024), np.ones(1024), 0.2, 0.8, partitionings=500)
    count = sum(balance.count() for balance in problem.balances())
    assert 250 < count <= 500
    assert max(problem.load) <= 2 * min(problem.load)
