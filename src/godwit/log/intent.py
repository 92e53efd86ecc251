"""What an epoch was decided to do, before any of its work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from godwit.migration.migration import OperatorMigrations
from godwit.model.ids import Epoch
from godwit.model.routing import Routing
from godwit.model.unread import UnreadFiles
from godwit.placement.handover import PlacementRecord
from godwit.state.tree import Merge

Merges = Mapping[str, Mapping[str, tuple[Merge, ...]]]  # by operator and table


@dataclass(frozen=True, slots=True)
class Intent:
    """The decisions of one epoch; a replay of the epoch obeys the same intent.

    `query` is Spark's id of the query and `offsets` the digest of Spark's offsets of the epoch.
    `taken` is the id of the newest request that was taken in, `refused` says by id which of the
    last ones were refused and why, `sources` which of the last ones came as data. Routings, merges
    and migrations are by operator; so are watermarks, for operators that have one, in microseconds
    since 1970. `asked_workers` is the number of workers that the program named at its start, if it
    did. `backlog` is how many offsets of the sources the epoch leaves to read, if they tell,
    `unread` the files of theirs that wait; both decide nothing. `placement` says, where workers are
    pinned, which executors they run on.
    """

    epoch: Epoch
    generation: int
    query: str
    offsets: str
    routings: Mapping[str, Routing]
    merges: Merges
    taken: int = 0
    refused: Mapping[int, str] = field(default_factory=dict)
    migrations: Mapping[str, OperatorMigrations] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    asked_workers: int | None = None
    backlog: int | None = None
    unread: UnreadFiles | None = None
    placement: PlacementRecord | None = None

    def to_json(self, since: Mapping[str, Epoch]) -> dict[str, Any]:
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
            "merges": {
                operator: {
                    table: [[merge.segment, merge.layers] for merge in merges]
                    for table, merges in tables.items()
                }
                for operator, tables in self.merges.items()
            },
            "control": self.taken,
            "refused": {str(id): reason for id, reason in self.refused.items()},
            "migrations": {name: known.to_json() for name, known in self.migrations.items()},
            "watermarks": dict(self.watermarks),
            "sources": list(self.sources),
            "given": self.asked_workers,
            "backlog": self.backlog,
            **({"unread": self.unread.to_json()} if self.unread else {}),
            "placement": self.placement and self.placement.to_json(),
        }

    @classmethod
    def from_json(
        cls, data: dict[str, Any], routing: Callable[[str, dict[str, Any]], Routing]
    ) -> Self:
        """From JSON; `routing` turns what stands for an operator's routing into the routing."""
        placement = data.get("placement")
        return cls(
            epoch=data["epoch"],
            generation=data["generation"],
            query=data["query"],
            offsets=data["offsets"],
            routings={name: routing(name, entry) for name, entry in data["routings"].items()},
            merges={
                operator: {
                    table: tuple(Merge(segment, layers) for segment, layers in merges)
                    for table, merges in tables.items()
                }
                for operator, tables in data["merges"].items()
            },
            taken=data["control"],
            refused={int(id): reason for id, reason in data["refused"].items()},
            migrations={
                name: OperatorMigrations.from_json(known)
                for name, known in data["migrations"].items()
            },
            watermarks=data["watermarks"],
            sources=tuple(data["sources"]),
            asked_workers=data["given"],
            backlog=data["backlog"],
            unread=UnreadFiles.from_json(data["unread"]) if data.get("unread") else None,
            placement=placement and PlacementRecord.from_json(placement),
        )
