"""What an epoch was decided to do, before any of its work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from godwit.migration.migration import OperatorMigrations
from godwit.model.ids import Epoch
from godwit.model.routing import Routing
from godwit.model.tree import Merge
from godwit.model.unread import UnreadFiles
from godwit.placement.placement_state import PlacementRecord

Merges = Mapping[str, Mapping[str, tuple[Merge, ...]]]  # by operator and table


@dataclass(frozen=True, slots=True)
class WrittenRouting:
    """A routing as an intent has it: `packed`, or a reference to the intent that it holds `since`.

    >>> WrittenRouting.from_json({"since": 3}, epoch=Epoch(5))
    WrittenRouting(since=3, packed=None)
    >>> WrittenRouting.from_json(Routing.even(4, 2).to_json(), epoch=Epoch(5)).unpack().workers
    2
    """

    since: Epoch
    packed: dict[str, Any] | None = None  # as `Routing` writes it

    @classmethod
    def from_json(cls, data: dict[str, Any], epoch: Epoch) -> Self:
        """From JSON, in the intent of an epoch."""
        return cls(data["since"]) if "since" in data else cls(epoch, data)

    def unpack(self) -> Routing:
        """The routing; LookupError if it is elsewhere."""
        if self.packed is None:
            raise LookupError(f"the routing of epoch {self.since}")
        return Routing.from_json(self.packed)


@dataclass(frozen=True, slots=True)
class IntentHead:
    """What an intent says at little cost: no routing is unpacked, and no migration.

    `taken` is the id of the newest request that was taken in, `open` are those of the requests
    whose migrations are open.
    """

    epoch: Epoch
    taken: int
    open: frozenset[int]
    routings: Mapping[str, WrittenRouting]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        migrations = data["migrations"].values()
        return cls(
            epoch=data["epoch"],
            taken=int(data["control"]),
            open=frozenset(one["open"]["id"] for one in migrations if one["open"]),
            routings=_written_routings(data),
        )

    @property
    def since(self) -> dict[str, Epoch]:
        """For each operator, the epoch whose intent holds its routing in full."""
        return {operator: routing.since for operator, routing in self.routings.items()}


@dataclass(frozen=True, slots=True)
class Intent:
    """The decisions of one epoch; a replay of the epoch obeys the same intent.

    `query` is Spark's id of the query and `offsets` the digest of Spark's offsets of the epoch.
    `taken` is the id of the newest request that was taken in, `refused` says by id which of the
    last ones were refused and why, `sources` which of the last ones came as data, `dropped` by
    operator which schedules it has given up that are not over. Routings, merges
    and migrations are by operator; so are watermarks, for operators that have one, in microseconds
    since 1970. `asked_workers` and `asked_bins` are the numbers that the program named last at a
    start, if it did. `backlog` is how many offsets of the sources the epoch leaves to read, if they
    tell, `unread` the files of theirs that wait; both decide nothing. `placement` says, where
    workers are pinned, which executors they run on.
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
    dropped: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    asked_workers: int | None = None
    asked_bins: int | None = None
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
            **({"dropped": dict(self.dropped)} if self.dropped else {}),
            "given": self.asked_workers,
            **({"given_bins": self.asked_bins} if self.asked_bins else {}),
            "backlog": self.backlog,
            **({"unread": self.unread.to_json()} if self.unread else {}),
            "placement": self.placement and self.placement.to_json(),
        }

    @classmethod
    def from_json(
        cls, data: dict[str, Any], routing: Callable[[str, WrittenRouting], Routing]
    ) -> Self:
        """From JSON; `routing` finds an operator's routing, or unpacks it."""
        placement = data.get("placement")
        return cls(
            epoch=data["epoch"],
            generation=data["generation"],
            query=data["query"],
            offsets=data["offsets"],
            routings={
                name: routing(name, written) for name, written in _written_routings(data).items()
            },
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
            dropped={name: tuple(ids) for name, ids in data.get("dropped", {}).items()},
            asked_workers=data["given"],
            asked_bins=data.get("given_bins"),
            backlog=data["backlog"],
            unread=UnreadFiles.from_json(data["unread"]) if data.get("unread") else None,
            placement=placement and PlacementRecord.from_json(placement),
        )


def _written_routings(data: dict[str, Any]) -> dict[str, WrittenRouting]:
    return {
        operator: WrittenRouting.from_json(routing, data["epoch"])
        for operator, routing in data["routings"].items()
    }
