"""How the operators of a query hang together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Parents:
    """Where the records of an input come from: `operators`, by name, and `sources`, by number;
    DataFrame code on the way does not count."""

    operators: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"operators": list(self.operators), "sources": list(self.sources)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(tuple(data["operators"]), tuple(data["sources"]))


@dataclass(frozen=True, slots=True)
class Outlet:
    """A sink, as it tells of itself, and the operators whose outputs it gets; or of one, whose
    `late` records it gets."""

    sink: str
    operators: tuple[str, ...]
    late: bool = False

    def to_json(self) -> dict[str, Any]:
        late = {"late": True} if self.late else {}
        return {"sink": self.sink, "operators": list(self.operators), **late}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["sink"], tuple(data["operators"]), data.get("late", False))


@dataclass(frozen=True, slots=True)
class Graph:
    """The parents of each operator's inputs, and the sinks; it has no cycle.

    Operators come after those that they depend on. `sources` says what each source is, `idle_after`
    how many microseconds a source, by its number, may be silent before it is idle.

    >>> graph = Graph.chain(["sessions", "counts"])
    >>> graph.inputs["counts"]
    (Parents(operators=('sessions',), sources=()),)
    >>> graph.before("counts")
    ('sessions',)
    """

    inputs: Mapping[str, tuple[Parents, ...]]
    outlets: tuple[Outlet, ...] = ()
    sources: tuple[str, ...] = ()
    idle_after: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def chain(cls, operators: Sequence[str], inputs: int = 1) -> Self:
        """One operator behind the other; the first has so many inputs, each a source."""
        found: dict[str, tuple[Parents, ...]] = {}
        for place, name in enumerate(operators):
            found[name] = (
                (Parents((operators[place - 1],)),)
                if place
                else tuple(Parents((), (number,)) for number in range(inputs))
            )
        return cls(found)

    def before(self, operator: str) -> tuple[str, ...]:
        """The operators right before one."""
        return tuple(
            dict.fromkeys(name for parents in self.inputs[operator] for name in parents.operators)
        )

    def to_json(self) -> dict[str, Any]:
        idle_after = {str(source): limit for source, limit in self.idle_after.items()}
        return {
            "inputs": {
                name: [parents.to_json() for parents in inputs]
                for name, inputs in self.inputs.items()
            },
            "outlets": [outlet.to_json() for outlet in self.outlets],
            "sources": list(self.sources),
            **({"idle_after": idle_after} if idle_after else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            {
                name: tuple(map(Parents.from_json, inputs))
                for name, inputs in data["inputs"].items()
            },
            tuple(map(Outlet.from_json, data["outlets"])),
            tuple(data["sources"]),
            {int(source): limit for source, limit in data.get("idle_after", {}).items()},
        )
