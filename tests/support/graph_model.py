"""What random graphs put out, in plain Python: record by record, and as documents tell it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from tests.support.counting_workloads import Key, Row, key_of, row_of
from tests.support.timed_workloads import FOREVER, TICK, Silence, at

Kind = Literal["sum", "first", "tumbling", "session", "bounded", "inner"]
KINDS: tuple[Kind, ...] = ("tumbling", "bounded", "session", "first", "sum", "inner")
JOINS = ("bounded", "inner")
TIMED = ("tumbling", "session", "bounded")

SOURCE = "source"  # the column that says where a record comes in
GAP = LENGTH = 2  # of sessions and windows; all in seconds
BOUNDS = (-2, 1)
NONE = -100  # in place of the number of a row that did not come

Moment = datetime | None
Input = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Part:
    """An operator of a graph: what it takes, by name; a join takes others as its `right`."""

    name: str
    kind: Kind
    takes: tuple[str, ...]
    right: tuple[str, ...] = ()
    delay: int = 0
    has_sink: bool = True
    late: bool = False

    @property
    def is_timed(self) -> bool:
        return self.kind in TIMED

    @property
    def lag(self) -> int:
        return max(BOUNDS[1], -BOUNDS[0]) if self.kind == "bounded" else 0

    @property
    def inputs(self) -> list[tuple[str, ...]]:
        return [self.takes, self.right] if self.kind in JOINS else [self.takes]


class Graphs:
    """Every part works through what it takes in an epoch, and then through what is due."""

    def __init__(self, parts: Sequence[Part], idle_after: Mapping[str, int]) -> None:
        self._parts = parts
        self._machines = {part.name: MACHINES[part.kind]() for part in parts}
        self._marks = Watermarks(parts, idle_after)
        self.seen = Counter[str]()

    def finish(self) -> None:
        self._marks.finished = True

    def begin(self, now: float, decided_by: int, published_by: int) -> None:
        for silence in self._marks.silences.values():
            silence.begin(now, decided_by, published_by)

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        passed, until = self._marks.now, self._marks.next()
        self.seen["idle operators that go with others"] += self._marks.led
        streams: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            streams[row[SOURCE]].append({c: row[c] for c in ("name", "part", "n", "at")})
        late, shown = list[Row](), dict[Input, list[datetime]]()
        for part in self._parts:
            inputs = [[row for name in names for row in streams[name]] for names in part.inputs]
            if part.is_timed:
                straight = {o.name for o in self._parts if o.is_timed}
                for place, names in enumerate(part.inputs):
                    shown[part.name, place] = [r["at"] for r in inputs[place] if r["at"]]
                    for name in straight.intersection(names):  # what was on time stays so
                        assert all(_on_time(part, r, passed[part.name]) for r in streams[name])
                late += _late(part, inputs, passed[part.name])
                inputs = [
                    [row for row in taken if _on_time(part, row, passed[part.name])]
                    for taken in inputs
                ]
            machine = self._machines[part.name]
            streams[part.name] = list(machine.epoch(inputs, until.get(part.name)))
            self.seen[part.kind] += len(streams[part.name])
        self._marks.end(until, shown)
        sinks = [p.name for p in self._parts if p.has_sink]
        self.seen["late"] += len(late)
        return [{"sink": name, **row} for name in sinks for row in streams[name]] + late

    def state(self) -> dict[str, list[Row]]:
        return {
            f"{name}:value": machine.state()
            for name, machine in self._machines.items()
            if isinstance(machine, Sum)
        }

    def count(self) -> Counter[str]:
        """What was seen, of which kind how many rows."""
        return sum((machine.seen for machine in self._machines.values()), self.seen)


def _on_time(part: Part, row: Row, passed: Moment) -> bool:
    if row["at"] is None:
        return False
    if passed is None:
        return True
    match part.kind:
        case "tumbling":
            return bool(_start(row["at"]) + timedelta(seconds=LENGTH) > passed)
        case "session":
            return bool(row["at"] + timedelta(seconds=GAP) > passed)
    return bool(row["at"] >= passed)


def _late(part: Part, inputs: list[list[Row]], passed: Moment) -> Iterator[Row]:
    if not part.late:
        return
    for side, rows in zip(("left", "right"), inputs, strict=False):
        for row in rows:
            if _on_time(part, row, passed):
                continue
            if part.kind == "bounded":
                own = {"left_n": None, "right_n": None} | {f"{side}_n": row["n"]}
                row = {"side": side, **row_of(key_of(row), at=row["at"]), **own}
            yield {"late": part.name, **row}


def _start(moment: datetime) -> datetime:
    start = at(0)
    assert start is not None
    return moment - (moment - start) % timedelta(seconds=LENGTH)


# -- watermarks ------------------------------------------------------------------------------------


class Watermarks:
    """As the guide tells of them, operator by operator."""

    def __init__(self, parts: Sequence[Part], idle_after: Mapping[str, int]) -> None:
        self._timed = [part for part in parts if part.is_timed]
        self._of = {part.name: part for part in parts}
        self.now: dict[str, Moment] = {part.name: None for part in self._timed}
        self.finished = False
        self.led = 0
        self._clocks: dict[Input, datetime] = {}
        # Of an input: the operators with event time, and the sources, that come to it straight or
        # through operators without.
        self._comes = {
            (part.name, place): self._behind(names)
            for part in self._timed
            for place, names in enumerate(part.inputs)
        }
        self.silences = {
            input: Silence(max(idle_after[source] for source in sources))
            for input, (_, sources) in self._comes.items()
            if sources and all(source in idle_after for source in sources)
        }

    def _behind(self, names: Sequence[str]) -> tuple[set[str], set[str]]:
        timed, sources = set[str](), set[str]()
        for name in names:
            if name not in self._of:
                sources.add(name)
            elif self._of[name].is_timed:
                timed.add(name)
            else:
                for taken in self._of[name].inputs:
                    more, further = self._behind(taken)
                    timed |= more
                    sources |= further
        return timed, sources

    def _fed_by(self, name: str) -> set[Input]:
        """The inputs with sources whose records come to an operator, in the end."""
        places = [(name, place) for place in range(len(self._of[name].inputs))]
        own = {input for input in places if self._comes[input][1]}
        above = (self._fed_by(one) for input in places for one in self._comes[input][0])
        return own.union(*above)

    def next(self) -> dict[str, Moment]:
        """Those of the next epoch."""
        idle = {input for input, silence in self.silences.items() if silence.idle()}
        fed_by = {part.name: self._fed_by(part.name) for part in self._timed}
        asleep = {name for name, inputs in fed_by.items() if inputs <= idle}
        found: dict[str, Moment] = {}
        for part in self._timed:
            reached = list[Moment]()
            for place in range(len(part.inputs)):
                timed, sources = self._comes[part.name, place]
                for one in timed:
                    if part.name in asleep or one not in asleep:
                        reached.append(_moved(found[one], -self._of[one].lag))
                if sources and part.name in asleep:  # as far as any that it meets
                    met = [fed_by[one] for one in asleep if (part.name, place) in fed_by[one]]
                    known = [self._clocks.get(input) for inputs in met for input in inputs]
                    reached.append(_latest(known))
                elif sources and (part.name, place) not in idle:
                    reached.append(self._clocks.get((part.name, place)))
            least = None if None in reached else min(filter(None, reached))
            least = FOREVER if self.finished else _moved(least, -part.delay)
            found[part.name] = _latest([least, self.now[part.name]])
        own = dict(found)
        for part in reversed(self._timed):
            for place in range(len(part.inputs)):
                for one in self._comes[part.name, place][0] & asleep:
                    needed = _moved(found[part.name], self._of[one].lag)
                    found[one] = _latest([found[one], needed])
        self.led = sum(found[name] != own[name] for name in found)
        return found

    def end(self, until: dict[str, Moment], shown: Mapping[Input, Sequence[datetime]]) -> None:
        """After an epoch with these watermarks, whose records had these times."""
        self.now = until
        for input, moments in shown.items():
            if moments:
                self._clocks[input] = max(*moments, self._clocks.get(input, moments[0]))
            if input in self.silences:
                self.silences[input].end(1, {0} if moments else set())


def _latest(moments: Sequence[Moment]) -> Moment:
    return max((moment for moment in moments if moment is not None), default=None)


def _moved(moment: Moment, seconds: int) -> Moment:
    if moment is None or moment == FOREVER:
        return moment
    return moment + timedelta(seconds=seconds)


# -- operators -------------------------------------------------------------------------------------


class Machine:
    """An operator, which remembers all that it needs."""

    def __init__(self) -> None:
        self.seen = Counter[str]()

    def epoch(self, inputs: list[list[Row]], until: Moment) -> Iterator[Row]:
        """Its outputs in an epoch with this watermark."""
        raise NotImplementedError


class Sum(Machine):
    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[Key, list[Row]] = defaultdict(list)

    def epoch(self, inputs: list[list[Row]], until: Moment) -> Iterator[Row]:
        for row in inputs[0]:
            self._rows[key_of(row)].append(row)
        for key in dict.fromkeys(map(key_of, inputs[0])):
            rows = self._rows[key]
            yield row_of(key, n=_total(rows), at=_latest([row["at"] for row in rows]))

    def state(self) -> list[Row]:
        return [
            row_of(key, total=_total(rows), latest=_latest([row["at"] for row in rows]))
            for key, rows in self._rows.items()
        ]


class First(Machine):
    def __init__(self) -> None:
        super().__init__()
        self._given = set[Any]()

    def epoch(self, inputs: list[list[Row]], until: Moment) -> Iterator[Row]:
        for row in sorted(inputs[0], key=lambda row: row["at"] or FOREVER):
            if (key := (*key_of(row), row["n"])) in self._given:
                self.seen["duplicates"] += 1
                continue
            self._given.add(key)
            yield row


class Windows(Machine):
    """All records that are open, from which the windows that are over go."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[Key, list[Row]] = defaultdict(list)

    def epoch(self, inputs: list[list[Row]], until: Moment) -> Iterator[Row]:
        for row in inputs[0]:
            self._open[key_of(row)].append(row)
        for key, rows in self._open.items():
            for end, group in self._windows(sorted(rows, key=lambda row: row["at"])):
                if until is not None and end <= until:
                    yield row_of(key, n=_total(group), at=end - TICK)
                    self._open[key] = [r for r in self._open[key] if r not in group]

    def _windows(self, rows: list[Row]) -> list[tuple[datetime, list[Row]]]:
        """Each by its end, with its records."""
        raise NotImplementedError


