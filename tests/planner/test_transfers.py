"""Phases have every move once, no worker sends or receives twice in one, and time is well used."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError
from godwit.inspect.audit import verify
from godwit.inspect.targets import Measured
from godwit.log.history import History
from godwit.model.routing import Routing
from godwit.planner import transfers
from tests.support.simulated import counts, simulate, words

PLANS = st.integers(0, 60).flatmap(
    lambda bins: st.tuples(
        st.lists(st.integers(0, 5), min_size=bins, max_size=bins),
        st.lists(st.integers(0, 6), min_size=bins, max_size=bins),
        st.lists(st.sampled_from([0, 1, 2, 3, 10]), min_size=bins, max_size=bins),
    )
)


def busiest(before: list[int], after: list[int], size: list[int]) -> int:
    work = Counter[tuple[str, int]]()
    for source, target, amount in zip(before, after, size, strict=True):
        if source != target:
            work["sends", source] += amount
            work["receives", target] += amount
    return max(work.values(), default=0)


@given(plan=PLANS)
def test_every_move_once_and_one_partner_a_phase(
    plan: tuple[list[int], list[int], list[int]],
) -> None:
    before, after, size = plan
    found = transfers(before, after, size, 2.0)
    moves = [move for phase in found.phases for move in phase]
    assert sorted(move.bin for move in moves) == [
        bin for bin in range(len(before)) if before[bin] != after[bin]
    ]
    assert found.bins.tolist() == [move.bin for move in moves]
    updates = found.updates(epoch=5)
    assert [(update.bin, update.worker) for update in updates] == [
        (move.bin, move.target) for move in moves
    ]
    assert [update.epoch for update in updates] == [
        5 + number for number, phase in enumerate(found.phases) for _ in phase
    ]
    for phase in found.phases:
        assert all(
            (move.source, move.target) == (before[move.bin], after[move.bin]) for move in phase
        )
        pairs = {(move.source, move.target) for move in phase}
        assert len({source for source, _ in pairs}) == len(pairs)
        assert len({target for _, target in pairs}) == len(pairs)
    assert found.bound == busiest(before, after, size) / 2
    assert found.bound <= found.seconds * (1 + 1e-9)


@given(plan=PLANS)
def test_with_bins_of_one_size_the_busiest_worker_never_waits(
    plan: tuple[list[int], list[int], list[int]],
) -> None:
    before, after, _ = plan
    found = transfers(before, after, [1] * len(before), 1.0)
    assert found.seconds == found.bound


def test_small_bins_take_little_more_than_the_busiest_worker_needs() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.integers(0, 8, 20_000), rng.integers(0, 8, 20_000)
    found = transfers(before, after, rng.uniform(0.5, 1.5, 20_000), 1.0)
    assert found.seconds < 1.05 * found.bound


def test_a_routing_to_another() -> None:
    before, after = Routing.even(4096, 4), Routing.even(4096, 4).spread(8)
    found = transfers(before.owners, after.owners, np.ones(4096), 512.0)
    assert found.seconds == found.bound == 1.0
    assert len(found.phases) == 1


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan")])
def test_bandwidth_is_above_zero(bandwidth: float) -> None:
    with pytest.raises(ConfigError, match="bandwidth"):
        transfers([0], [1], [1], bandwidth)


def test_a_query_follows_the_phases_to_the_target_with_its_state(tmp_path: Path) -> None:
    keys = [f"word {i}" for i in range(300)]
    sim = simulate(tmp_path, workers=3, bins=64)
    sim.feed(words(*keys))
    before = sim.driver.routing("counts")
    after = Routing(np.random.default_rng(3).integers(0, 5, 64).astype(np.int32), 5)
    size = Measured.of(History(tmp_path), "counts", 64).bytes
    order = transfers(before.owners, after.owners, size, bandwidth=1000.0)
    assert len(order.phases) > 3
    sim.schedule(order.updates(sim.committed + 1), workers=5)
    expected = before
    for number, phase in enumerate(order.phases, 2):
        sim.feed(words(*keys))
        expected = expected.assign({move.bin: move.target for move in phase}, workers=5)
        assert sim.driver.routing("counts") == expected
        assert counts(sim) == dict.fromkeys(keys, number)
    assert expected == after
    assert not verify(tmp_path).findings
