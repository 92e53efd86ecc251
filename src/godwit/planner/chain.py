"""How many nodes follow on how many: the migration transition matrix (Ding et al., section 4.2)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Chain:
    """The probability that a migration from `nodes[i]` nodes leads to `nodes[j]`: `matrix[i][j]`.

    >>> print(Chain.learn([2, 2, 3, 2, 4, 2, 3]).to_json())
    {
      "nodes": [2, 3, 4],
      "matrix": [
        [0.0, 0.6666666666666666, 0.3333333333333333],
        [1.0, 0.0, 0.0],
        [1.0, 0.0, 0.0]
      ]
    }
    <BLANKLINE>
    """

    nodes: tuple[int, ...]
    matrix: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if not self.nodes or list(self.nodes) != sorted(set(self.nodes)) or self.nodes[0] < 1:
            raise ConfigError(f"numbers of nodes must ascend from at least 1, not {self.nodes}")
        if any(len(row) != len(self.nodes) for row in (self.matrix, *self.matrix)):
            raise ConfigError(f"the matrix must have {len(self.nodes)} rows of as many numbers")
        for count, row in zip(self.nodes, self.matrix, strict=True):
            if not all(share >= 0 for share in row) or abs(sum(row) - 1) > _ROUNDING:
                raise ConfigError(
                    f"the probabilities of what follows on {count} nodes must be at least 0 and "
                    f"sum up to 1, not {row}"
                )

    @classmethod
    def learn(cls, history: Sequence[int]) -> Self:
        """From numbers of nodes over time: each change of the number is one migration.

        From a number that was never left, every other number is equally probable.
        """
        nodes = tuple(sorted({int(count) for count in history}))
        if len(nodes) < 2:
            raise ConfigError("the history holds no migration: the number of nodes never changes")
        place = {count: index for index, count in enumerate(nodes)}
        seen = np.zeros((len(nodes), len(nodes)))
        for before, after in pairwise(history):
            seen[place[before], place[after]] += before != after
        never = seen.sum(axis=1) == 0
        seen[never] = 1 - np.eye(len(nodes))[never]
        shares = seen / seen.sum(axis=1, keepdims=True)
        return cls(nodes, tuple(tuple(row) for row in shares.tolist()))

    def row(self, nodes: int) -> dict[int, float]:
        """The numbers of nodes that may follow on `nodes`, with their probabilities."""
        shares = self.matrix[self.nodes.index(nodes)]
        return {count: share for count, share in zip(self.nodes, shares, strict=True) if share}

    def to_json(self) -> str:
        """One line for each number of nodes."""
        rows = ",\n".join(f"    {json.dumps(row)}" for row in self.matrix)
        nodes = json.dumps(self.nodes)
        return f'{{\n  "nodes": {nodes},\n  "matrix": [\n{rows}\n  ]\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The chain that `to_json` wrote."""
        try:
            fields = json.loads(text)
            nodes = tuple(int(count) for count in fields["nodes"])
            matrix = tuple(tuple(float(share) for share in row) for row in fields["matrix"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"not a migration transition matrix ({error!r}); 'nodes' must list numbers of "
                "nodes, 'matrix' one row of probabilities for each"
            ) from None
        return cls(nodes, matrix)

    def save(self, path: Path) -> None:
        path.write_text(self.to_json())

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls.from_json(path.read_text())


def nodes_for(
    load: npt.ArrayLike, capacity: float, least: int = 1, most: int | None = None
) -> list[int]:
    """How many nodes of `capacity` each load of a series needs, from `least` to `most`.

    >>> nodes_for([10, 35, 90], capacity=10, least=2, most=8)
    [2, 4, 8]
    """
    if not capacity > 0:
        raise ConfigError(f"the capacity of a node must be above 0, not {capacity}")
    loads = np.asarray(load, np.float64)
    if not (np.isfinite(loads) & (loads >= 0)).all():
        raise ConfigError("every load must be a finite number of at least 0")
    wanted = np.ceil(loads / capacity).astype(np.int64)
    counts: list[int] = np.clip(wanted, least, most).tolist()
    return counts