class Tumbling(Windows):
    def _windows(self, rows: list[Row]) -> list[tuple[datetime, list[Row]]]:
        found = defaultdict[datetime, list[Row]](list)
        for row in rows:
            found[_start(row["at"]) + timedelta(seconds=LENGTH)].append(row)
        return list(found.items())


class Sessions(Windows):
    def _windows(self, rows: list[Row]) -> list[tuple[datetime, list[Row]]]:
        found = list[tuple[datetime, list[Row]]]()
        for row in rows:
            end = row["at"] + timedelta(seconds=GAP)
            if found and row["at"] < found[-1][0]:
                found[-1] = end, [*found[-1][1], row]
                self.seen["records that join a session"] += 1
            else:
                found.append((end, [row]))
        return found


class Inner(Machine):
    """All that came on either side, and which of it has matched."""

    bounds: tuple[int, int] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._sides: tuple[list[Row], list[Row]] = ([], [])

    def epoch(self, inputs: list[list[Row]], until: Moment) -> Iterator[Row]:
        old = [len(side) for side in self._sides]
        for side, rows in zip(self._sides, inputs, strict=True):
            side += [dict(row) for row in rows]
        for i, left in enumerate(self._sides[0]):
            for j, right in enumerate(self._sides[1]):
                if (i >= old[0] or j >= old[1]) and self._match(left, right):
                    left["matched"] = True
                    yield self._row(left, right)

    def _match(self, left: Row, right: Row) -> bool:
        return key_of(left) == key_of(right) and None not in key_of(left)

    def _row(self, left: Row, right: Row) -> Row:
        return row_of(key_of(left), n=_minus(left, right), at=_latest([left["at"], right["at"]]))


