"""Playing a story on the engine beside its model, and comparing the two.

The model knows batches and requests, but no processes, files or deaths.
"""

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from godwit.errors import RefusedError
from godwit.inspect.audit import verify
from godwit.log import History
from godwit.log.layout import TICKS
from godwit.migration.migration import OPEN
from godwit.migration.strategies import AllAtOnce
from godwit.model import requests, tree
from godwit.model.files import EVERYWHERE
from godwit.model.hashing import Hashes
from godwit.model.ids import BinId, Epoch, WorkerId
from godwit.model.manifest import Manifest, output_files, state_files
from godwit.model.receipt import Receipt
from godwit.model.routing import SEGMENTS, Update
from godwit.state import file as state_file
from godwit.worker.work import Work
from tests.support.counting_workloads import Beginning, Finite, Row, Workload, in_order, tabulate
from tests.support.death import Death, Reaper
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
from tests.support.operator_simulation import OperatorSimulation
from tests.support.routes import (
    Asked,
    Cut,
    End,
    Routes,
    Said,
    Stop,
    Trip,
    Wish,
    is_accepted,
    restart,
)

LONG = 12  # epochs: a migration that takes longer than this is brought to its end otherwise

Hasher = Callable[[pa.Table], Hashes]


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
        play = _Play(directory, story, workload, hashes)
        with patch.object(Work, "run", play.listening(Work.run)):
            for event in story.events:
                play.happen(event)
            play.end()
        return play.seen


