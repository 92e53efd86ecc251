"""Routing: every bin has one owner, and every change is a new value."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError, RefusedError
from godwit.model.routing import MAX_BITS, MAX_WORKERS, Routing

BITS = st.integers(0, 10)
WORKERS = st.integers(1, 40)


@st.composite
def routings(draw: st.DrawFn, bits: st.SearchStrategy[int] = BITS) -> Routing:
    bins, workers = 1 << draw(bits), draw(WORKERS)
    seed = draw(st.integers(0, 2**32 - 1))
    owners = np.random.default_rng(seed).integers(0, workers, bins, dtype=np.int32)
    return Routing(owners, workers)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Routing, Routing]:
    bits = st.just(draw(BITS))
    return draw(routings(bits)), draw(routings(bits))


@given(BITS, WORKERS)
def test_even_is_contiguous_and_balanced_within_one_or_five_percent(
    bits: int, workers: int
) -> None:
    routing = Routing.even(1 << bits, workers)
    counts = np.bincount(routing.owners, minlength=workers)
    within_one = counts.max() - counts.min() <= 1
    assert within_one or counts.max() <= 1.05 * routing.bins / workers
    assert (np.diff(routing.owners) >= 0).all()


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 6, 8, 11, 13, 16, 32, 64])
def test_no_segment_has_two_owners_where_that_costs_little(workers: int) -> None:
    even = Routing.even(1024, workers)
    for routing in (even, Routing.even(1024, 2).spread(workers), Routing.even(1024, 8).spread(3)):
        segments = routing.owners.reshape(64, -1)
        assert (segments == segments[:, :1]).all()
        assert np.bincount(routing.owners).min() >= 0.8 * routing.bins / routing.workers


@given(BITS, WORKERS)
def test_what_is_even_is_spread(bits: int, workers: int) -> None:
    even = Routing.even(1 << bits, workers)
    assert even.spread(workers) == even


@given(routings())
def test_the_bins_of_all_workers_are_all_bins_once(routing: Routing) -> None:
    owned = np.concatenate([routing.bins_of(worker) for worker in range(routing.workers)])
    assert sorted(owned.tolist()) == list(range(routing.bins))


@given(routings(), st.integers(0, 4), st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_more_bins_keep_the_worker_of_every_hash(
    routing: Routing, more: int, hashes: list[int]
) -> None:
    finer = routing.with_bins(routing.bins << more)
    assert finer.bits == routing.bits + more
    for hash_ in hashes:
        bin, part = hash_ >> (64 - routing.bits), hash_ >> (64 - finer.bits)
        assert finer.owners[part] == routing.owners[bin]


@given(routings(), st.integers(0, 4))
def test_fewer_bins_follow_their_first_part(routing: Routing, fewer: int) -> None:
    bins = max(routing.bins >> fewer, 1)
    width = routing.bins // bins
    coarser = routing.with_bins(bins)
    assert coarser.owners.tolist() == [routing.owners[bin * width] for bin in range(bins)]


@given(routings(), st.integers(0, 8), st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_the_fewest_bins_are_the_fewest_that_keep_the_worker_of_every_hash(
    routing: Routing, bits: int, hashes: list[int]
) -> None:
    at = np.array(hashes, np.uint64)
    fewest = routing.fewest_bins
    kept = routing.with_bins(max(fewest, 1 << bits))
    assert kept.owners_at(at).tolist() == routing.owners_at(at).tolist()
    assert routing.with_bins(fewest).with_bins(routing.bins) == routing
    if fewest > 1:
        assert routing.with_bins(fewest // 2).with_bins(routing.bins) != routing


@given(routings())
def test_json_round_trip(routing: Routing) -> None:
    again = Routing.from_json(json.loads(json.dumps(routing.to_json())))
    assert again == routing
    assert hash(again) == hash(routing)


@given(pairs())
def test_the_moves_lead_to_the_target(pair: tuple[Routing, Routing]) -> None:
    source, target = pair
    moves = list(source.moves_to(target))
    assert [move.bin for move in moves] == np.flatnonzero(source.owners != target.owners).tolist()
    assert all(source.owners[move.bin] == move.source for move in moves)
    assert source.assign({move.bin: move.target for move in moves}, target.workers) == target


@pytest.mark.parametrize("owners", [{8: 0}, {-1: 0}, {0: 2}, {0: -1}, {1: 1, 8: 0}])
def test_assign_refuses_unknown_bins_and_workers_and_changes_nothing(
    owners: dict[int, int],
) -> None:
    routing = Routing.even(8, 2)
    with pytest.raises(RefusedError, match="unknown"):
        routing.assign(owners)
    assert routing == Routing.even(8, 2)


@given(routings(), st.data())
def test_assign_leaves_the_original(routing: Routing, data: st.DataObject) -> None:
    before = routing.owners.tolist()
    bins, workers = st.integers(0, routing.bins - 1), st.integers(0, routing.workers - 1)
    owners = data.draw(st.dictionaries(bins, workers))
    changed = routing.assign(owners)
    assert routing.owners.tolist() == before
    assert changed.owners.tolist() == [owners.get(bin, old) for bin, old in enumerate(before)]


def test_assign_may_retire_a_worker_that_has_no_bins_left() -> None:
    assert Routing.even(4, 2).assign({2: 0, 3: 0}, workers=1) == Routing.even(4, 1)


def test_assign_refuses_to_retire_a_worker_that_has_bins() -> None:
    with pytest.raises(RefusedError, match="worker 1 cannot be retired: it would still own bin"):
        Routing.even(4, 2).assign({2: 0}, workers=1)


def test_owners_cannot_be_changed_in_place() -> None:
    owners = np.zeros(4, dtype=np.int32)
    routing = Routing(owners, 2)
    owners[0] = 1
    assert routing.owners.tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        routing.owners[0] = 1


@pytest.mark.parametrize("bins", [-1, 0, 3, 2 << MAX_BITS])
def test_bins_are_a_power_of_two_within_bounds(bins: int) -> None:
    with pytest.raises(ConfigError, match="power of two"):
        Routing.even(bins, 1)


@pytest.mark.parametrize("workers", [-1, 0, MAX_WORKERS + 1])
def test_workers_are_within_bounds(workers: int) -> None:
    with pytest.raises(ConfigError, match="workers must be"):
        Routing.even(8, workers)


@pytest.mark.parametrize("owners", [[0, 2], [-1, 0]])
def test_every_owner_is_a_worker(owners: list[int]) -> None:
    with pytest.raises(ConfigError, match="workers are numbered 0 to 1"):
        Routing(np.array(owners, dtype=np.int32), 2)
