"""Random graphs of two to six operators over one or two sources, with several sinks, and a model.

The model knows epochs and records, but no files, workers, processes or deaths.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import godwit as gw
from godwit.spark.sinks.sink import Sink
from tests.support.counting_workloads import Row
from tests.support.kills.graph_joins import JOINS
from tests.support.kills.graph_parts import ONE_INPUT, Part, late_of

SOURCES = ("left", "right")
OPERATORS = 6  # at the most
SINKS = ("files", "delta", "delta by key", "iceberg", "postgres", "postgres by key")

Records = Mapping[str, Sequence[Row]]  # by source


@dataclass(frozen=True, slots=True)
class Step:
    """An operator of a graph, and the streams that each of its inputs is the union of."""

    name: str
    kind: str
    takes: tuple[tuple[str, ...], ...]

    @property
    def part(self) -> Part:
        return JOINS.get(self.kind) or ONE_INPUT[self.kind]


@dataclass(frozen=True, slots=True)
class End:
    """A sink, of the outputs of an operator or of the records that are made of them."""

    name: str
    kind: str
    operator: str
    coded: bool  # code stands between the operator and the sink
    late: bool = False  # it gets the late records of the operator instead

    def told(self, kind: str) -> str:
        return f"{self.operator}{' late' * self.late}->{kind}{' (code)' * self.coded}"


@dataclass(frozen=True)
class Graph:
    steps: tuple[Step, ...]
    ends: tuple[End, ...]
    idle: bool  # its sources may fall silent

    @classmethod
    def of(cls, chance: Random) -> "Graph":
        steps = tuple(_steps(chance))
        ends = [*_ends(chance, steps)]
        may = [step for step in steps if step.part.may_keep_late]
        if may and chance.random() < 0.5:
            kind = chance.choice([kind for kind in SINKS if not kind.endswith(" by key")])
            ends.append(End("late", kind, chance.choice(may).name, coded=False, late=True))
        return cls(steps, tuple(ends), chance.random() < 0.3)

    def told(self, *, has_postgres: bool) -> str:
        steps = (
            f"{step.name}={step.kind}({', '.join('+'.join(names) for names in step.takes)})"
            for step in self.steps
        )
        ends = (
            end.told(end.kind if has_postgres else end.kind.replace("postgres", "delta"))
            for end in self.ends
        )
        idle = ["sources may be idle"] if self.idle else []
        return "; ".join([*steps, *ends, *idle])

    @property
    def sources(self) -> tuple[str, ...]:
        """Those that an operator takes."""
        taken = {name for step in self.steps for names in step.takes for name in names}
        return tuple(source for source in SOURCES if source in taken)

    @cached_property
    def by_name(self) -> Mapping[str, Step]:
        return {step.name: step for step in self.steps}

    def job(self, sources: Mapping[str, gw.Stream], sinks: Mapping[str, Sink]) -> gw.Job:
        raw, streams = dict[str, gw.Stream](), dict(sources)
        late = {end.operator: sinks[end.name] for end in self.ends if end.late}
        for step in self.steps:
            inputs = (
                streams[first].union(*map(streams.__getitem__, others))
                for first, *others in step.takes
            )
            raw[step.name] = stream = step.part.add(step.name, *inputs, late=late.get(step.name))
            streams[step.name] = _as_records(stream, step.part.records)
        return gw.query(
            *(
                (streams if end.coded else raw)[end.operator].to(sinks[end.name])
                for end in self.ends
                if not end.late
            )
        )


def _as_records(stream: gw.Stream, expressions: Sequence[str]) -> gw.Stream:
    if not expressions:
        return stream
    return stream.transform(lambda rows: rows.selectExpr(*expressions))


def _steps(chance: Random) -> Iterator[Step]:
    streams, joined = list(SOURCES), set[str]()
    for number in range(chance.randint(2, OPERATORS)):
        name = f"o{number}"
        kind = chance.choice([*JOINS] if chance.random() < 0.2 else [*ONE_INPUT])
        is_join = kind in JOINS
        # A join of joins would have too many rows for a model that compares all with all.
        may_take = [one for one in streams if not is_join or one not in joined]
        step = Step(name, kind, tuple(tuple(_some(chance, may_take)) for _ in range(1 + is_join)))
        yield step
        if step.part.records:
            streams.append(name)
        if is_join or joined & {one for names in step.takes for one in names}:
            joined.add(name)


def _some(chance: Random, streams: Sequence[str]) -> list[str]:
    """One stream or two, rather new ones, so that operators stand behind each other."""
    newest = streams[-2:] if chance.random() < 0.5 else streams
    return chance.sample(newest, chance.choice([1, 1, min(2, len(newest))]))


def _ends(chance: Random, steps: Sequence[Step]) -> Iterator[End]:
    """What nobody takes ends in a sink, and so does some of the rest; there are two at least."""
    taken = {name for step in steps for names in step.takes for name in names}
    last = [step for step in steps if step.name not in taken]
    rest = [step for step in steps if step.name in taken]
    chance.shuffle(rest)
    others = max(2 - len(last), chance.randint(0, min(2, len(rest))))
    ended = [*last, *rest[:others]]
    ended += [chance.choice(steps)] if len(ended) < OPERATORS else []  # perhaps with two sinks
    chance.shuffle(ended)
    kinds = [*SINKS]
    chance.shuffle(kinds)
    for number, step in enumerate(ended):
        coded = bool(step.part.records) and chance.random() < 0.3
        kind = kinds[number % len(kinds)]
        if coded or not step.part.sink_key:
            kind = kind.removesuffix(" by key")
        yield End(f"s{number}", kind, step.name, coded)


def sink_key(graph: Graph, end: End) -> tuple[str, ...]:
    """What tells the rows of a sink apart that has the newest result of each key."""
    return graph.by_name[end.operator].part.sink_key if end.kind.endswith(" by key") else ()


def make_sinks(graph: Graph, home: Path, dsn: str | None) -> dict[str, Sink]:
    """Without a PostgreSQL server, what would go there goes to a Delta table."""
    return {end.name: _sink(end, home, dsn, sink_key(graph, end) or None) for end in graph.ends}


def _sink(end: End, home: Path, dsn: str | None, key: tuple[str, ...] | None) -> Sink:
    place = str(home / end.name)
    match end.kind.split()[0]:
        case "files":
            return gw.files(place)
        case "iceberg":
            return gw.iceberg(f"ns.{end.name}", catalog="lake", properties=lake(home, end))
        case "postgres" if dsn is not None:
            return gw.postgres(dsn, end.name, key=key)
        case _:
            return gw.delta(place, key=key)


def lake(home: Path, end: End) -> dict[str, str]:
    """An Iceberg catalog in a file."""
    place = home / end.name
    return {"type": "sql", "uri": f"sqlite:///{place}.db", "warehouse": f"file://{place}"}


# -- what must come of it --------------------------------------------------------------------------


class GraphModel:
    """Operators run one after the other, in each epoch once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._models: dict[str, Any] = {step.name: step.part.model() for step in graph.steps}
        self._clocks: dict[str, list[datetime | None]] = {
            step.name: [None] * len(step.takes) for step in graph.steps
        }
        self._watermarks: dict[str, datetime] = {}

    def feed(
        self, records: Records, decided: Mapping[str, datetime] | None = None
    ) -> dict[str, list[Row]]:
        """The rows that each sink gets of an epoch. Watermarks are those that were `decided`, if
        given: with idle sources, they are a matter of time."""
        graph, streams = self._graph, {name: list(rows) for name, rows in records.items()}
        raw: dict[str, list[Row]] = {}
        for step in graph.steps:
            inputs = [[row for name in names for row in streams[name]] for names in step.takes]
            until = self._watermark(step) if decided is None else decided.get(step.name)
            raw[step.name] = step.part.run(self._models[step.name], inputs, until)
            if step.part.records:
                streams[step.name] = [step.part.as_record(row) for row in raw[step.name]]
        for step in graph.steps:  # what an epoch shows moves the watermarks of the next
            inputs = [[row for name in names for row in streams[name]] for names in step.takes]
            self._clocks[step.name] = [
                max([time for time in (clock, *(row["at"] for row in rows)) if time], default=None)
                for clock, rows in zip(self._clocks[step.name], inputs, strict=True)
            ]
        return {
            end.name: late_of(self._models[end.operator])
            if end.late
            else (streams if end.coded else raw)[end.operator]
            for end in graph.ends
        }

    def state(self) -> dict[tuple[str, str], list[Row]]:
        """The rows of each table, by operator and table."""
        return {
            (name, table): rows
            for name, model in self._models.items()
            for table, rows in model.state().items()
        }

    def _watermark(self, step: Step) -> datetime | None:
        """As the table of the guide to graphs has it."""
        if step.part.delay is None:
            return None
        reached = [
            self._reached(names, clock)
            for names, clock in zip(step.takes, self._clocks[step.name], strict=True)
        ]
        found = [self._watermarks.get(step.name)]
        if None not in reached:
            least = min(moment for moment in reached if moment is not None)
            found.append(least - timedelta(seconds=step.part.delay))
        known = [moment for moment in found if moment is not None]
        if known:
            self._watermarks[step.name] = max(known)
        return self._watermarks.get(step.name)

    def _reached(self, names: Sequence[str], clock: datetime | None) -> datetime | None:
        """How far an input is that is the union of these streams."""
        timed, by_clock = self._ways(names)
        reached = [clock] if by_clock else []
        for name in timed:
            watermark = self._watermarks.get(name)
            lag = timedelta(seconds=self._graph.by_name[name].part.lag)
            reached.append(None if watermark is None else watermark - lag)
        if None in reached:
            return None
        return min(moment for moment in reached if moment is not None)

    def _ways(self, names: Sequence[str]) -> tuple[set[str], bool]:
        """Which operators with event time records pass last, and whether some pass none."""
        timed, by_clock = set[str](), False
        for name in names:
            if name in SOURCES:
                by_clock = True
            elif self._graph.by_name[name].part.delay is not None:
                timed.add(name)
            else:
                for further in self._graph.by_name[name].takes:
                    more, clocked = self._ways(further)
                    timed |= more
                    by_clock |= clocked
        return timed, by_clock
