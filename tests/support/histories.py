"""Playing a story on the engine beside its model, and comparing the two."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from godwit.model import requests, tree
from godwit.model.ids import BinId, Epoch, WorkerId
from godwit.model.routing import Update
from godwit.state import file as state_file
from godwit.worker.work import Work
from tests.support.counting_workloads import Workload
from tests.support.history_end import check_end
from tests.support.history_events import (
    Abort,
    Event,
    Feed,
    Finish,
    Kill,
    Migrate,
    Read,
    Restart,
    Restore,
    Schedule,
    Split,
    Story,
)
from tests.support.history_query import Hasher, ModelledQuery
from tests.support.routes import Cut, End, Stop, Trip, Wish


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory, where there is one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


def play(story: Story, workload: Workload, hashes: Hasher) -> Counter[str]:
    """Let a story happen and check all that is promised at its end; returns what was seen."""
    small_files = patch.object(state_file, "PART_BYTES", 500)
    early_merges = patch.object(tree, "MAX_LAYERS", story.max_layers)
    with scratch() as directory, small_files, early_merges:
        query = ModelledQuery(directory, story, workload, hashes)
        with patch.object(Work, "run", query.listening(Work.run)):
            for event in story.events:
                _happen(query, event)
            check_end(query)
        return query.seen


def _happen(query: ModelledQuery, event: Event) -> None:
    match event:
        case Feed(rows):
            query.feed(rows)
        case Migrate():
            _migrate(query, event)
        case Abort():
            _abort(query, event)
        case Split():
            _split(query, event)
        case Schedule():
            _schedule(query, event)
        case Read():
            if query.begun >= 0:
                _read(query, event)
        case Finish():
            query.ask(dict.fromkeys(query.timed, End()), query.sim.driver.requests.finish)
        case Restart():
            query.restart(event)
        case Kill():
            query.arm(event)
        case Restore(index):
            if epochs := query.history.epochs():
                query.restore(epochs[index % len(epochs)])


def _migrate(query: ModelledQuery, event: Migrate) -> None:
    names, _ = query.asked(event.operator)
    now, number = query.now, next(query.numbers)
    options: dict[str, Any] = {
        "strategy": event.strategy,
        "supersede": event.supersede,
        "on_timeout": event.on_timeout,
    }
    until = None if event.deadline is None else now + event.deadline
    routings = {name: query.routes[name].now for name in names}
    targets = {name: event.target(routing.bins) for name, routing in routings.items()}
    trips = {
        name: Trip(routings[name], targets[name], **options, asked=now, number=number)
        for name in names
    }
    trips = {name: replace(trip, deadline=until) for name, trip in trips.items()}
    options |= {"deadline": event.deadline}
    query.ask(trips, lambda: query.sim.driver.requests.migrate_together(targets, **options))


def _abort(query: ModelledQuery, event: Abort) -> None:
    """Of all operators: of those that the newest migration is open of."""
    names, place = query.asked(event.operator)
    newest = max(query.history.requests.ids(), default=0)
    timelines = query.sim.driver.timelines
    open_ones = {name: number for name in names if (number := query.routes[name].trip) is not None}
    last = max(open_ones.values(), default=None)
    moving = [name for name, number in open_ones.items() if number == last]
    open = timelines[moving[0]].migration if moving else None
    assert (open is None) == (not moving)
    id = open.id if open else newest
    rollback = event.rollback
    query.ask(
        dict.fromkeys(moving or names[:1], Stop(rollback)),
        lambda: query.sim.abort(id, rollback=rollback, operator=place),
    )


def _split(query: ModelledQuery, event: Split) -> None:
    names, place = query.asked(event.operator)
    one = query.routes[names[0]]
    what = "splits" if event.bins > one.now.bins else "merges"
    what += ", migration open" * one.is_moving + ", scheduled" * one.is_wished
    before = query.seen["requests accepted"]
    asked = dict.fromkeys(names, Cut(event.bins))
    query.ask(asked, lambda: query.sim.split(event.bins, operator=place))
    query.seen[what] += query.seen["requests accepted"] - before


def _schedule(query: ModelledQuery, event: Schedule) -> None:
    names, place = query.asked(event.operator)
    updates = _updates(query, names[0], event.updates)
    wish = _wish(query, names[0], updates, event.workers)
    query.ask(
        dict.fromkeys(names, wish),
        lambda: query.sim.schedule(updates, event.workers, operator=place),
    )


def _read(query: ModelledQuery, event: Read) -> None:
    """Updates that come as data: a known id changes nothing, and who asks is not told more."""
    names, place = query.asked(event.operator)
    name, several = names[0], [query.routes[name] for name in names]
    updates = _updates(query, name, ((a or 0, bin, worker) for a, bin, worker in event.updates))
    wish = _wish(query, name, updates, event.workers, event.id)
    next_or_at = [
        (at, BinId(update.bin), WorkerId(update.worker))
        for update, (ahead, *_) in zip(updates, event.updates, strict=True)
        for at in [None if ahead is None else Epoch(update.epoch)]
    ]
    read = requests.StreamedUpdates(event.id, place, tuple(next_or_at), event.workers)
    number, before = next(query.numbers), query.control()["control"]
    dead = query.dies(lambda: query.sim.driver.requests.add_streamed(Epoch(query.begun), [read]))
    there = query.control()["control"] != before
    if dead is None:
        known = any(routes.is_known(event.id) for routes in several)
        possible = not known and all(routes.is_possible(wish) for routes in several)
        assert there == possible
        query.seen["updates read"] += possible
        for routes in several:
            if not known:
                routes.know(wish)
            if there:
                routes.add(wish, number)
    else:
        if there:
            for routes in several:
                routes.leave(wish, number)
        query.restart(dead)
        query.run(query.sim.resume)


def _updates(
    query: ModelledQuery, name: str, updates: Iterable[tuple[int, int, int]]
) -> list[Update]:
    """Epochs are counted from the next, and bins beyond the first unknown one wrap around."""
    bins, first = query.routes[name].now.bins, query.begun + 1
    return [Update(first + a, bin % (bins + 1), worker) for a, bin, worker in updates]


def _wish(
    query: ModelledQuery,
    name: str,
    updates: Iterable[Update],
    workers: int | None,
    source: str | None = None,
) -> Wish:
    wish = Wish({}, query.routes[name].now.bins, workers, source)
    for update in updates:
        wish.owners.setdefault(update.epoch, {})[update.bin] = update.worker
    return wish