class _Play:
    def __init__(self, checkpoint: Path, story: Story, workload: Workload, hashes: Hasher) -> None:
        self.seen = Counter[str]()
        self._now = 0.0  # a batch comes every second
        self._hashes = hashes
        self._lives = 0  # how often the process was started
        self._said: dict[tuple[int, str, int], dict[int, Collection[int]]] = defaultdict(dict)
        # Migrations: by the number of the request its id and the operators.
        self._accepted: dict[int, tuple[int, list[str]]] = {}
        self._numbers = count(1)
        self._named: tuple[int | None, int | None] = story.workers, story.bins  # at the last start
        self._checkpoint = checkpoint
        self._story = story
        operators = [*workload.before, workload.operator]
        self._names = [operator.name for operator in operators]
        self._timed = [operator.name for operator in operators if operator.delay is not None]
        self._model = workload.model()
        self._batches: list[tuple[Row, ...]] = []
        self._begins: dict[int, tuple[float, int]] = {}  # by epoch, and which process decided it
        self._publishers: dict[int, int] = {}
        self._routes = {name: Routes(story.workers, story.bins) for name in self._names}
        self._history = History(checkpoint)
        self._reaper = Reaper()
        self._kill: Kill | None = None
        self._sim = OperatorSimulation(
            checkpoint,
            operators,
            workload.schema,
            workers=story.workers,
            bins=story.bins,
            retention=story.retention,
            hashes=hashes,
            clock=lambda: self._now,
            **workload.edges or {},
        )

    def listening(self, run: Callable[..., Receipt]) -> Callable[..., Receipt]:
        """Work, listening to what workers say that they have fetched."""

        def listen(work: Work, worker: int, batches: Iterable[pa.RecordBatch]) -> Receipt:
            receipt = run(work, worker, batches)
            self._said[self._lives, work.operator.name, work.epoch][worker] = receipt.ready
            return receipt

        return listen

    def happen(self, event: Event) -> None:
        match event:
            case Feed(rows):
                self._feed(rows)
            case Migrate():
                self._migrate(event)
            case Abort():
                self._abort(event)
            case Split(bins=bins):
                names, place = self._asked(event.operator)
                one = self._routes[names[0]]
                what = "splits" if bins > one.now.bins else "merges"
                what += ", migration open" * one.is_moving + ", scheduled" * one.is_wished
                before = self.seen["requests accepted"]
                asked = dict.fromkeys(names, Cut(bins))
                self._ask(asked, lambda: self._sim.split(bins, operator=place))
                self.seen[what] += self.seen["requests accepted"] - before
            case Schedule():
                names, place = self._asked(event.operator)
                updates = self._updates(names[0], event.updates)
                wish = self._wish(names[0], updates, event.workers)
                self._ask(
                    dict.fromkeys(names, wish),
                    lambda: self._sim.schedule(updates, event.workers, operator=place),
                )
            case Read():
                if self._begun >= 0:
                    self._read(event)
            case Finish():
                self._ask(dict.fromkeys(self._timed, End()), self._sim.driver.requests.finish)
            case Restart():
                self._restart(event)
            case Kill():
                self._kill = event
                self._reaper.arm(event.point, event.side, event.skip)
            case Restore(index):
                if epochs := self._history.epochs():
                    self._restore(epochs[index % len(epochs)])

    def _asked(self, place: int | None) -> tuple[list[str], str | None]:
        """The operators that a request is for, and how it names them."""
        if place is None:
            return list(self._sim.driver.operators), None
        return [self._names[place]], self._names[place]

    def _migrate(self, event: Migrate) -> None:
        names, _ = self._asked(event.operator)
        now, number = self._now, next(self._numbers)
        options: dict[str, Any] = {
            "strategy": event.strategy,
            "supersede": event.supersede,
            "on_timeout": event.on_timeout,
        }
        until = None if event.deadline is None else now + event.deadline
        routings = {name: self._routes[name].now for name in names}
        targets = {name: event.target(routing.bins) for name, routing in routings.items()}
        trips = {
            name: Trip(routings[name], targets[name], **options, asked=now, number=number)
            for name in names
        }
        trips = {name: replace(trip, deadline=until) for name, trip in trips.items()}
        options |= {"deadline": event.deadline}
        self._ask(trips, lambda: self._sim.driver.requests.migrate_together(targets, **options))

    def _abort(self, event: Abort) -> None:
        """Of all operators: of those that the newest migration is open of."""
        names, place = self._asked(event.operator)
        newest = max(self._history.requests.ids(), default=0)
        timelines = self._sim.driver.timelines
        open_ones = {
            name: number for name in names if (number := self._routes[name].trip) is not None
        }
        last = max(open_ones.values(), default=None)
        moving = [name for name, number in open_ones.items() if number == last]
        open = timelines[moving[0]].migration if moving else None
        assert (open is None) == (not moving)
        id = open.id if open else newest
        rollback = event.rollback
        self._ask(
            dict.fromkeys(moving or names[:1], Stop(rollback)),
            lambda: self._sim.abort(id, rollback=rollback, operator=place),
        )

    def _feed(self, rows: tuple[Row, ...]) -> None:
        self._now += 1
        self._batches.append(rows)
        self._run(lambda: self._sim.feed(rows))

    @property
    def _begun(self) -> int:
        return self._routes[self._names[-1]].begun

    def _updates(self, name: str, updates: Iterable[tuple[int, int, int]]) -> list[Update]:
        """Epochs are counted from the next, and bins beyond the first unknown one wrap around."""
        bins, first = self._routes[name].now.bins, self._begun + 1
        return [Update(first + a, bin % (bins + 1), worker) for a, bin, worker in updates]

    def _wish(
        self, name: str, updates: Iterable[Update], workers: int | None, source: str | None = None
    ) -> Wish:
        wish = Wish({}, self._routes[name].now.bins, workers, source)
        for update in updates:
            wish.owners.setdefault(update.epoch, {})[update.bin] = update.worker
        return wish

    def _read(self, event: Read) -> None:
        """Updates that come as data: a known id changes nothing, and who asks is not told more."""
        names, place = self._asked(event.operator)
        name, several = names[0], [self._routes[name] for name in names]
        updates = self._updates(name, ((a or 0, bin, worker) for a, bin, worker in event.updates))
        wish = self._wish(name, updates, event.workers, event.id)
        next_or_at = [
            (at, BinId(update.bin), WorkerId(update.worker))
            for update, (ahead, *_) in zip(updates, event.updates, strict=True)
            for at in [None if ahead is None else Epoch(update.epoch)]
        ]
        read = requests.StreamedUpdates(event.id, place, tuple(next_or_at), event.workers)
        number, before = next(self._numbers), self._control()["control"]
        dead = self._dies(
            lambda: self._sim.driver.requests.add_streamed(Epoch(self._begun), [read])
        )
        there = self._control()["control"] != before
        if dead is None:
            known = any(routes.is_known(event.id) for routes in several)
            possible = not known and all(routes.is_possible(wish) for routes in several)
            assert there == possible
            self.seen["updates read"] += possible
            for routes in several:
                if not known:
                    routes.know(wish)
                if there:
                    routes.add(wish, number)
        else:
            if there:
                for routes in several:
                    routes.leave(wish, number)
            self._restart(dead)
            self._run(self._sim.resume)

    # -- what may end in death -----------------------------------------------------------------

    def _dies(self, act: Callable[[], None]) -> Restart | None:
        """Do something; if the process dies of it, how it is to be started again."""
        try:
            with self._reaper.at_work():
                act()
        except Death:
            kill = self._kill
            assert kill is not None
            self.seen[f"killed {kill.side} {kill.point}"] += 1
            self._reaper.revive()
            return kill.then
        assert not self._reaper.dead, "a death was swallowed"
        return None

    def _run(self, act: Callable[[], None]) -> None:
        """Run epochs; a process that died is started again and catches up."""
        dead = self._dies(act)
        self._follow()
        if dead is not None:
            self._restart(dead)
            self._run(self._sim.resume)

    def _follow(self) -> None:
        """Let the model begin the epochs whose intents were written."""
        for epoch in self._history.intents():
            if epoch > self._begun:
                said = {name: self._heard(name, epoch - 1) for name in self._names}
                for name, routes in self._routes.items():
                    routes.begin(epoch, self._now, said[name])
                if isinstance(self._model, Beginning):
                    intent = self._history.intent(epoch)
                    assert intent is not None
                    self._begins[epoch] = self._now, intent.generation
        if isinstance(self._model, Beginning):
            for epoch in self._history.epochs():
                manifest = self._history.manifest(epoch)
                assert manifest is not None
                self._publishers[epoch] = manifest.generation

    def _heard(self, name: str, epoch: int) -> Said:
        """What workers have said that they have, of an operator and of all that go its way."""
        one = self._routes[name]
        with_it = [name]
        if one.trip is not None:
            with_it = [
                other
                for other, routes in self._routes.items()
                if one.trip == routes.trip and (one.now, one.goal) == (routes.now, routes.goal)
            ]
        said = [self._said.get((self._lives, other, epoch)) for other in with_it]
        self.seen["steps together"] += len(said) > 1
        told = [one for one in said if one is not None]
        if len(told) < len(said):
            return None
        workers = set[int]().union(*told)
        return {w: set.intersection(*({*one.get(w, ())} for one in told)) for w in workers}

    def _restart(self, event: Restart) -> None:
        """Start anew; a process that dies of it is started in the same way again."""
        self._lives += 1
        workers, bins = event.workers, event.bins
        if self._begun < 0:  # nothing is written down yet, so the program says it all
            workers, bins = workers or self._story.workers, bins or self._story.bins
        refused = restart(self._routes.values(), workers, bins, next(self._numbers))
        for number in refused:
            if self._accepted.pop(number, None):
                self.seen["accepted, and refused after a restart with other numbers"] += 1
        assert not refused or (self._begun < 0 and (workers, bins) != self._named)
        self._named = workers, bins
        while self._dies(lambda: self._sim.restart(workers=workers, bins=bins)):
            self.seen["killed in a restart"] += 1

    def _restore(self, epoch: int) -> None:
        """Roll back; when interrupted, again."""
        while self._dies(lambda: self._sim.restore(epoch)):
            self.seen["killed in a rollback"] += 1
        self.seen["rolled back"] += 1
        self._history = History(self._checkpoint)  # which remembers what was undone
        for routes in self._routes.values():
            routes.restore(epoch)
        self._restart(Restart())
        there = self._history.requests.ids()
        self._accepted = {n: one for n, one in self._accepted.items() if one[0] in there}
        self._run(self._sim.resume)

    def _ask(self, asked: Mapping[str, Asked], request: Callable[[], object]) -> None:
        """Ask operators for something: a request that one refuses changes nothing in any, an
        accepted one is durable."""
        number, before = next(self._numbers), self._control()
        parts = [(self._routes[name], one) for name, one in asked.items()]
        refused: list[RefusedError] = []

        def ask() -> None:
            try:
                request()
            except RefusedError as error:
                refused.append(error)

        dead = self._dies(ask)
        after = self._control()
        new = sorted(after["control"].keys() - before["control"])  # also if the process died
        accepted = [after["control"][id] for id in new]
        self.seen["requests accepted"] += len(accepted)
        self.seen["requests accepted by several"] += sum(len(names) > 1 for names in accepted)
        self.seen["requests refused"] += bool(refused)
        if refused:
            possible = [self._routes[name].is_possible(one) for name, one in asked.items()]
            assert not is_accepted(parts)
            self.seen["requests refused that some could accept"] += any(possible)
            assert after == before
        elif dead is None:
            assert accepted == [list(asked)]
        for names in accepted:
            assert names == list(asked)
            assert is_accepted(parts)
            for name, one in asked.items():
                self._routes[name].add(one, number)
                if isinstance(one, Trip):
                    self._accepted[number] = (new[-1], names)
        if dead is not None:
            self._restart(dead)
            self._run(self._sim.resume)

    def _control(self) -> dict[str, Any]:
        control, driver = self._history.requests, self._sim.driver
        return {
            "control": {
                id: operators
                for id in control.ids()
                if (operators := [one.operator for one in requests.parts_of(control.request(id))])
            },
            "ticks": self._history.files.names(TICKS),
            "routings": [driver.routing(name) for name in self._names],
        }

    # -- what must hold at the end -------------------------------------------------------------

    def end(self) -> None:
        """Start the query once more, so that it tidies up behind the dead, and check everything."""
        self._reaper.revive()
        self._come_to_an_end()
        self._restart(Restart())
        self._check_ends()
        last = len(self._batches) - 1
        assert self._sim.committed == last
        expected = list(self._expected())
        delivered = {epoch: in_order(rows) for epoch, rows in self._sim.delivered.items()}
        assert delivered == {epoch: rows for epoch, (rows, _) in enumerate(expected)}
        if last >= 0:
            retained = self._history.epochs()
            assert retained == list(range(max(0, last + 1 - self._story.retention), last + 1))
            self.seen["epochs pruned"] += retained[0]
            for epoch in retained:
                self._check_epoch(epoch, expected[epoch][1])
            assert verify(self._checkpoint).findings == []
            self._check_files(retained)

    def _come_to_an_end(self) -> None:
        """Every migration that was accepted ends: by itself, or, if that would take too long, when
        another one goes its way at once."""
        for _ in range(LONG):
            if self._are_moving():
                self._feed(())
        for name in self._are_moving():
            goal, now = self._routes[name].goal, self._now
            options: dict[str, Any] = {"strategy": AllAtOnce(), "supersede": True}
            trip = Trip(self._routes[name].now, goal, **options, asked=now)
            self._ask({name: trip}, partial(self._sim.migrate, goal, **options, operator=name))
            self.seen["migrations that take long"] += 1
        if self._are_moving():
            self._feed(())
        assert self._are_moving() == []

    def _check_ends(self) -> None:
        driver = self._sim.driver
        for name in self._names:
            assert driver.timelines[name].migration is None
        for id, names in self._accepted.values():
            ends = driver.timelines.ended(id)
            for name in names:
                assert name in ends, f"migration {id} of {name} has no end"
                assert ends[name].phase not in OPEN
                self.seen[f"migrations {ends[name].phase}"] += 1

    def _are_moving(self) -> list[str]:
        """The operators that the model has a migration of."""
        return [name for name in self._names if self._routes[name].is_moving]

    def _expected(self) -> Iterator[tuple[list[Row], dict[str, list[Row]]]]:
        """Outputs and state of each epoch."""
        for epoch, rows in enumerate(self._batches):
            if self._timed and epoch == self._routes[self._timed[-1]].end:
                assert isinstance(self._model, Finite)
                self._model.finish()
                self.seen["ends of a stream"] += 1
            if isinstance(self._model, Beginning):
                self._model.begin(*self._begins[epoch], self._publishers[epoch])
            outputs = in_order(self._model.feed(rows))
            yield outputs, {name: in_order(table) for name, table in self._model.state().items()}

    def _check_epoch(self, epoch: int, tables: dict[str, list[Row]]) -> None:
        intent = self._history.intent(epoch)
        assert intent is not None
        assert dict(intent.routings) == {name: one.of(epoch) for name, one in self._routes.items()}
        for place, expected in tables.items():
            operator, _, table = place.rpartition(":")
            rows = self._sim.state(table, epoch, operator=operator or None)
            assert tabulate(rows) == expected
        self._check_workers(epoch)

    def _check_workers(self, epoch: int) -> None:
        """Each row that is new in an epoch was written by the worker that has the bin of its key:
        the top bits of its hash."""
        manifest = self._history.manifest(epoch)
        assert manifest is not None
        for name, routes in self._routes.items():
            owners = routes.of(epoch).owners
            for spec in self._sim.driver.operators[name].tables:
                of_epoch = re.compile(rf"state/{name}/{spec.name}/e{epoch}-w(\d+)-delta-")
                for ref in manifest.trees[name][spec.name].files:
                    if written := of_epoch.match(ref.name):
                        file = state_file.read(self._history.files, ref.name, spec, ref)
                        keys = file.whole().rows.select(spec.key.names)
                        bins = [int(h) * len(owners) >> 64 for h in self._hashes(keys)]
                        assert {int(owners[bin]) for bin in bins} == {int(written[1])}
                        self.seen["files of a worker"] += 1

    def _check_files(self, retained: Sequence[int]) -> None:
        """Below `state` and `outputs` is what retained manifests name, and nothing else."""
        named, parts = set[str](), set[str]()
        for epoch in retained:
            manifest = self._history.manifest(epoch)
            assert manifest is not None
            parts |= merged_parts(manifest)
            named.update(ref.name for ref in (*state_files(manifest), *output_files(manifest)))
        root = self._checkpoint / "godwit"
        paths = [*(root / "state").rglob("*"), *(root / "outputs").rglob("*")]
        assert {str(path.relative_to(root)) for path in paths if path.is_file()} == named
        self.seen["merged parts of segments"] += len(parts)
        self.seen["merged files"] += sum("-merge-" in name for name in named)
        self.seen["cut files"] += sum(name.endswith("-1.arrow") for name in named)


def merged_parts(manifest: Manifest) -> set[str]:
    """The merged files of which some run has not all slices of its segment."""
    found = (one.unpack() for tables in manifest.trees.values() for one in tables.values())
    return {
        run.file
        for one in found
        for segment in range(SEGMENTS)
        for run in one.runs(segment)
        if run.slices != EVERYWHERE and "-merge-" in run.file
    }
