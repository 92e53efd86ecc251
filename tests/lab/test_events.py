"""The auction house: an event is a function of seed and number, with the known proportions."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError
from lab.workloads.nexmark.events import SCHEMA, Auctions
from lab.workloads.rate import Rate

HOUSE = Auctions(rate=Rate.parse("1k"))
EVENTS = pa.table(HOUSE.events(0, 100_000))


def column(path: str, events: pa.Table = EVENTS) -> pa.ChunkedArray:
    """The values of `kind.field` of those events that have one."""
    kind, field = path.split(".")
    return pc.struct_field(events.column(kind).drop_null(), field)


@given(
    st.integers(0, 10**9),
    st.integers(1, 200),
    st.integers(1, 200),
    st.integers(1, 30),
    st.integers(0, 2**64),
)
def test_an_event_is_the_same_in_whichever_range_it_is_made(
    first: int, some: int, more: int, group: int, seed: int
) -> None:
    house = dataclasses.replace(HOUSE, seed=seed, out_of_order=group)
    middle, last = first + some, first + some + more
    whole = pa.table(house.events(first, last))
    parts = [house.events(first, middle), house.events(middle, last)]
    assert pa.Table.from_batches(parts).combine_chunks() == whole
    assert whole.schema == SCHEMA


def test_another_seed_gives_other_events() -> None:
    other = pa.table(dataclasses.replace(HOUSE, seed=2).events(0, 1000))
    assert column("bid.price", other) != column("bid.price", EVENTS.slice(0, 1000))


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    counts = [EVENTS.num_rows - EVENTS.column(kind).null_count for kind in ("person", "auction")]
    assert counts == [2000, 6000]
    there = [EVENTS.column(kind).is_valid().to_numpy() for kind in ("person", "auction", "bid")]
    assert np.all(np.sum(there, axis=0) == 1)
    assert column("person.id").to_pylist() == list(range(1000, 3000))
    assert column("auction.id").to_pylist() == list(range(1000, 7000))


def test_bids_are_on_auctions_in_flight_or_about_to_begin() -> None:
    numbers = EVENTS.column("event").filter(EVENTS.column("bid").is_valid()).to_numpy()
    newest = 1000 + numbers // 50 * 3 + 2
    behind = newest - column("bid.auction").to_numpy()
    hot = column("bid.auction").to_numpy() % 100 == 0
    assert behind[~hot].min() == -10
    assert behind[~hot].max() == 100
    assert 0.49 < np.mean(hot) < 0.52  # half of the bids, and one in a hundred others
    bidders = column("bid.bidder").to_numpy() % 100 == 1
    assert 0.74 < np.mean(bidders) < 0.77
    sellers = column("auction.seller").to_numpy() % 100 == 0
    assert 0.73 < np.mean(sellers) < 0.78


def test_without_skew_no_auction_is_hot() -> None:
    plain = dataclasses.replace(HOUSE, hot_auctions=1, hot_bidders=1, hot_sellers=1)
    events = pa.table(plain.events(0, 100_000))
    assert np.mean(column("bid.auction", events).to_numpy() % 100 == 0) < 0.02
    assert np.mean(column("bid.bidder", events).to_numpy() % 100 == 1) < 0.02


def test_prices_are_spread_over_six_orders_of_magnitude() -> None:
    magnitudes = np.log10(column("bid.price").to_numpy()) // 1
    assert np.all(np.abs(np.bincount(magnitudes.astype(int))[2:8] / len(magnitudes) - 1 / 6) < 0.01)
    assert np.all(column("auction.reserve").to_numpy() > column("auction.initial_bid").to_numpy())


def test_auctions_are_open_while_others_begin() -> None:
    times = EVENTS.column("time").filter(EVENTS.column("auction").is_valid())
    open_for = pc.subtract(column("auction.expires"), times).cast(pa.int64()).to_numpy()
    horizon = 100 * 50 / 3 * 1000  # microseconds at 1,000 events a second
    assert open_for.min() >= 1
    assert open_for.max() <= 2 * horizon
    assert abs(open_for.mean() / horizon - 1) < 0.05


def test_time_follows_the_rate_and_its_dilation() -> None:
    first = EVENTS.column("time")[0].value
    assert EVENTS.column("time")[1000].value - first == 1_000_000
    slow = dataclasses.replace(HOUSE, dilation=60.0).events(0, 1001).column("time")
    assert slow[1000].value - slow[0].value == 60_000_000


def test_out_of_order_events_stay_in_their_group() -> None:
    numbers = dataclasses.replace(HOUSE, out_of_order=100).events(0, 1000).column("event")
    groups = numbers.to_numpy().reshape(10, 100)
    assert np.array_equal(np.sort(groups), np.arange(1000).reshape(10, 100))
    assert not np.array_equal(groups, np.sort(groups))


@pytest.mark.parametrize(
    ("kind", "wanted"), [("person", 200), ("auction", 500), ("bid", 100)], ids=str
)
def test_records_have_their_size_on_average(kind: str, wanted: int) -> None:
    records = EVENTS.column(kind).drop_null().combine_chunks()
    longs = [field.name for field in records.type if not pa.types.is_string(field.type)]
    texts = [field.name for field in records.type if pa.types.is_string(field.type)]
    size = 8 * (1 + len(longs)) + sum(  # with the event's time
        pc.mean(pc.binary_length(pc.struct_field(records, name))).as_py() for name in texts
    )
    assert abs(size / wanted - 1) < 0.05


def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigError, match="in_flight must be at least 1, not 0"):
        Auctions(in_flight=0)
    with pytest.raises(ConfigError, match="time must go on"):
        Auctions(dilation=0.0)
