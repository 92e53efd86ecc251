"""Event n of the auction house is a function of the seed and n, computed for many n at once.

The proportions, ids and distributions are those that the public generators share. Numbers come
from a hash of (seed, n, what the number is for), so any range of events can be made anywhere.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.errors import ConfigError
from lab.workloads.numbered import MOMENT, EventClock
from lab.workloads.rate import Numbers

EPOCH: Final = 50  # events of which one is a person, three are auctions and the others bids
AUCTIONS: Final = 3
FIRST_ID: Final = 1000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
ACTIVE: Final = 1000  # persons who bid and sell
LEAD: Final = 10  # ids that do not exist yet, but may be bid on or for
HOT: Final = 100  # every so many ids there is a hot one

PERSON: Final = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("email", pa.string()),
        ("credit_card", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("extra", pa.string()),
    ]
)
AUCTION: Final = pa.struct(
    [
        ("id", pa.int64()),
        ("item", pa.string()),
        ("description", pa.string()),
        ("initial_bid", pa.int64()),
        ("reserve", pa.int64()),
        ("expires", MOMENT),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
    ]
)
BID: Final = pa.struct(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("extra", pa.string()),
    ]
)
SCHEMA: Final = pa.schema(
    [
        ("event", pa.int64()),
        ("time", MOMENT),
        ("person", PERSON),
        ("auction", AUCTION),
        ("bid", BID),
    ]
)

_FIRST_NAMES: Final = "Peter,Paul,Luke,John,Saul,Vicky,Kate,Julie,Sarah,Deiter,Walter"
_LAST_NAMES: Final = "Shultz,Abrams,Spencer,White,Bartels,Walton,Smith,Jones,Noris"
_NAMES: Final = pa.array(
    f"{first} {last}" for first in _FIRST_NAMES.split(",") for last in _LAST_NAMES.split(",")
)
_CITIES: Final = pa.array(
    [
        *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
        *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
    ]
)
_STATES: Final = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_TEXTS: Final = 1024  # different ones of each kind, from which events take theirs
_PLAIN_BYTES: Final = {"person": 70, "auction": 134, "bid": 32}  # without `extra`, on average

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Auctions(EventClock):
    """The events of an auction house.

    `rate` is that of all events together. Of `hot_auctions` bids all but one go to a hot auction,
    of `hot_sellers` auctions all but one are a hot seller's, of `hot_bidders` bids all but one a
    hot bidder's; 1 is for no skew. An auction is open while about `in_flight` others are begun.
    Each `out_of_order` events come in the opposite order of their times. Records have so many
    bytes on average, +-20 %.
    """

    seed: int = 1
    hot_auctions: int = 2
    hot_sellers: int = 4
    hot_bidders: int = 4
    in_flight: int = 100
    out_of_order: int = 1
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = ("hot_auctions", "hot_sellers", "hot_bidders", "in_flight", "out_of_order")
        for name in counts:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")

    def events(self, first: int, last: int) -> pa.RecordBatch:
        """Events `first` up to, but without, `last`, in the order in which they come."""
        numbers = self._shuffled(np.arange(first, last, dtype=np.int64))
        place = numbers % EPOCH
        columns = [
            pa.array(numbers),
            self.moments(numbers),
            self._only(place == 0, numbers, self._persons, PERSON),
            self._only((place > 0) & (place <= AUCTIONS), numbers, self._auctions, AUCTION),
            self._bids(numbers, place > AUCTIONS),
        ]
        return pa.record_batch(columns, schema=SCHEMA)

    def _shuffled(self, numbers: Numbers) -> Numbers:
        size = self.out_of_order
        return numbers if size == 1 else numbers // size * size + size - 1 - numbers % size

    def _only(self, there: Any, numbers: Numbers, make: Any, kind: pa.StructType) -> pa.Array:
        """A column of the few events that are `there`, and null elsewhere."""
        places = np.flatnonzero(there)
        made = pa.StructArray.from_arrays(make(numbers[places]), fields=list(kind))
        index = np.zeros(len(numbers), np.int64)
        index[places] = np.arange(len(places))
        return made.take(pa.array(index, mask=~there))

    def _persons(self, numbers: Numbers) -> list[pa.Array]:
        draw = _Draws(self.seed, numbers)
        cards = draw.below(10**16)
        return [
            pa.array(FIRST_ID + _last_person(numbers)),
            _pick(_NAMES, draw.below(len(_NAMES))),
            _pick(_emails(), draw.below(_TEXTS)),
            pa.array([f"{card:016d}" for card in cards.tolist()], pa.string()),
            _pick(_CITIES, draw.below(len(_CITIES))),
            _pick(_STATES, draw.below(len(_STATES))),
            self._extra("person", draw),
        ]

    def _auctions(self, numbers: Numbers) -> list[pa.Array]:
        draw = _Draws(self.seed, numbers)
        initial = _price(draw.fraction())
        horizon = self.times(numbers + self.in_flight * EPOCH // AUCTIONS) - self.times(numbers)
        length = 1 + draw.below(np.maximum(1, 2 * horizon))
        people = _last_person(numbers) + 1
        seller = np.where(
            draw.below(self.hot_sellers) > 0,
            (people - 1) // HOT * HOT,
            _active(people, draw),
        )
        return [
            pa.array(FIRST_ID + _last_auction(numbers)),
            _pick(_texts("item", 3, 20), draw.below(_TEXTS)),
            _pick(_texts("description", 30, 100), draw.below(_TEXTS)),
            pa.array(initial),
            pa.array(initial + _price(draw.fraction())),
            pa.array(self.times(numbers) + length).cast(MOMENT),
            pa.array(FIRST_ID + seller),
            pa.array(FIRST_CATEGORY + draw.below(CATEGORIES)),
            self._extra("auction", draw),
        ]

    def _bids(self, numbers: Numbers, there: Any) -> pa.Array:
        """Most events are bids, so numbers are computed for all."""
        draw = _Draws(self.seed, numbers)
        last = np.maximum(0, _last_auction(numbers))
        oldest = np.maximum(0, last - self.in_flight)
        auction = np.where(
            draw.below(self.hot_auctions) > 0,
            last // HOT * HOT,
            oldest + draw.below(last - oldest + 1 + LEAD),
        )
        people = _last_person(numbers) + 1
        bidder = np.where(
            draw.below(self.hot_bidders) > 0,
            (people - 1) // HOT * HOT + 1,
            _active(people, draw),
        )
        columns = [
            pa.array(FIRST_ID + auction),
            pa.array(FIRST_ID + bidder),
            pa.array(_price(draw.fraction())),
            self._extra("bid", draw),
        ]
        return pa.StructArray.from_arrays(columns, fields=list(BID), mask=pa.array(~there))

    def _extra(self, kind: str, draw: "_Draws") -> pa.Array:
        size: int = getattr(self, f"{kind}_bytes")
        extra = max(0, size - _PLAIN_BYTES[kind])
        texts = _texts(f"extra {kind}", round(0.8 * extra), round(1.2 * extra))
        return _pick(texts, draw.below(_TEXTS))


class _Draws:
    """Random numbers of events: each call gives every event its next number."""

    def __init__(self, seed: int, numbers: Numbers) -> None:
        events = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self._events = _mixed(events ^ np.uint64(seed & (1 << 64) - 1))
        self._draw = 0

    def fraction(self) -> npt.NDArray[np.float64]:
        """In [0, 1)."""
        self._draw += 1
        step = np.uint64(self._draw * 0xD1B54A32D192ED03 & (1 << 64) - 1)
        return (_mixed(self._events + step) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bound: int | Numbers) -> Numbers:
        """In 0 ... bound - 1."""
        return (self.fraction() * bound).astype(np.int64)


def _mixed(values: Hashes) -> Hashes:
    """The finalizer of SplitMix64 (Steele, Lea and Flood: Fast splittable pseudorandom number
    generators, 2014)."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)


