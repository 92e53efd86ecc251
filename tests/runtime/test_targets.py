"""Targets come from what was measured: the records of the last epochs, and the state of bins."""

from pathlib import Path

import numpy as np
import pytest

from godwit.errors import ConfigError, InfeasibleError
from godwit.log.history import History
from godwit.model.routing import Routing
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


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_as_many_workers_as_wanted(planner: Planner, workers: int) -> None:
    after = target(planner, Routing.even(BINS, 4), measured(), workers=workers)
    if planner != "single-step":  # which may empty any of them
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
    with pytest.raises(ConfigError, match="workers must be"):
        target("even", even, measured(), workers=0)