class Bounded(Inner):
    """A left row without a match comes out once no right one can come any more."""

    def epoch(self, inputs: list[list[Row]], until: Moment) -> Iterator[Row]:
        yield from super().epoch(inputs, until)
        for left in self._sides[0]:
            if "matched" in left:
                continue
            last = left["at"] + timedelta(seconds=BOUNDS[1])
            if None in key_of(left) or (until is not None and last < until):
                left["matched"] = False
                self.seen["rows without a match"] += 1
                yield self._row(left, {"n": None})

    def _match(self, left: Row, right: Row) -> bool:
        apart = (right["at"] - left["at"]).total_seconds()
        return super()._match(left, right) and BOUNDS[0] <= apart <= BOUNDS[1]

    def _row(self, left: Row, right: Row) -> Row:
        return row_of(key_of(left), n=_minus(left, right), at=left["at"])


def _total(rows: Sequence[Row]) -> int | None:
    known = [row["n"] for row in rows if row["n"] is not None]
    return sum(known) if known else None


def _minus(left: Row, right: Row) -> int:
    left_n, right_n = (NONE if row["n"] is None else row["n"] for row in (left, right))
    return int(left_n - right_n)


MACHINES: dict[Kind, type[Machine]] = {
    "sum": Sum,
    "first": First,
    "tumbling": Tumbling,
    "session": Sessions,
    "bounded": Bounded,
    "inner": Inner,
}
