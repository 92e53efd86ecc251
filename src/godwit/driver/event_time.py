"""Event time: how far the watermark of each operator is.

The clock of an input is the greatest time that it has shown in the epochs before. An input is as
far as the watermarks of the operators before it that have one, less what their outputs may be
behind these (rows of a join wait for others); and where sources come in besides, as its clock. The
watermark of an operator is the least of its inputs, less its delay; it never goes back. In epoch t
an operator applies the records of t, then the timers up to the watermark of t. So a record is late,
and dropped, if its time is before the watermark of t - 1: the timers that should have come after it
have fired.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Self

from godwit.log.intent import Intent
from godwit.model.graph import Graph, Parents
from godwit.model.manifest import Manifest
from godwit.model.time import END, Clocks, earlier, latest
from godwit.model.tree import Tree
from godwit.operators.base import Lagging, Operator
from godwit.state.timed import is_timed


@dataclass(frozen=True, slots=True)
class EventTime:
    """How far the operators of a query are after an epoch: their watermarks and clocks."""

    operators: Mapping[str, Operator]
    graph: Graph
    watermarks: Mapping[str, int]
    clocks: Mapping[str, Clocks]

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

    def after(self, intent: Intent, shown: Mapping[str, Sequence[Clocks]]) -> Self:
        """After the epoch of `intent`, whose workers have seen the clocks that are `shown`."""
        clocks = {
            name: latest([*([self.clocks[name]] if name in self.clocks else []), *shown[name]])
            for name, operator in self.operators.items()
            if operator.delay is not None
        }
        return replace(self, watermarks=intent.watermarks, clocks=clocks)

    def next(self, finished: Set[str] = frozenset()) -> dict[str, int]:
        """The watermarks of the next epoch."""
        return watermarks(self.operators, self.graph, self.clocks, self.watermarks, finished)

    def is_due(self, trees: Mapping[str, Mapping[str, Tree]]) -> bool:
        """Does the next epoch have a later watermark, while rows wait for their moment?"""
        later = self.next()
        return any(
            later.get(name) != self.watermarks.get(name)
            and any(is_timed(spec) and trees[name][spec.name].files for spec in operator.tables)
            for name, operator in self.operators.items()
        )


def watermarks(
    operators: Mapping[str, Operator],
    graph: Graph,
    clocks: Mapping[str, Clocks],
    before: Mapping[str, int],
    finished: Set[str],
) -> dict[str, int]:
    """The watermarks of the next epoch, given those of the last; an operator may have none yet."""
    found: dict[str, int] = {}
    for name, inputs in graph.inputs.items():
        operator = operators[name]
        if operator.delay is None:
            continue
        shown = clocks.get(name) or (None,) * len(inputs)
        reached: list[int | None] = []
        for parents, clock in zip(inputs, shown, strict=True):
            timed, from_source = _timed(operators, graph, parents)
            reached += [_outputs_from(operators[one], found.get(one)) for one in timed]
            if from_source:
                reached.append(clock)
        known = [moment for moment in reached if moment is not None]
        candidates = [before[name]] if name in before else []
        if len(known) == len(reached):
            candidates.append(earlier(min(known), operator.delay))
        if name in finished:
            candidates.append(END)
        if candidates:
            found[name] = max(candidates)
    return found


def _outputs_from(operator: Operator, watermark: int | None) -> int | None:
    """No more outputs with a time before this come from an operator."""
    if watermark is None or not isinstance(operator, Lagging):
        return watermark
    return earlier(watermark, operator.lag)


def _timed(
    operators: Mapping[str, Operator], graph: Graph, parents: Parents
) -> tuple[set[str], bool]:
    """The operators with event time that records of these parents pass last, and whether some pass
    none."""
    timed, from_source = set[str](), bool(parents.sources)
    for name in parents.operators:
        if operators[name].delay is not None:
            timed.add(name)
            continue
        for further in graph.inputs[name]:
            more, untimed = _timed(operators, graph, further)
            timed |= more
            from_source |= untimed
    return timed, from_source
