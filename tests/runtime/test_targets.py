"""Targets come from what was measured: the records of the last epochs, and the state of bins."""

from pathlib import Path

import numpy as np
import pytest

from godwit.errors import ConfigError, InfeasibleError
from godwit.log.history import History
from godwit.model.routing import Routing
from godwit.planner import intervals_of
from godwit.planner.chain import Chain
from godwit.planner.iteration import project
from godwit.planner.markov import markov_step
from godwit.planner.projected import Problem, Projected
from godwit.runtime.targets import PLANNERS, Measured, Planner, target
from tests.runtime.samples import simulate, words

BINS = 64


def measured(records: list[float] | None = None, bytes: float = 1.0) -> Measured:
    return Measured(np.array(records or [1.0] * BINS), np.full(BINS, bytes))


def loads(routing: Routing, what: Measured) -> list[float]:
    found: list[float] = np.bincount(routing.owners, what.load, routing.workers).tolist()
    return found


def test_records_are_counted_by_bin_and_newer_ones_count_for_more(tmp_path: Path) -> None:
    sim = simulate(tmp_path, workers=2, bins=16)
    sim.feed(words("a", "a", "a", "a"))
    sim.feed(words("b", "b", "b", "b"))
    found = Measured.of(History(tmp_path), "counts", 16)
    first, second = sorted(found.records[found.records > 0].tolist())
    assert found.records.sum() == pytest.approx(4.0)
    assert first / second == pytest.approx(0.8)
    assert found.bytes.sum() > 0


def test_a_query_without_records_is_balanced_by_state_or_bins() -> None:
    idle = Measured(np.zeros(BINS), np.arange(BINS, dtype=float))
    assert idle.load is idle.bytes
    assert Measured(np.zeros(BINS), np.zeros(BINS)).load.tolist() == [1.0] * BINS


@pytest.fixture(scope="module")
def projected() -> Projected:
    """Of 64 equal bins, with 1, 2, 3, 4 or 7 workers."""
    ones = np.ones(BINS)
    return project(Problem.of(Chain.learn([1, 2, 3, 4, 7, 1]), ones, ones, tau=0.1, gamma=0.8))


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_as_many_workers_as_wanted(planner: Planner, workers: int, projected: Projected) -> None:
    costs = projected if planner == "markov" else None
    even = Routing.even(BINS, 4)
    after = target(planner, even, measured(), workers=workers, projected=costs)
    if planner not in ("single-step", "markov"):  # which may empty any of them
        assert after.workers == workers
    used = np.bincount(after.owners)
    assert np.count_nonzero(used) == workers
    assert used.max() <= 1.1 * BINS / workers + 1


def test_a_hot_bin_is_left_alone_with_its_worker() -> None:
    hot = measured([100.0] + [1.0] * (BINS - 1))
    after = target("scattered", Routing.even(BINS, 2), hot)
    assert loads(after, hot) == [100.0, 63.0]
    with pytest.raises(InfeasibleError, match="heaviest bin, 0,"):
        target("scattered", Routing.even(BINS, 2), hot, tau=0.1)


def test_a_drained_worker_ends_without_bins() -> None:
    after = target("scattered", Routing.even(BINS, 4), measured(), drained=[1])
    assert after.workers == 4
    assert len(after.bins_of(1)) == 0
    assert max(loads(after, measured())) <= 1.1 * BINS / 3


def test_projected_costs_decide_between_equals(projected: Projected) -> None:
    """What a migration moves now and what those after it will move, together, are least."""
    even, what = Routing.even(BINS, 3), measured()
    after = target("markov", even, what, workers=4, projected=projected)
    step = markov_step(intervals_of(even), 4, what.load, what.bytes, 0.1, projected)
    assert after.owners.tolist() == step.owners.tolist()
    assert after.owners.tolist() != even.spread(4).owners.tolist()


def test_without_a_tau_projected_costs_bring_theirs_or_the_least(projected: Projected) -> None:
    hot = measured([40.0] + [1.0] * (BINS - 1))
    after = target("markov", Routing.even(BINS, 4), hot, projected=projected)
    assert max(loads(after, hot)) > 1.1 * 103 / 4
    with pytest.raises(InfeasibleError, match="use a tau of at least"):
        target("markov", Routing.even(BINS, 4), hot, tau=0.1, projected=projected)


def test_what_projected_costs_do_not_know_is_refused(projected: Projected) -> None:
    even = Routing.even(BINS, 2)
    with pytest.raises(ConfigError, match="godwit project"):
        target("markov", even, measured())
    with pytest.raises(ConfigError, match=r"are no interval.*plan with `scattered`"):
        target("markov", even.assign({0: 1, 63: 0}), measured(), projected=projected)
    with pytest.raises(ConfigError, match="for 1, 2, 3, 4, 7 nodes, not for 5"):
        target("markov", even, measured(), workers=5, projected=projected)
    few = Measured(np.ones(16), np.ones(16))
    with pytest.raises(ConfigError, match="projected for 64 tasks, not for 16"):
        target("markov", Routing.even(16, 2), few, projected=projected)


def test_workers_are_drained_one_after_the_other() -> None:
    after = Routing.even(BINS, 4)
    for worker in (3, 1):
        after = target("scattered", after, measured(), drained=[worker])
    assert np.bincount(after.owners, minlength=4).tolist() == [BINS / 2, 0, BINS / 2, 0]
    assert target("scattered", after, measured(), tau=0.2).owners.tolist() == after.owners.tolist()
    again = target("scattered", after, measured(), workers=4)
    assert np.bincount(again.owners).min() > 0


def test_what_cannot_be_is_refused() -> None:
    even = Routing.even(BINS, 2)
    with pytest.raises(ConfigError, match="there is no worker 2"):
        target("scattered", even, measured(), drained=[2])
    with pytest.raises(ConfigError, match="no worker would be left"):
        target("scattered", even, measured(), drained=[0, 1])
    with pytest.raises(ConfigError, match="plan with 'scattered'"):
        target("even", even, measured(), drained=[0])
    with pytest.raises(ConfigError, match="are no interval"):
        target("single-step", even.assign({0: 1, 63: 0}), measured())
    with pytest.raises(ConfigError, match="leave tau out"):
        target("even", even, measured(), tau=0.1)
    with pytest.raises(ConfigError, match="workers must be"):
        target("even", even, measured(), workers=0)
