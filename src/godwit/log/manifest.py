"""What an epoch was, once it is whole."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from godwit.state.table import FileRef
from godwit.state.tree import Tree


@dataclass(frozen=True, slots=True)
class Manifest:
    """The published result of one epoch: what it names exists, and nothing else does.

    `query` and `offsets` are those of the intent. Operators (their descriptions), trees (their
    state), outputs (files) and receipts (statistics) are by operator, as JSON that the log does not
    look into. So are clocks: the greatest event time that each input has shown up to this epoch.
    Epoch -1 is the initial state, loaded before the first epoch; where a query goes on from one of
    Spark's own, it is the number of that one's last batch.
    """

    epoch: int
    generation: int
    query: str
    offsets: str
    operators: Mapping[str, Any]
    trees: Mapping[str, Any]
    outputs: Mapping[str, Any]
    receipts: Mapping[str, Any]
    clocks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Unique over all histories: an epoch that is run again after a rollback has another id."""
        return f"{self.query}/{self.epoch}/{self.generation}"

    def to_json(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)


def state_files(manifest: Manifest) -> Iterator[FileRef]:
    """The state files that a manifest names."""
    for tables in manifest.trees.values():
        for tree in tables.values():
            yield from Tree.refs(tree)


def output_files(manifest: Manifest) -> Iterator[FileRef]:
    """The output files that a manifest names."""
    for refs in manifest.outputs.values():
        yield from map(FileRef.from_json, refs)
