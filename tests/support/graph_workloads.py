"""A graph of aggregates under test, with a model of it in plain Python."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

import godwit.operators as ops
from godwit.operators import AggregateOperator
from tests.support.counting_workloads import (
    KEY,
    KEY_FIELDS,
    Key,
    Row,
    Workload,
    combine,
    key_of,
    row_of,
)

Kind = Literal["sum", "max", "count"]

SCHEMA = pa.schema([*KEY_FIELDS, ("n", pa.int64())])
RECORDS = combine(n=[1, 5, -2, None])
SOURCE = ""


@dataclass(frozen=True, slots=True)
class Part:
    """An operator of a graph: what it computes of `n`, and what it takes, operators by name."""

    name: str
    kind: Kind
    takes: tuple[str, ...]
    has_sink: bool

    @property
    def operator(self) -> AggregateOperator:
        function = {"sum": ops.sum("n"), "max": ops.max("n"), "count": ops.count()}[self.kind]
        return AggregateOperator.of(self.name, KEY, {"n": function}, SCHEMA)


class Graphs:
    """Each part folds what it takes in an epoch, and puts out the new results of its keys."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._values: dict[str, dict[Key, list[int | None]]] = defaultdict(dict)

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        streams: dict[str, list[Row]] = {SOURCE: list(rows)}
        for part in self._parts:
            taken = [row for name in part.takes for row in streams[name]]
            for row in taken:
                self._values[part.name].setdefault(key_of(row), []).append(row["n"])
            changed = dict.fromkeys(map(key_of, taken))
            streams[part.name] = [row_of(key, n=self._result(part, key)) for key in changed]
        return [
            {"sink": part.name, **row}
            for part in self._parts
            if part.has_sink
            for row in streams[part.name]
        ]

    def _result(self, part: Part, key: Key) -> int | None:
        values = self._values[part.name][key]
        if part.kind == "count":
            return len(values)
        known = [value for value in values if value is not None]
        if not known:
            return None
        return sum(known) if part.kind == "sum" else max(known)

    def state(self) -> dict[str, list[Row]]:
        return {
            f"{part.name}:value": [
                row_of(key, n=self._result(part, key)) for key in self._values[part.name]
            ]
            for part in self._parts
        }


def workload_of(parts: Sequence[Part]) -> Workload:
    operators = [part.operator for part in parts]
    takes: Mapping[str, tuple[str, ...]] = {part.name: part.takes for part in parts}
    sinks = tuple(part.name for part in parts if part.has_sink)
    edges: dict[str, Any] = {"takes": takes, "sinks": sinks}
    return Workload(
        f"graph of {len(parts)}",
        SCHEMA,
        operators[-1],
        lambda: Graphs(parts),
        RECORDS,
        before=tuple(operators[:-1]),
        edges=edges,
    )


# Two operators share the source, two take what these put out, with the source or without.
DIAMOND = workload_of(
    [
        Part("o0", "sum", (SOURCE,), False),
        Part("o1", "max", (SOURCE,), True),
        Part("o2", "count", ("o0", "o1"), True),
        Part("o3", "sum", ("o1", SOURCE), False),
        Part("o4", "max", ("o0", "o2", "o3"), True),
    ]
)
