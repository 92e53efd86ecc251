"""The graph of a query as text."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from godwit.model.description import OperatorDescription
from godwit.model.graph import Graph, Parents
from godwit.model.routing import Routing
from godwit.model.schema import parse
from godwit.model.text import plural
from godwit.model.time import show, span

SIDES: Final = ("left", "right")
OF_WINDOWS: Final = ("window_start", "window_end")  # columns of the key that an operator adds


@dataclass(frozen=True, slots=True)
class GraphView:
    """How the operators of a query hang together, and how far each is.

    >>> from godwit.model.graph import Outlet
    >>> inputs, outlet = {"counts": (Parents((), (0,)),)}, Outlet("files in out", ("counts",))
    >>> graph = Graph(inputs, (outlet,), ("words",))
    >>> described = OperatorDescription("aggregate", "word STRING", "word STRING, n BIGINT", {})
    >>> view = GraphView(graph, {"counts": described}, {"counts": Routing.even(64, 2)}, {})
    >>> print(view)
    counts: aggregate by word
      from  source words
      to    files in out
      2 workers, 64 bins, no event time
    """

    graph: Graph
    operators: Mapping[str, OperatorDescription]
    routings: Mapping[str, Routing]
    watermarks: Mapping[str, int]

    def __str__(self) -> str:
        return "\n".join(line for name in self.graph.inputs for line in self._lines(name))

    def _lines(self, name: str) -> Iterator[str]:
        described, routing = self.operators[name], self.routings[name]
        yield f"{name}: {_does(described)}"
        inputs = self.graph.inputs[name]
        for side, parents in zip(("from",) if len(inputs) == 1 else SIDES, inputs, strict=True):
            yield f"  {side:5} {self._told(parents)}"
        after = [one for one in self.graph.inputs if name in self.graph.before(one)]
        mine = [outlet for outlet in self.graph.outlets if name in outlet.operators]
        sinks = [outlet.sink for outlet in mine if not outlet.late]
        yield f"  to    {', '.join([*after, *sinks]) or 'nobody'}"
        for outlet in mine:
            if outlet.late:
                yield f"  late  {outlet.sink}"
        watermark = self.watermarks.get(name)
        time = "no event time" if watermark is None else f"watermark {show(watermark)}"
        yield f"  {plural(routing.workers, 'worker')}, {plural(routing.bins, 'bin')}, {time}"

    def _told(self, parents: Parents) -> str:
        known = self.graph.sources
        sources = [f"source {known[one] if one < len(known) else one}" for one in parents.sources]
        for place, number in enumerate(parents.sources):
            if (limit := self.graph.idle_after.get(number)) is not None:
                sources[place] += f" (idle after {span(limit)})"
        return " and ".join([*parents.operators, *sources])


def _does(described: OperatorDescription) -> str:
    """
    >>> window = "60000000 us every 60000000 us"
    >>> key = "user STRING, window_start TIMESTAMP, window_end TIMESTAMP"
    >>> _does(OperatorDescription("windows", key, "", {}, window=window))
    'aggregate by user in windows of 1 minute'
    """
    names, kind = parse(described.key).names, described.kind
    if described.window is None:
        return f"{kind} by {', '.join(names)}"
    names = [name for name in names if name not in OF_WINDOWS]
    window = re.sub(r"(\d+) us", lambda found: span(int(found[1])), described.window)
    length, every, slide = window.partition(" every ")
    if every:
        window = f"windows of {length}" if slide == length else f"windows of {window}"
    kind = "aggregate" if kind in ("windows", "panes", "sessions") else kind
    return f"{kind} by {', '.join(names)} in {window}"
