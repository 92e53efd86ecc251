"""The baselines do what they are named for."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError
from godwit.model.routing import Routing
from godwit.planner import even, hashed, hashed_cost, hot_bins, scattered

OWNERS = st.lists(st.integers(0, 5), min_size=1, max_size=40)


@given(owners=OWNERS, workers=st.integers(1, 8), seed=st.integers(0, 9))
def test_hashed_has_equal_counts_and_as_few_moves_as_can_be(
    owners: list[int], workers: int, seed: int
) -> None:
    ones = np.ones(len(owners))
    found = hashed(owners, workers, ones, ones, seed=seed)
    counts = np.bincount(found.owners, minlength=workers)
    assert len(counts) == workers
    assert counts.max() - counts.min() <= 1
    # Best is to let those keep one bin more than others who have most.
    had = np.bincount(owners, minlength=workers)
    quotas = zip(sorted(had[:workers], reverse=True), sorted(counts, reverse=True), strict=True)
    assert found.moves == sum(max(0, had - quota) for had, quota in quotas) + had[workers:].sum()


def test_hashed_moves_other_bins_with_another_seed() -> None:
    owners = np.repeat(np.arange(4), 64)
    size = np.random.default_rng(0).lognormal(0, 1, 256)
    costs = {hashed(owners, 6, np.ones(256), size, seed=seed).cost for seed in range(5)}
    assert len(costs) == 5
    assert min(costs) < hashed_cost(owners, 6, np.ones(256), size, seeds=5) < max(costs)


@given(owners=OWNERS, workers=st.integers(1, 8))
def test_even_is_consecutive(owners: list[int], workers: int) -> None:
    ones = np.ones(len(owners))
    found = even(owners, workers, ones, ones).owners
    assert (np.diff(found) >= 0).all()
    counts = np.bincount(found, minlength=workers)
    assert counts.max() - counts.min() <= 1


def test_even_is_the_routing_of_that_name() -> None:
    found = even([0] * 16, 5, [1] * 16, [1] * 16)
    assert found.routing(5) == Routing.even(16, 5)


@given(owners=OWNERS, workers=st.integers(1, 8), data=st.data())
def test_hot_bins_drains_and_never_makes_it_worse(
    owners: list[int], workers: int, data: st.DataObject
) -> None:
    load = data.draw(st.lists(st.integers(0, 9), min_size=len(owners), max_size=len(owners)))
    found = hot_bins(owners, workers, load, [1] * len(owners), 0.1)
    assert found.owners.max() < workers
    if max(owners) < workers:
        assert found.max_load <= np.bincount(owners, load).max()


def test_hot_bins_balances_where_bins_are_small() -> None:
    rng = np.random.default_rng(0)
    owners, load = np.repeat(np.arange(4), 256), rng.lognormal(0, 1, 1024)
    size = rng.lognormal(0, 1, 1024)
    found = hot_bins(owners, 6, load, size, 0.2)
    assert found.max_load <= 1.2 * load.sum() / 6
    assert scattered(owners, 6, load, size, 0.2).cost < found.cost / 2


@pytest.mark.parametrize("plan", [hashed, even])
def test_no_worker_no_plan(plan: Any) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        plan([0], 0, [1], [1])
