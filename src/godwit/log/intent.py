"""What an epoch was decided to do, before any of its work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from godwit.model.routing import Routing
from godwit.model.unread import UnreadFiles


@dataclass(frozen=True, slots=True)
class Intent:
    """The decisions of one epoch; a replay of the epoch obeys the same intent.

    `query` is Spark's id of the query and `offsets` the digest of Spark's offsets of the epoch.
    `control` is the id of the newest request that was taken in, `refused` says which of the last
    ones were refused and why, `sources` which of the last ones came as data. Routings, migrations
    (`open` and `past` ones) and merges are by operator; but for the id of an open migration, the
    last two are JSON that the log does not look into. So are watermarks, for operators that have
    one, in microseconds since 1970. `given` is the number of workers that the program named at its
    start, if it did. `backlog` is how many offsets of the sources the epoch leaves to read, if they
    tell, `unread` the files of theirs that wait; both decide nothing. `placement` says, where
    workers are pinned, which `executors` there are, the executor of each of the `workers`, and
    those that hold `replicas` of it.
    """

    epoch: int
    generation: int
    query: str
    offsets: str
    routings: Mapping[str, Routing]
    merges: Mapping[str, Any]
    control: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    migrations: Mapping[str, Any] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    sources: Sequence[str] = ()
    given: int | None = None
    backlog: int | None = None
    unread: UnreadFiles | None = None
    placement: Mapping[str, Any] | None = None

    def to_json(self, since: Mapping[str, int]) -> dict[str, Any]:
        """As JSON; a routing that holds `since` an earlier epoch is a reference to its intent."""
        return {
            "epoch": self.epoch,
            "generation": self.generation,
            "query": self.query,
            "offsets": self.offsets,
            "routings": {
                operator: {"since": since[operator]} if operator in since else routing.to_json()
                for operator, routing in self.routings.items()
            },
            "merges": dict(self.merges),
            "control": self.control,
            "refused": dict(self.refused),
            "migrations": dict(self.migrations),
            "watermarks": dict(self.watermarks),
            "sources": list(self.sources),
            "given": self.given,
            "backlog": self.backlog,
            "unread": self.unread and self.unread.to_json(),
            "placement": self.placement,
        }

    @classmethod
    def from_json(
        cls, data: dict[str, Any], routing: Callable[[str, dict[str, Any]], Routing]
    ) -> Self:
        """From JSON; `routing` turns what stands for an operator's routing into the routing."""
        return cls(
            epoch=data["epoch"],
            generation=data["generation"],
            query=data["query"],
            offsets=data["offsets"],
            routings={name: routing(name, entry) for name, entry in data["routings"].items()},
            merges=data["merges"],
            control=data["control"],
            refused=data["refused"],
            migrations=data["migrations"],
            watermarks=data["watermarks"],
            sources=tuple(data["sources"]),
            given=data["given"],
            backlog=data["backlog"],
            unread=UnreadFiles.from_json(data["unread"]) if data.get("unread") else None,
            placement=data.get("placement"),
        )
