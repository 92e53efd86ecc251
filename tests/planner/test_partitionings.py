import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError, InfeasibleError
from godwit.planner.inputs import limit_of
from godwit.planner.partitionings import Balance, heaviest_part, state_moved
from tests.support import planner_model as model

TAUS = st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0, 3.0])


def test_the_papers_setting_has_113_023_partitionings_in_which_every_node_has_a_task() -> None:
    busy = idle = 0
    for nodes in (8, 10, 12, 14, 16):
        balance = Balance.of(np.ones(64), nodes, 0.2)
        stops = balance.partitionings()
        assert len(stops) == balance.count()
        idle += int(np.count_nonzero(stops[:, -2] == 64))
        busy += int(np.count_nonzero(stops[:, -2] < 64))
    assert (busy, idle) == (113_023, 79)


def test_counts_need_no_enumeration() -> None:
    assert sum(Balance.of(np.ones(64), n, 0.3).count() for n in range(8, 17)) > 150_000_000


@given(st.data(), st.integers(1, 7), st.integers(1, 5), TAUS)
def test_partitionings_are_all_that_are_balanced(
    data: st.DataObject, tasks: int, nodes: int, tau: float
) -> None:
    load = data.draw(model.weights(tasks))
    wanted = model.balanced(load, nodes, tau)
    if not wanted:
        with pytest.raises(InfeasibleError):
            Balance.of(load, nodes, tau)
        return
    balance = Balance.of(load, nodes, tau)
    stops = balance.partitionings()
    assert [tuple(row) for row in stops.tolist()] == wanted
    assert balance.count() == len(wanted)
    assert (heaviest_part(load, stops) <= limit_of(np.array(load), nodes, tau) * (1 + 1e-12)).all()


@given(st.data(), st.integers(1, 7), st.integers(1, 5))
def test_an_infeasible_balance_names_the_heaviest_task_and_the_least_tau(
    data: st.DataObject, tasks: int, nodes: int
) -> None:
    load = data.draw(model.weights(tasks))
    if model.balanced(load, nodes, 0.0):
        return
    with pytest.raises(InfeasibleError) as found:
        Balance.of(load, nodes, 0.0)
    error = found.value
    assert load[error.task] == max(load)
    assert Balance.of(load, nodes, error.tau + 1e-5).count()
    if error.tau > 1e-4:
        with pytest.raises(InfeasibleError):
            Balance.of(load, nodes, error.tau - 1e-4)


@given(st.data(), st.integers(1, 9))
def test_state_moved_is_that_of_a_maximum_matching(data: st.DataObject, tasks: int) -> None:
    size = data.draw(model.weights(tasks))
    cuts = st.lists(st.integers(1, tasks), max_size=5).map(lambda each: [*sorted(each), tasks])
    origin, target = data.draw(cuts), data.draw(cuts)
    found = state_moved(origin, np.array([target], np.uint16), size)[0]
    assert found == pytest.approx(model.moved(tuple(origin), tuple(target), size), abs=1e-9)


def test_refuses_what_is_no_balance() -> None:
    for load, nodes, tau in (([], 1, 0.1), ([1.0], 0, 0.1), ([1.0], 1, -0.1), ([-1.0], 1, 0.1)):
        with pytest.raises(ConfigError):
            Balance.of(load, nodes, tau)
