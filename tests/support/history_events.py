"""What may happen to a query, as data. Faults are events like all others."""

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from hypothesis import strategies as st

from godwit import faults
from godwit.migration.strategies import Strategy, all_at_once, batched, fluid, matched, paced
from godwit.model import tree
from godwit.model.requests import OnTimeout
from godwit.model.routing import Routing
from tests.support.counting_workloads import Row, Workload
from tests.support.death import CHANGE


@dataclass(frozen=True, slots=True)
class Feed:
    """A batch arrives, and its epoch is run."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Migrate:
    """Ask an operator, by its place, or all of them for a migration; the pattern is repeated over
    the bins that there are.

    The deadline is so many batches ahead; one of the past must be refused.
    """

    operator: int | None
    workers: int
    pattern: tuple[int, ...]
    strategy: Strategy
    supersede: bool
    deadline: float | None
    on_timeout: OnTimeout

    def target(self, bins: int) -> Routing:
        owners = np.resize(np.array(self.pattern, np.int32), bins)
        return Routing(owners % self.workers, self.workers)


@dataclass(frozen=True, slots=True)
class Abort:
    """Ask for the end of the newest migration of an operator, or of all, if there is one."""

    operator: int | None
    rollback: bool


@dataclass(frozen=True, slots=True)
class Split:
    """Ask for another number of bins of an operator; many that would merge must be refused."""

    operator: int | None
    bins: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Ask for updates, each (epochs ahead, bin, worker); many of these must be refused."""

    operator: int | None
    updates: tuple[tuple[int, int, int], ...]
    workers: int | None


@dataclass(frozen=True, slots=True)
class Read:
    """The newest epoch has read updates among its records, each (epochs ahead or None: the next,
    bin, worker); an id may come again."""

    operator: int | None
    id: str
    updates: tuple[tuple[int | None, int, int], ...]
    workers: int | None


@dataclass(frozen=True, slots=True)
class Finish:
    """Ask for the end of the stream."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the process anew, dead or alive, perhaps with other workers or bins."""

    workers: int | None = None
    bins: int | None = None


@dataclass(frozen=True, slots=True)
class Kill:
    """The process dies when it comes to a fault point, having passed it `skip` times."""

    point: str
    side: faults.Side
    skip: int
    then: Restart


@dataclass(frozen=True, slots=True)
class Restore:
    """Roll back to one of the retained epochs."""

    index: int


Event = Feed | Migrate | Abort | Split | Schedule | Read | Finish | Restart | Kill | Restore


@dataclass(frozen=True, slots=True)
class Story:
    """How a query is started, and what happens to it then."""

    workers: int
    bins: int
    retention: int
    max_layers: int
    events: tuple[Event, ...]


WORKERS = st.sampled_from([2, 1, 3])
BINS = st.sampled_from([4, 64, 1, 256, 1 << 14])
RESTARTS = st.builds(Restart, st.none() | WORKERS, st.none() | BINS)


def stories(workload: Workload) -> st.SearchStrategy[Story]:
    """Some three epochs, each after nothing else, or after one or two events of other kinds."""
    rows = st.lists(st.sampled_from(workload.records), max_size=6)
    feed = st.builds(Feed, rows.map(tuple))
    restore = st.builds(Restore, st.integers(0, 5))
    requests = _requests(st.integers(0, len(workload.before)) | st.none())
    if any(one.delay is not None for one in (*workload.before, workload.operator)):
        requests |= st.builds(Finish)
    other = st.one_of(_kills(), requests, restore, RESTARTS)
    episode = st.tuples(feed) | st.tuples(other, feed) | st.tuples(other, other, feed)
    return st.builds(
        Story,
        workers=WORKERS,
        bins=BINS,
        retention=st.sampled_from([20, 1, 2, 4]),
        max_layers=st.sampled_from([tree.MAX_LAYERS, 1, 2]),
        events=st.lists(episode, max_size=5).map(lambda parts: tuple(chain.from_iterable(parts))),
    )


