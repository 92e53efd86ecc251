"""A computation of projected costs as a directory: what is to be done, and what is done already.

It holds `problem.json`; for each number of nodes the partitionings (`stops-N.npy`) and their order
in blocks (`order-N.npy`); the costs that sweep K begins with (`values-K.npy`, all numbers of nodes
one after the other) and what its blocks have found (`sweep-K/`). All files appear as a whole.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from godwit.errors import ConfigError, DamagedFileError
from godwit.planner.nearest import from_the_end
from godwit.planner.partitionings import Costs, Indices, Stops
from godwit.planner.projected import UNREADABLE, Problem, Projected, write, write_text

BLOCK = 2048  # partitionings; a second's work or so


@dataclass(frozen=True)
class ProjectionDirectory:
    """A problem in a directory; a block is so many partitionings over one number of nodes."""

    directory: Path
    problem: Problem
    stops: dict[int, Stops]
    order: dict[int, Indices]

    @classmethod
    def prepare(cls, problem: Problem, directory: Path) -> Self:
        """Begin with a problem in a directory, or go on if it is there already."""
        directory.mkdir(parents=True, exist_ok=True)
        described = directory / "problem.json"
        if described.exists() and described.read_text() != problem.to_json():
            raise ConfigError(
                f"{directory} holds projected costs of another problem; use another directory, or "
                "remove this one"
            )
        if not (directory / "values-0.npy").exists():
            write_text(described, problem.to_json())
            count = 0
            for balance in problem.balances():
                stops = balance.partitionings()
                order = from_the_end(stops, problem.tasks)
                write(directory / f"stops-{balance.nodes}.npy", stops.astype(">u2"))
                write(directory / f"order-{balance.nodes}.npy", order)
                count += len(stops)
            write(directory / "values-0.npy", np.zeros(count))
        return cls.open(directory)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """What `prepare` made, mapped into memory."""
        try:
            problem = Problem.from_json((directory / "problem.json").read_text())
            nodes = problem.chain.nodes
            stops = {each: np.load(directory / f"stops-{each}.npy", "r") for each in nodes}
            order = {each: np.load(directory / f"order-{each}.npy", "r") for each in nodes}
        except UNREADABLE as error:
            raise DamagedFileError(
                str(directory), f"cannot be gone on with ({error!r}); use another directory"
            ) from None
        return cls(directory, problem, stops, order)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.problem.to_json().encode()).hexdigest()

    @cached_property
    def blocks(self) -> list[tuple[int, slice]]:
        """The number of nodes of each block, and its place in their order."""
        return [
            (nodes, slice(start, start + BLOCK))
            for nodes, order in self.order.items()
            for start in range(0, len(order), BLOCK)
        ]

    @cached_property
    def start(self) -> dict[int, int]:
        """Where the values of each number of nodes begin."""
        counts = [len(stops) for stops in self.stops.values()]
        starts = np.cumsum([0, *counts]).tolist()
        return dict(zip(self.stops, starts, strict=False))

    @property
    def count(self) -> int:
        return sum(len(stops) for stops in self.stops.values())

    def by_nodes(self, values: Costs) -> dict[int, Costs]:
        """Values of all partitionings by their number of nodes."""
        return {
            nodes: values[self.start[nodes] :][: len(stops)] for nodes, stops in self.stops.items()
        }

    def values(self, sweep: int) -> Costs:
        values: Costs = np.load(self.directory / f"values-{sweep}.npy", "r")
        return values

    def newest(self) -> tuple[int, Costs]:
        """The sweep to be done, and the costs that it begins with."""
        files = self.directory.glob("values-*.npy")
        sweep = max(int(path.stem.removeprefix("values-")) for path in files)
        return sweep, self.values(sweep)

    def missing(self, sweep: int) -> list[int]:
        """The blocks of a sweep that are still to be solved."""
        return [
            block for block in range(len(self.blocks)) if not self._block(sweep, block).exists()
        ]

    def keep(
        self, sweep: int, block: int, moved: Sequence[Costs], targets: Sequence[Indices]
    ) -> None:
        """Store what a block has found: one row for each number of nodes that may follow."""
        path = self._block(sweep, block)
        path.parent.mkdir(exist_ok=True)
        found = np.empty(np.shape(moved), [("moved", np.float64), ("target", np.int64)])
        found["moved"], found["target"] = moved, targets
        write(path, found)

    def found(self, sweep: int, block: int) -> tuple[Costs, Indices]:
        """What `keep` stored."""
        found = np.load(self._block(sweep, block))
        return found["moved"], found["target"]

    def go_on(self, sweep: int, values: Costs) -> None:
        """Close a sweep with the costs that the next one begins with."""
        write(self.directory / f"values-{sweep + 1}.npy", values)
        shutil.rmtree(self.directory / f"sweep-{sweep}")

    def finish(self, values: Costs, bound: float, sweep: int) -> Projected:
        """Close the last sweep: the costs are found."""
        cost = self.by_nodes(values)
        projected = Projected(self.problem, self.stops, cost, bound, sweeps=sweep + 1)
        projected.save(self.directory)
        return Projected.load(self.directory)

    def _block(self, sweep: int, block: int) -> Path:
        return self.directory / f"sweep-{sweep}" / f"{block}.npy"
