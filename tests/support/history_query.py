"""A query on the engine and its model, side by side, through all its lives.

The model knows batches and requests, but no processes, files or deaths.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from godwit.errors import RefusedError
from godwit.log import History
from godwit.log.layout import TICKS
from godwit.model import requests
from godwit.model.hashing import Hashes
from godwit.model.receipt import Receipt
from godwit.worker.work import Work
from tests.support.counting_workloads import Beginning, Row, Workload
from tests.support.death import Death, Reaper
from tests.support.history_events import Kill, Restart, Story
from tests.support.operator_simulation import OperatorSimulation
from tests.support.routes import Asked, Routes, Said, Trip, is_accepted, restart

Hasher = Callable[[pa.Table], Hashes]


class ModelledQuery:
    """What happens to the engine is told to the model; a process that dies is started again, as its
    death says."""

    def __init__(self, checkpoint: Path, story: Story, workload: Workload, hashes: Hasher) -> None:
        self.seen = Counter[str]()
        self.now = 0.0  # a batch comes every second
        self.hashes = hashes
        self._lives = 0  # how often the process was started
        self._said: dict[tuple[int, str, int], dict[int, Collection[int]]] = defaultdict(dict)
        # Migrations: by the number of the request its id and the operators.
        self.accepted: dict[int, tuple[int, list[str]]] = {}
        self.numbers = count(1)
        self._named: tuple[int | None, int | None] = story.workers, story.bins  # at the last start
        self.checkpoint = checkpoint
        self.story = story
        operators = [*workload.before, workload.operator]
        self.names = [operator.name for operator in operators]
        self.timed = [operator.name for operator in operators if operator.delay is not None]
        self.model = workload.model()
        self.batches: list[tuple[Row, ...]] = []
        self.begins: dict[int, tuple[float, int]] = {}  # by epoch, and which process decided it
        self.publishers: dict[int, int] = {}
        self.routes = {name: Routes(story.workers, story.bins) for name in self.names}
        self.history = History(checkpoint)
        self._reaper = Reaper()
        self._kill: Kill | None = None
        self.sim = OperatorSimulation(
            checkpoint,
            operators,
            workload.schema,
            workers=story.workers,
            bins=story.bins,
            retention=story.retention,
            hashes=hashes,
            clock=lambda: self.now,
            **workload.edges or {},
        )

    def listening(self, run: Callable[..., Receipt]) -> Callable[..., Receipt]:
        """Work, listening to what workers say that they have fetched."""

        def listen(work: Work, worker: int, batches: Iterable[pa.RecordBatch]) -> Receipt:
            receipt = run(work, worker, batches)
            self._said[self._lives, work.operator.name, work.epoch][worker] = receipt.ready
            return receipt

        return listen

    def arm(self, kill: Kill) -> None:
        """Let death wait for the process."""
        self._kill = kill
        self._reaper.arm(kill.point, kill.side, kill.skip)

    def disarm(self) -> None:
        """No death waits any longer."""
        self._reaper.revive()

    def asked(self, place: int | None) -> tuple[list[str], str | None]:
        """The operators that a request is for, and how it names them."""
        if place is None:
            return list(self.sim.driver.operators), None
        return [self.names[place]], self.names[place]

    def feed(self, rows: tuple[Row, ...]) -> None:
        self.now += 1
        self.batches.append(rows)
        self.run(lambda: self.sim.feed(rows))

    @property
    def begun(self) -> int:
        return self.routes[self.names[-1]].begun

    def dies(self, act: Callable[[], None]) -> Restart | None:
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

    def run(self, act: Callable[[], None]) -> None:
        """Run epochs; a process that died is started again and catches up."""
        dead = self.dies(act)
        self._follow()
        if dead is not None:
            self.restart(dead)
            self.run(self.sim.resume)

    def _follow(self) -> None:
        """Let the model begin the epochs whose intents were written."""
        for epoch in self.history.intents():
            if epoch > self.begun:
                said = {name: self._heard(name, epoch - 1) for name in self.names}
                for name, routes in self.routes.items():
                    routes.begin(epoch, self.now, said[name])
                if isinstance(self.model, Beginning):
                    intent = self.history.intent(epoch)
                    assert intent is not None
                    self.begins[epoch] = self.now, intent.generation
        if isinstance(self.model, Beginning):
            for epoch in self.history.epochs():
                manifest = self.history.manifest(epoch)
                assert manifest is not None
                self.publishers[epoch] = manifest.generation

    def _heard(self, name: str, epoch: int) -> Said:
        """What workers have said that they have, of an operator and of all that go its way."""
        one = self.routes[name]
        with_it = [name]
        if one.trip is not None:
            with_it = [
                other
                for other, routes in self.routes.items()
                if one.trip == routes.trip and (one.now, one.goal) == (routes.now, routes.goal)
            ]
        said = [self._said.get((self._lives, other, epoch)) for other in with_it]
        self.seen["steps together"] += len(said) > 1
        told = [one for one in said if one is not None]
        if len(told) < len(said):
            return None
        workers = set[int]().union(*told)
        return {w: set.intersection(*({*one.get(w, ())} for one in told)) for w in workers}

    def restart(self, event: Restart) -> None:
        """Start anew; a process that dies of it is started in the same way again."""
        self._lives += 1
        workers, bins = event.workers, event.bins
        if self.begun < 0:  # nothing is written down yet, so the program says it all
            workers, bins = workers or self.story.workers, bins or self.story.bins
        refused = restart(self.routes.values(), workers, bins, next(self.numbers))
        for number in refused:
            if self.accepted.pop(number, None):
                self.seen["accepted, and refused after a restart with other numbers"] += 1
        assert not refused or (self.begun < 0 and (workers, bins) != self._named)
        self._named = workers, bins
        while self.dies(lambda: self.sim.restart(workers=workers, bins=bins)):
            self.seen["killed in a restart"] += 1

    def restore(self, epoch: int) -> None:
        """Roll back; when interrupted, again."""
        while self.dies(lambda: self.sim.restore(epoch)):
            self.seen["killed in a rollback"] += 1
        self.seen["rolled back"] += 1
        self.history = History(self.checkpoint)  # which remembers what was undone
        for routes in self.routes.values():
            routes.restore(epoch)
        self.restart(Restart())
        there = self.history.requests.ids()
        self.accepted = {n: one for n, one in self.accepted.items() if one[0] in there}
        self.run(self.sim.resume)

    def ask(self, asked: Mapping[str, Asked], request: Callable[[], object]) -> None:
        """Ask operators for something: a request that one refuses changes nothing in any, an
        accepted one is durable."""
        number, before = next(self.numbers), self.control()
        parts = [(self.routes[name], one) for name, one in asked.items()]
        refused: list[RefusedError] = []

        def ask() -> None:
            try:
                request()
            except RefusedError as error:
                refused.append(error)

        dead = self.dies(ask)
        after = self.control()
        new = sorted(after["control"].keys() - before["control"])  # also if the process died
        accepted = [after["control"][id] for id in new]
        self.seen["requests accepted"] += len(accepted)
        self.seen["requests accepted by several"] += sum(len(names) > 1 for names in accepted)
        self.seen["requests refused"] += bool(refused)
        if refused:
            possible = [self.routes[name].is_possible(one) for name, one in asked.items()]
            assert not is_accepted(parts)
            self.seen["requests refused that some could accept"] += any(possible)
            assert after == before
        elif dead is None:
            assert accepted == [list(asked)]
        for names in accepted:
            assert names == list(asked)
            assert is_accepted(parts)
            for name, one in asked.items():
                self.routes[name].add(one, number)
                if isinstance(one, Trip):
                    self.accepted[number] = (new[-1], names)
        if dead is not None:
            self.restart(dead)
            self.run(self.sim.resume)

    def control(self) -> dict[str, Any]:
        control, driver = self.history.requests, self.sim.driver
        return {
            "control": {
                id: operators
                for id in control.ids()
                if (operators := [one.operator for one in requests.parts_of(control.request(id))])
            },
            "ticks": self.history.files.names(TICKS),
            "routings": [driver.routing(name) for name in self.names],
        }