def mixed_stories(workload: Workload) -> st.SearchStrategy[Story]:
    """Some more epochs at the start, in which the bins of all operators are mixed over three
    workers, so that all share a segment, and are merged early."""

    def build(story: Story, bins: int, pattern: list[int], max_layers: int) -> Story:
        mixing = (
            Migrate(place, 3, tuple(pattern), all_at_once(), False, None, "finish")
            for place in range(len(workload.before) + 1)
        )
        feeds = (Feed(workload.records),) * 2
        events = (*feeds, *mixing, *feeds, *feeds, *story.events)
        return replace(story, workers=3, bins=bins, max_layers=max_layers, events=events)

    bins, patterns = st.sampled_from([256, 1 << 14]), st.permutations([0, 1, 2])
    return st.builds(build, stories(workload), bins, patterns, st.sampled_from([1, 2]))


def steered_stories(workload: Workload) -> st.SearchStrategy[Story]:
    """A query that nobody leaves alone: it begins with a migration of all operators, which takes
    some epochs and in which bins split, and before each of the next epochs there is a request or
    two, many for other bins or for all operators; or a death, a start with other numbers or a
    rollback."""
    few = st.lists(st.sampled_from(workload.records), min_size=1, max_size=3)
    feed = st.builds(Feed, few.map(tuple))
    places = st.none() | st.integers(0, len(workload.before))
    bins = st.sampled_from([64, 8, 256, 4, 16])
    splits = st.builds(Split, places, bins)
    request = st.one_of(splits, _requests(places))
    fault = st.one_of(_kills(), st.builds(Restart, st.none() | WORKERS, st.none() | bins))
    other = st.one_of(request, request, fault, st.builds(Restore, st.integers(0, 5)))
    episode = st.tuples(request, feed) | st.tuples(other, request, feed)
    strategies = st.sampled_from([fluid(), batched(3), matched(gap=1), paced("0 ms"), paced()])

    def build(
        story: Story,
        bins: int,
        strategy: Strategy,
        pattern: list[int],
        place: int | None,
        finer: int,
        parts: list[tuple[Event]],
    ) -> Story:
        opening = (
            Migrate(None, 3, tuple(pattern), strategy, False, None, "finish"),
            Split(place, bins * finer),
        )
        events = (Feed(workload.records), *opening, *chain.from_iterable(parts))
        return replace(story, bins=bins, events=events)

    episodes = st.lists(episode, min_size=2, max_size=6)
    patterns = st.permutations([0, 0, 1, 2])
    finer = st.sampled_from([2, 1, 16])
    return st.builds(build, stories(workload), bins, strategies, patterns, places, finer, episodes)


def _kills() -> st.SearchStrategy[Kill]:
    sides = st.sampled_from(["before", "after"])
    skips = st.sampled_from([0, 0, 0, 1, 2, 4])
    named = st.builds(Kill, st.sampled_from(faults.POINTS), sides, skips, RESTARTS)
    anywhere = st.builds(Kill, st.just(CHANGE), st.just("before"), st.integers(0, 40), RESTARTS)
    return named | anywhere


def _requests(operators: st.SearchStrategy[int | None]) -> st.SearchStrategy[Event]:
    patterns = st.lists(WORKERS, min_size=1, max_size=5).map(tuple)
    places = st.sampled_from([0, 1, 3, 63, 64, -1])
    ahead, owners = st.sampled_from([0, 1, 2, 3, -1]), st.sampled_from([0, 1, 2, -1])
    updates = st.lists(st.tuples(ahead, places, owners), max_size=3).map(tuple)
    schedules = st.builds(Schedule, operators, updates, st.none() | WORKERS)
    likely = st.tuples(st.sampled_from([None, None, 1, -1]), places, st.sampled_from([1, 0]))
    read = st.lists(likely, min_size=1, max_size=2).map(tuple)
    reads = st.builds(Read, operators, st.sampled_from("aab"), read, st.sampled_from([None, 2, 3]))
    strategies = st.sampled_from(
        [all_at_once(), fluid(), batched(3), matched(), matched(gap=1), paced("0 ms"), paced()]
    )
    migrations = st.builds(
        Migrate,
        operators,
        WORKERS,
        patterns,
        strategies,
        supersede=st.booleans(),
        deadline=st.none() | st.sampled_from([0.0, 1.0, 2.0, -1.0]),
        on_timeout=st.sampled_from(["finish", "rollback"]),
    )
    splits = st.builds(Split, operators, BINS)
    return migrations | splits | schedules | reads | st.builds(Abort, operators, st.booleans())
