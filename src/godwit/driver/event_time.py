"""Event time: how far the watermark of each operator is.

The clock of an input is the greatest time that it has shown in the epochs before. An input is as
far as the watermarks of the operators before it that have one, less what their outputs may be
behind these (rows of a join wait for others); and where sources come in besides, as its clock. The
watermark of an operator is the least of its inputs, less its delay; it never goes back. In epoch t
an operator applies the records of t, then the timers up to the watermark of t. So a record is late,
and dropped, if its time is before the watermark of t - 1: the timers that should have come after it
have fired.

A source may be idle: it has shown no record for as long as it may be silent. Then inputs that it
alone feeds do not count, nor do operators all of whose inputs are idle, until there are records
again. Those behind go on without such an operator, so it goes with them: else what waits in it
would be late there. Where nothing else is left, idle inputs that meet are as far as the one that
is ahead: as if that had been the last to fall silent.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Self

from godwit.driver.merges import Trees
from godwit.log.intent import Intent
from godwit.model.graph import Graph, Parents
from godwit.model.manifest import Manifest
from godwit.model.time import END, Clocks, earlier, latest
from godwit.operators.base import Lagging, Operator
from godwit.state.timed import is_timed

Input = tuple[str, int]  # of an operator, by its place
Comes = tuple[set[str], set[int]]  # into one: from operators with event time, and from sources


@dataclass(frozen=True, slots=True)
class EventTime:
    """How far the operators of a query are after an epoch: their watermarks and clocks.

    `begun` says when that epoch was planned, and `shown`, for each input, when the newest one was
    that had records of it; both in seconds, and of epochs that this driver has run. An input is
    idle if the epoch was planned so much later as its sources may be silent: it has shown that
    nothing came for so long.
    """

    operators: Mapping[str, Operator]
    graph: Graph
    watermarks: Mapping[str, int]
    clocks: Mapping[str, Clocks]
    begun: float | None = None
    shown: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        operators: Mapping[str, Operator],
        graph: Graph,
        manifest: Manifest | None,
        intent: Intent | None,
    ) -> Self:
        """As the log tells it: the newest manifest, and the intent of its epoch."""
        clocks = manifest.clocks if manifest else {}
        return cls(operators, graph, intent.watermarks if intent else {}, clocks)

    def after(self, intent: Intent, seen: Mapping[str, Sequence[Clocks]], begun: float) -> Self:
        """After the epoch of `intent`, whose workers have `seen` these clocks."""
        clocks, shown = dict[str, Clocks](), dict[str, tuple[float, ...]]()
        for name, operator in self.operators.items():
            if operator.delay is None:
                continue
            new = latest(seen[name])
            clocks[name] = latest([self.clocks[name], new]) if name in self.clocks else new
            before = self.shown.get(name) or (begun,) * len(new)
            pairs = zip(new, before, strict=True)
            shown[name] = tuple(earlier if clock is None else begun for clock, earlier in pairs)
        return replace(self, watermarks=intent.watermarks, clocks=clocks, begun=begun, shown=shown)

    def next(self, finished: Set[str] = frozenset()) -> dict[str, int]:
        """The watermarks of the next epoch."""
        return self._next(finished, self.begun)

    def is_due(self, trees: Trees, now: float) -> bool:
        """Has the next epoch a later watermark, while rows wait for their moment? Or would the one
        after it have, if it began now and had no records?"""
        later = self._next(frozenset(), None if self.begun is None else max(now, self.begun))
        changed = (name for name in self.operators if later.get(name) != self.watermarks.get(name))
        return any(self._waits(name, trees) for name in changed)

    def awaits_silence(self, trees: Trees) -> bool:
        """Can sources be idle, and do rows wait for their moment?"""
        return bool(self.graph.idle_after) and any(
            self._waits(name, trees) for name in self.operators
        )

    def _waits(self, name: str, trees: Trees) -> bool:
        specs = self.operators[name].tables
        return any(is_timed(spec) and trees[name][spec.name].files for spec in specs)

    def _next(self, finished: Set[str], begun: float | None) -> dict[str, int]:
        """The watermarks of the next epoch, if the newest began then."""
        idle = frozenset[Input]() if begun is None else frozenset(self._idle(begun))
        return watermarks(self.operators, self.graph, self.clocks, self.watermarks, finished, idle)

    def _idle(self, begun: float) -> Iterator[Input]:
        for name, shown in self.shown.items():
            for place, parents in enumerate(self.graph.inputs[name]):
                _, sources = _timed(self.operators, self.graph, parents)
                limits = [self.graph.idle_after.get(source, math.inf) for source in sources]
                if limits and (begun - shown[place]) * 1e6 >= max(limits):
                    yield name, place


def watermarks(
    operators: Mapping[str, Operator],
    graph: Graph,
    clocks: Mapping[str, Clocks],
    before: Mapping[str, int],
    finished: Set[str],
    idle: Set[Input] = frozenset(),
) -> dict[str, int]:
    """The watermarks of the next epoch, given those of the last; an operator may have none yet.

    `idle` are the inputs whose sources are. An operator is idle if all that comes in is. What waits
    in it is not late for those behind it, whichever go on without it.
    """
    found: dict[str, int] = {}
    comes = {
        name: [_timed(operators, graph, parents) for parents in inputs]
        for name, inputs in graph.inputs.items()
        if operators[name].delay is not None
    }
    asleep, levels = _asleep(comes, clocks, idle)
    for name, inputs in comes.items():
        reached = list[int | None]()
        for place, (timed, sources) in enumerate(inputs):
            for one in timed if name in asleep else timed - asleep:
                reached.append(_outputs_from(operators[one], found.get(one)))
            if sources and (name, place) in idle:
                reached += [levels[name, place]] if name in asleep else []
            elif sources:
                reached.append(clocks[name][place] if name in clocks else None)
        candidates = [before[name]] if name in before else []
        if (least := _least(reached)) is not None:
            candidates.append(earlier(least, operators[name].delay or 0))
        if name in finished:
            candidates.append(END)
        if candidates:
            found[name] = max(candidates)
    for name in reversed(comes):
        for one in {one for timed, _ in comes[name] for one in timed & asleep}:
            if name in found:
                needed = min(found[name] + _lag(operators[one]), END)
                found[one] = max(found.get(one, needed), needed)
    return found


def _asleep(
    comes: Mapping[str, Sequence[Comes]], clocks: Mapping[str, Clocks], idle: Set[Input]
) -> tuple[set[str], dict[Input, int | None]]:
    """The idle operators; and how far the inputs before them count as being: as those that they
    meet in one."""
    asleep, levels = set[str](), dict[Input, int | None]()
    before: dict[str, set[Input]] = {}
    for name, inputs in comes.items():
        own = {(name, place) for place, (_, sources) in enumerate(inputs) if sources}
        before[name] = own.union(*(before[one] for timed, _ in inputs for one in timed))
        if before[name] <= idle:
            asleep.add(name)
            ahead = _greatest(clocks[one][place] for one, place in before[name] if one in clocks)
            for input in before[name]:
                levels[input] = _greatest((levels.get(input), ahead))
    return asleep, levels


def _least(moments: Sequence[int | None]) -> int | None:
    """The least, if all are known."""
    known = [moment for moment in moments if moment is not None]
    return min(known) if len(known) == len(moments) else None


def _greatest(moments: Iterable[int | None]) -> int | None:
    """The greatest, if any is known."""
    return max((moment for moment in moments if moment is not None), default=None)


def _outputs_from(operator: Operator, watermark: int | None) -> int | None:
    """No more outputs with a time before this come from an operator."""
    return None if watermark is None else earlier(watermark, _lag(operator))


def _lag(operator: Operator) -> int:
    return operator.lag if isinstance(operator, Lagging) else 0


def _timed(operators: Mapping[str, Operator], graph: Graph, parents: Parents) -> Comes:
    """The operators with event time that records of these parents pass last, and the sources from
    which some come that pass none."""
    timed, sources = set[str](), set(parents.sources)
    for name in parents.operators:
        if operators[name].delay is not None:
            timed.add(name)
            continue
        for further in graph.inputs[name]:
            more, untimed = _timed(operators, graph, further)
            timed |= more
            sources |= untimed
    return timed, sources
