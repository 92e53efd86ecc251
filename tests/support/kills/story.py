"""What happens to a random graph: input, migrations, restarts and kills, all from a seed.

A story is a list of lives of an application, each but the last ended by a kill. Batches are written
and migrations asked for while the query runs, so what of them an epoch gets is a matter of time;
results must not be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from godwit.faults import POINTS, Side
from tests.support.counting_workloads import KEYS, Row, row_of
from tests.support.kills.graph import SOURCES, Graph
from tests.support.timed_workloads import at

BINS = (8, None, None, 4, 16)  # of lives: first the first, then any; a step an epoch, so few
STRATEGIES = ("paced", "all-at-once", "batched:3", "fluid", "matched")
SIDES: tuple[Side, ...] = ("before", "after")
IN_TASKS = ("delta", "outputs")
DELIVERY = "delivery"  # to one sink of several
WRITTEN: tuple[str, Side] = ("rows", "after")  # by a sink that has yet to commit them
# Before and after each point of an epoch; before and after one sink has got it, and within one.
MATRIX: Final = [
    *((point, side) for point in (*POINTS, DELIVERY) for side in SIDES),
    WRITTEN,
]
ASKED = "asked"  # a file in which an application tells what it asked for, a line each
LONGEST = 0.3  # seconds from a point to a kill at any moment after it


@dataclass(frozen=True, slots=True)
class Kill:
    """In the epoch that is so far `ahead` of the first that has not begun."""

    point: str
    side: Side
    ahead: int
    of: str | int | None = None  # the operator or the sink that it is about
    later: float | None = None  # so many seconds after the point, wherever the application is then

    def fault(self, next_epoch: int) -> str:
        """As `faults.reach` names it."""
        # The next epoch tells that the one before is committed.
        epoch = next_epoch + self.ahead - ((self.point, self.side) == ("commit", "after"))
        fault = f"{self.point}-{self.side}-{epoch}"
        return fault if self.of is None else f"{fault}-{self.of}"

    def __str__(self) -> str:
        of = "" if self.of is None else f" of {self.of}"
        later = "" if self.later is None else f" and {self.later * 1000:.0f} ms"
        return f"{self.side} {self.point}{of}{later}"


@dataclass(frozen=True, slots=True)
class Move:
    """A migration of an operator, or of all, to so many workers or to owners of bins, in turns."""

    operator: str | None
    to: int | tuple[int, ...]
    strategy: str


@dataclass(frozen=True, slots=True)
class Split:
    """So many bins for an operator, or for all: more than before, or fewer."""

    operator: str | None
    bins: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows for each source, and what is asked for just before they are there."""

    rows: tuple[tuple[str, tuple[Row, ...]], ...]
    asks: tuple[Move | Split, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """From the start of an application to its end."""

    workers: int | None
    bins: int | None
    batches: tuple[Batch, ...]
    kill: Kill | None
    lost: tuple[Kill, ...]  # processes of tasks, which Spark replaces


@dataclass(frozen=True, slots=True)
class Story:
    seed: int
    graph: Graph
    lives: tuple[Life, ...]
    by_tasks: bool  # tables of Delta and Iceberg get their files from tasks, however few rows

    @classmethod
    def of(cls, seed: int) -> "Story":
        """Of as many consecutive seeds as there are points, each kills first at another one."""
        chance = Random(seed)
        graph = Graph.of(chance)
        first = _kill(chance, graph, *MATRIX[seed % len(MATRIX)])
        kills: list[Kill | None] = [first]
        for _ in range(chance.randint(0, 1)):
            kills.append(_any_kill(chance, graph))
        lives = list[Life]()
        for kill in [*kills, None]:
            lives.append(_life(chance, graph, len(lives), kill))
        return cls(seed, graph, tuple(lives), chance.random() < 0.5)

    def files(self, source: str, lives: int) -> list[tuple[Row, ...]]:
        """The files of a source that are there after so many lives."""
        batches = (batch for life in self.lives[:lives] for batch in life.batches)
        return [rows for batch in batches for name, rows in batch.rows if name == source]


def _any_kill(chance: Random, graph: Graph) -> Kill:
    kill = _kill(chance, graph, *chance.choice(MATRIX))
    if chance.random() < 0.5:
        return kill
    later = round(chance.uniform(0, LONGEST), 3)
    return Kill(kill.point, kill.side, kill.ahead, kill.of, later)


def _kill(chance: Random, graph: Graph, point: str, side: Side) -> Kill:
    of: str | int | None = None
    if point in IN_TASKS:
        of = chance.choice(graph.steps).name
    elif point == DELIVERY:
        of = chance.randrange(len(graph.ends))
    return Kill(point, side, chance.randint(0, 2), of)


def _life(chance: Random, graph: Graph, number: int, kill: Kill | None) -> Life:
    """With at least as many epochs as its kill needs."""
    count = chance.randint(1, 2) if kill is None else kill.ahead + 1
    main = chance.choice(graph.sources)
    batches = tuple(_batch(chance, graph, 2 * number + place, main) for place in range(count))
    before = count if kill is None else kill.ahead  # epochs that surely come
    lost = [
        Kill(point, side, chance.randrange(before), chance.choice(graph.steps).name)
        for point in IN_TASKS
        for side in SIDES
        if before and chance.random() < 0.2
    ]
    workers = chance.randint(1, 3) if number == 0 else chance.choice([None, None, 1, 2, 3])
    bins = BINS[0] if number == 0 else chance.choice(BINS[1:])
    return Life(workers, bins, batches, kill, tuple(lost))


def _batch(chance: Random, graph: Graph, second: int, main: str) -> Batch:
    rows = tuple(
        (source, tuple(_row(chance, second) for _ in range(chance.randint(4, 12))))
        for source in SOURCES
        if source == main or (source in graph.sources and chance.random() < 0.6)
    )
    asks: list[Move | Split] = [*_moves(chance, graph), *_splits(chance, graph)]
    chance.shuffle(asks)
    return Batch(rows, tuple(asks))


def _row(chance: Random, second: int) -> Row:
    time = None if chance.random() < 0.05 else at(max(0, second + chance.randint(-2, 2)))
    return row_of(chance.choice(KEYS), at=time, n=chance.randint(-5, 9))


def _moves(chance: Random, graph: Graph) -> Sequence[Move]:
    if chance.random() < 0.3:
        return []
    operator = None if chance.random() < 0.4 else chance.choice(graph.steps).name
    to: int | tuple[int, ...] = chance.randint(1, 3)
    if chance.random() < 0.5:
        to = tuple(chance.choices(range(3), k=5))
    return [Move(operator, to, chance.choice(STRATEGIES))]


def _splits(chance: Random, graph: Graph) -> Sequence[Split]:
    if chance.random() < 0.6:
        return []
    operator = None if chance.random() < 0.5 else chance.choice(graph.steps).name
    return [Split(operator, chance.choice([4, 8, 16]))]
