"""Routing over epochs in plain Python: what requests and restarts should do."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from godwit.migration.strategies import UNREADY_EPOCHS, AllAtOnce, Strategy
from godwit.model.requests import OnTimeout
from godwit.model.routing import SEGMENTS, Routing

# What each worker says, at the end of an epoch, that it has of segments to come. None: no epoch has
# ended in this process.
Said = Mapping[int, Collection[int]] | None


class ImpossibleError(Exception):
    """What is asked for cannot be had."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Owners of bins by epoch, and the number of workers from the first of these epochs on.

    One that came as data has a `source`: it counts once, also if it cannot be granted.
    """

    owners: dict[int, dict[int, int]]
    bins: int
    workers: int | None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Trip:
    """A migration; `back` says that it moves back to where it came from."""

    origin: Routing
    target: Routing
    strategy: Strategy
    supersede: bool
    asked: float
    number: int = 0  # those of one request have the same
    deadline: float | None = None
    on_timeout: OnTimeout = "finish"
    back: bool = False
    stepped: int | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of the open migration."""

    rollback: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """Another number of bins."""

    bins: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of the stream."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start of the program that names numbers which it did not name before, or one of them."""

    workers: int | None
    bins: int | None


Asked = Wish | Trip | Stop | Cut | End | Start


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided in an epoch: its routing, and what is to come.

    `given` and `given_bins` are the numbers that the program has named, `sources` those of all
    wishes that came as data, and `end` the epoch from which on the stream has ended.
    """

    routing: Routing
    wishes: tuple[Wish, ...] = ()
    trip: Trip | None = None
    given: int | None = None
    given_bins: int | None = None
    sources: frozenset[str] = frozenset()
    end: int | None = None

    def ask(self, asked: Asked, begun: int) -> "Plan":
        match asked:
            case Wish():
                if self.trip or not asked.owners or min(asked.owners) <= begun:
                    raise ImpossibleError
                if asked.bins != self.routing.bins:
                    raise ImpossibleError
                routing, wishes = self.routing, (*self.wishes, asked)
                for epoch in range(begun + 1, max(max(wish.owners) for wish in wishes) + 1):
                    routing = _granted(wishes, routing, epoch)
                return replace(self, wishes=wishes)
            case Trip():
                busy = (self.wishes or self.trip) and not asked.supersede
                stale = asked.origin != self.routing and not asked.supersede
                over = asked.deadline is not None and asked.deadline < asked.asked
                if busy or stale or over or asked.target.bins != self.routing.bins:
                    raise ImpossibleError
                return replace(self, trip=replace(asked, origin=self.routing), wishes=())
            case Stop():
                if self.trip is None or (asked.rollback and self.trip.back):
                    raise ImpossibleError
                return replace(self, trip=replace(self.trip, back=True) if asked.rollback else None)
            case Cut(bins):
                if bins < self.routing.bins and self.wishes:
                    raise ImpossibleError
                trip = self.trip
                if trip is not None:
                    ends = _cut(trip.origin, bins), _cut(trip.target, bins)
                    trip = replace(trip, origin=ends[0], target=ends[1])
                wishes = tuple(_cut_wish(wish, bins) for wish in self.wishes)
                routing = _cut(self.routing, bins)
                return replace(self, routing=routing, trip=trip, wishes=wishes)
            case End():
                return self if self.end is not None else replace(self, end=begun + 1)
            case Start(workers, bins):
                return self._start(workers, bins, begun)

    def _start(self, workers: int | None, bins: int | None, begun: int) -> "Plan":
        """If the bins cannot be had where they are, or nothing that was asked leads to the workers,
        that overrules it."""
        plan = replace(self, given=workers or self.given, given_bins=bins or self.given_bins)
        routing, trip = self.routing, self.trip
        goal = routing if trip is None else trip.origin if trip.back else trip.target
        to_come = [goal.workers, *(wish.workers for wish in self.wishes if wish.workers)][-1]
        if workers in (None, to_come):
            with suppress(ImpossibleError):
                return plan if bins is None else plan.ask(Cut(bins), begun)
        has_moved = trip is not None and trip.origin != routing
        if bins is not None:
            first_parts = np.arange(bins) * routing.bins // bins
            routing = Routing(routing.owners[first_parts], routing.workers)
        if workers is not None and (has_moved or workers != routing.workers):
            routing = Routing.even(routing.bins, workers)
        return replace(plan, routing=routing, wishes=(), trip=None)

    def begin(self, epoch: int, now: float, said: Said) -> "Plan":
        """What is decided next."""
        routing = _granted(self.wishes, self.routing, epoch)
        wishes = tuple(wish for wish in self.wishes if max(wish.owners) > epoch)
        trip = self.trip
        if trip is None:
            return replace(self, routing=routing, wishes=wishes)
        strategy = trip.strategy
        if trip.deadline is not None and now >= trip.deadline and not trip.back:
            if trip.on_timeout == "finish":
                strategy = AllAtOnce()
            else:
                trip = replace(trip, back=True)
        goal = trip.origin if trip.back else trip.target
        waited = None if trip.stepped is None else epoch - trip.stepped - 1
        owners = routing.owners.tolist()
        if strategy.fetch_seconds(0.0) is not None:
            bins = _paced(owners, goal.owners.tolist(), waited, said)
        else:
            bins = strategy.step(routing, goal, waited).tolist()
        for bin in bins:
            owners[bin] = int(goal.owners[bin])
        routing = Routing(np.array(owners), max(goal.workers, max(owners) + 1))
        over = owners == goal.owners.tolist()
        stepped = epoch if bins or trip.stepped is None else trip.stepped
        left = None if over else replace(trip, stepped=stepped)
        return replace(self, routing=routing, wishes=wishes, trip=left)


class Routes:
    """What was decided in all epochs up to `begun`, and what was asked for since."""

    def __init__(self, workers: int, bins: int) -> None:
        self.begun = -1
        self._plan = _first(workers, bins)
        self._plans: dict[int, Plan] = {}
        self._asked: dict[int, Asked] = {}  # by the numbers of requests
        self._left = set[int]()  # of those that nobody has judged

    @property
    def now(self) -> Routing:
        return self._plan.routing

    def of(self, epoch: int) -> Routing:
        return self._plans[epoch].routing

    @property
    def is_moving(self) -> bool:
        return self._plan.trip is not None

    @property
    def trip(self) -> int | None:
        """The number of the open migration."""
        return self._plan.trip.number if self._plan.trip else None

    @property
    def is_wished(self) -> bool:
        return bool(self._plan.wishes)

    @property
    def goal(self) -> Routing:
        """Where the open migration is moving to."""
        trip = self._plan.trip
        assert trip is not None
        return trip.origin if trip.back else trip.target

    @property
    def end(self) -> int | None:
        """The epoch from which on the stream has ended."""
        return self._plan.end

    def begin(self, epoch: int, now: float, said: Said) -> None:
        self._plan = self._plans[epoch] = self._plan.begin(epoch, now, said)
        self.begun, self._asked = epoch, {}

    def is_possible(self, asked: Asked) -> bool:
        try:
            self._plan.ask(asked, self.begun)
        except ImpossibleError:
            return False
        return True

    def is_known(self, source: str) -> bool:
        return source in self._plan.sources

    def add(self, asked: Asked, number: int) -> None:
        """It was accepted; a stop of several operators stops those that it can."""
        if not isinstance(asked, Stop) or self.is_possible(asked):
            self._plan = self._plan.ask(asked, self.begun)
        self._asked[number] = asked
        self.know(asked)

    def leave(self, asked: Asked, number: int) -> None:
        """It is there for the next start of the query, which judges it."""
        self._asked[number] = asked
        self._left.add(number)

    def was_judged(self, number: int) -> bool:
        return number not in self._left

    def know(self, asked: Asked) -> None:
        """Whether it is granted or not, it has been there."""
        if isinstance(asked, Wish) and asked.source is not None:
            self._plan = replace(self._plan, sources=self._plan.sources | {asked.source})

    def rewind(self, workers: int | None, bins: int | None) -> dict[int, Asked]:
        """Back to what the last epoch had decided; returns what was asked since. Before the first
        epoch both numbers are given."""
        self._plan = self._plans.get(self.begun) or _first(workers or 0, bins or 0)
        asked, self._asked = self._asked, {}
        return asked

    def name(self, workers: int | None, bins: int | None, number: int) -> None:
        """The program names numbers. Those that it did not name before are asked for; before the
        first epoch they overrule nothing."""
        plan = self._plan
        other = Start(
            None if workers == plan.given else workers, None if bins == plan.given_bins else bins
        )
        if other != Start(None, None):
            self.add(other, number)

    def restore(self, epoch: int) -> None:
        """Later epochs have not begun; nor was anything wished for them."""
        self.begun, self._asked = epoch, {}
        self._plan = self._plans[epoch] = replace(self._plans[epoch], wishes=())
        self._plans = {e: plan for e, plan in self._plans.items() if e <= epoch}


def is_accepted(asked: Collection[tuple[Routes, Asked]]) -> bool:
    """Is a request accepted? All that it is for accept it, or none; one is enough for a stop."""
    possible = [routes.is_possible(one) for routes, one in asked]
    return any(possible) if all(isinstance(one, Stop) for _, one in asked) else all(possible)


def restart(
    several: Collection[Routes], workers: int | None, bins: int | None, number: int
) -> set[int]:
    """What was asked is asked again, in its order, of all that it was for or of none. Then the
    program names its numbers. Returns the numbers of the requests that are refused now, and were
    accepted before."""
    asked = [(routes, routes.rewind(workers, bins)) for routes in several]
    refused = set[int]()
    for again in sorted({again for _, some in asked for again in some}):
        parts = [(routes, some[again]) for routes, some in asked if again in some]
        for routes, one in parts:
            routes.know(one)
        if is_accepted(parts):
            for routes, one in parts:
                routes.add(one, again)
        elif parts[0][0].was_judged(again):
            refused.add(again)
    for routes in several:
        routes.name(workers, bins, number)
    return refused


def _first(workers: int, bins: int) -> Plan:
    return Plan(Routing.even(bins, workers), given=workers, given_bins=bins)


def _paced(owners: list[int], goal: list[int], waited: int | None, said: Said) -> list[int]:
    """The bins that move: all where nobody has anything, else those that their new owner has whole.

    When too many epochs have passed without a step, that is so of what each is to get first.
    """
    left = [bin for bin in range(len(owners)) if owners[bin] != goal[bin]]
    if said is None:
        return left
    if waited is not None and waited >= UNREADY_EPOCHS:
        first = {goal[bin]: bin for bin in reversed(left)}
        said = {worker: _segments(bin, len(goal)) for worker, bin in first.items()}
    has = {worker: {*said.get(worker, ())} for worker in {*goal}}
    return [bin for bin in left if has[goal[bin]].issuperset(_segments(bin, len(goal)))]


def _segments(bin: int, bins: int) -> range:
    """The equal parts of the space of hashes that a bin has, or is in."""
    return range(
        bin * SEGMENTS // bins, max(bin * SEGMENTS // bins + 1, (bin + 1) * SEGMENTS // bins)
    )


def _cut(routing: Routing, bins: int) -> Routing:
    """In so many bins, each hash at the worker that it has."""
    parts = np.arange(max(bins, routing.bins))
    owners = routing.owners[parts * routing.bins // len(parts)].reshape(bins, -1)
    if (owners != owners[:, :1]).any():
        raise ImpossibleError
    return Routing(owners[:, 0].copy(), routing.workers)


def _cut_wish(wish: Wish, bins: int) -> Wish:
    """For so many bins, each one at the worker of the bin that it was a part of."""
    parts = bins // wish.bins
    owners = {
        epoch: {bin * parts + part: w for bin, w in one.items() for part in range(parts)}
        for epoch, one in wish.owners.items()
    }
    return replace(wish, owners=owners, bins=bins)


def _granted(wishes: Sequence[Wish], routing: Routing, epoch: int) -> Routing:
    """The routing of an epoch, given that of the epoch before."""
    for wish in wishes:
        if epoch in wish.owners:
            workers = wish.workers or routing.workers
            owners = routing.owners.tolist()
            for bin, worker in wish.owners[epoch].items():
                if not (0 <= bin < len(owners) and 0 <= worker < workers):
                    raise ImpossibleError
                owners[bin] = worker
            if max(owners) >= workers:
                raise ImpossibleError
            routing = Routing(np.array(owners), workers)
    return routing
