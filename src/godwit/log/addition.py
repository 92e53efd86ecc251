"""Operators that came, with state of their own, after an epoch had been published."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from godwit.log.intent import Intent
from godwit.model.manifest import Manifest
from godwit.model.routing import Routing


@dataclass(frozen=True, slots=True)
class Addition:
    """The initial state of operators that a published epoch lacks.

    It is written once, whole, and holds as if the epoch had had these operators: whoever reads the
    epoch's manifest or intent reads them with it. So state is loaded exactly once: before the
    addition is there, nothing is loaded, and a start loads it; from then on, the checkpoint has
    state of the operator. The next manifest names the same files.

    `manifest` has no other operators than the added ones, and the graph that they are in.
    """

    manifest: Manifest
    routings: Mapping[str, Routing]  # that the state was loaded by

    def to_manifest(self, manifest: Manifest) -> Manifest:
        """The manifest of its epoch, with the added operators."""
        added = self.manifest
        return replace(
            manifest,
            operators={**manifest.operators, **added.operators},
            trees={**manifest.trees, **added.trees},
            outputs={**manifest.outputs, **added.outputs},
            receipts={**manifest.receipts, **added.receipts},
            graph=added.graph,
        )

    def to_intent(self, intent: Intent) -> Intent:
        """The intent of its epoch, with the routings of the added operators."""
        return replace(intent, routings={**intent.routings, **self.routings})

    def to_json(self) -> dict[str, Any]:
        routings = {name: routing.to_json() for name, routing in self.routings.items()}
        return {"manifest": self.manifest.to_json(), "routings": routings}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(
            Manifest.from_json(data["manifest"]),
            {name: Routing.from_json(routing) for name, routing in data["routings"].items()},
        )