def _last_person(numbers: Numbers) -> Numbers:
    return numbers // EPOCH


def _last_auction(numbers: Numbers) -> Numbers:
    """The newest auction; -1 when there is none yet."""
    epoch, place = np.divmod(numbers, EPOCH)
    return AUCTIONS * epoch + np.minimum(place, AUCTIONS) - 1


def _active(people: Numbers, draw: _Draws) -> Numbers:
    active = np.minimum(people, ACTIVE)
    return people - active + draw.below(active + LEAD)


def _price(fraction: npt.NDArray[np.float64]) -> Numbers:
    """In cents; each order of magnitude is as likely as another."""
    return np.rint(10.0 ** (6 * fraction) * 100).astype(np.int64)


def _pick(texts: pa.Array, places: Numbers) -> pa.Array:
    return texts.take(pa.array(places))


@cache
def _emails() -> pa.Array:
    users, hosts = _texts("user", 5, 9).to_pylist(), _texts("host", 4, 7).to_pylist()
    return pa.array([f"{user}@{host}.com" for user, host in zip(users, hosts, strict=True)])


@cache
def _texts(kind: str, shortest: int, longest: int) -> pa.Array:
    """Texts of random letters with lengths between these, ends included."""
    random = np.random.default_rng(list(kind.encode()))
    lengths = random.integers(shortest, longest, _TEXTS, endpoint=True)
    return pa.array(["".join(map(chr, random.integers(97, 123, length))) for length in lengths])
