"""Projected migration costs (Ding et al., section 4.2): what to compute, and what was found.

The projected cost of a partitioning P over n nodes is what its migrations to come will move in the
mean, each discounted by gamma once more than the one before:

    C[P] = sum over n' of M[n, n'] * min over P' with n' nodes of (cost(P, P') + gamma * C[P'])

Figure 6 of the paper lacks the minimum. `godwit.planner.iteration` computes C.
"""

import json
import uuid
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError, DamagedFileError
from godwit.planner.chain import Chain
from godwit.planner.partitionings import Balance, Costs, Stops

MAX_PARTITIONINGS = 5_000_000
UNREADABLE = (OSError, EOFError, ValueError, KeyError, TypeError)  # what damaged files end in


@dataclass(frozen=True, slots=True)
class Problem:
    """Whose projected costs are wanted: tasks, their balance, and the migrations to come.

    `edges` are where the tasks begin and end, in a numbering that may be finer than theirs: tasks
    that were merged (`godwit.planner.task_merging`) keep the numbers of those they are made of.
    """

    chain: Chain
    load: tuple[float, ...]
    size: tuple[float, ...]
    tau: float
    gamma: float
    edges: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < 1:
            raise ConfigError(f"the discount gamma must be from 0 to below 1, not {self.gamma}")
        if not len(self.load) == len(self.size) == len(self.edges) - 1:
            raise ConfigError(
                f"{len(self.load)} loads, {len(self.size)} sizes and {len(self.edges)} edges do "
                "not fit: each task has a load, a size and two edges"
            )
        if not all(0 <= size < np.inf for size in self.size):
            raise ConfigError("every size must be a number and not negative")
        count = sum(balance.count() for balance in self.balances())
        if count > MAX_PARTITIONINGS:
            raise ConfigError(
                f"{len(self.load)} tasks have {count:,} balanced partitionings, more than "
                f"{MAX_PARTITIONINGS:,}; coarsen the tasks, or take a lower tau or fewer numbers "
                "of nodes"
            )

    @classmethod
    def of(
        cls, chain: Chain, load: npt.ArrayLike, size: npt.ArrayLike, tau: float, gamma: float
    ) -> Self:
        """The problem of tasks that are not merged."""
        loads, sizes = (np.asarray(each, np.float64).tolist() for each in (load, size))
        return cls(chain, tuple(loads), tuple(sizes), tau, gamma, tuple(range(len(loads) + 1)))

    @property
    def tasks(self) -> int:
        return len(self.load)

    @property
    def total(self) -> float:
        """The size of all state."""
        return float(np.sum(self.size))

    def balances(self) -> list[Balance]:
        """The balance that each number of nodes of the chain has to keep."""
        return [Balance.of(self.load, nodes, self.tau) for nodes in self.chain.nodes]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The problem that `to_json` wrote."""
        try:
            fields = json.loads(text)
            chain = Chain.from_json(json.dumps(fields["chain"]))
            load, size, edges = (tuple(fields[name]) for name in ("load", "size", "edges"))
            return cls(chain, load, size, fields["tau"], fields["gamma"], edges)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"not a problem of projected costs ({error!r})") from None


@dataclass(frozen=True)
class Projected:
    """Projected costs: each within `bound` of the exact value, for all partitionings of a problem.

    `stops` and `cost` are by number of nodes; their rows are the same partitionings. They may be
    mapped from files, so that nothing is read but what a look-up touches.
    """

    problem: Problem
    stops: dict[int, Stops]
    cost: dict[int, Costs]
    bound: float
    sweeps: int

    @property
    def count(self) -> int:
        """How many partitionings there are."""
        return sum(map(len, self.stops.values()))

    def of(self, stops: npt.ArrayLike) -> float:
        """The projected cost of one partitioning, nodes without tasks last.

        >>> chain = Chain((1, 2), ((0.0, 1.0), (1.0, 0.0)))
        >>> problem = Problem.of(chain, [1, 1, 1], [1, 1, 1], tau=0.4, gamma=0.5)
        >>> from godwit.planner.iteration import project
        >>> project(problem).of([1, 3])  # 1 task moves now, 1 later, ... : 1 + 1/2 + 1/4 ...
        2.0
        """
        row = np.asarray(stops, ">u2")
        keys = self._keys.get(len(row), np.empty(0, "S1"))
        key = row.tobytes()
        index = int(keys.searchsorted(key))
        # Bytes at the end that are 0 are none to numpy.
        if index == len(keys) or keys[index] != key.rstrip(b"\0"):
            raise ConfigError(
                f"{row.tolist()} is none of the balanced partitionings for which costs were "
                f"projected, over {', '.join(map(str, self.stops))} nodes"
            )
        return float(self.cost[len(row)][index])

    @cached_property
    def _keys(self) -> dict[int, npt.NDArray[np.bytes_]]:
        """Each partitioning as one text of its stops, which sorts as they do."""
        return {
            nodes: np.ascontiguousarray(stops, ">u2").view(f"S{2 * nodes}")[:, 0]
            for nodes, stops in self.stops.items()
        }

    def save(self, directory: Path) -> None:
        """Write it so that `load` maps it; the file that names its bound comes last."""
        write_text(directory / "problem.json", self.problem.to_json())
        for nodes, stops in self.stops.items():
            write(directory / f"stops-{nodes}.npy", np.asarray(stops, ">u2"))
            write(directory / f"cost-{nodes}.npy", self.cost[nodes])
        outcome = {"bound": self.bound, "sweeps": self.sweeps}
        write_text(directory / "projected.json", json.dumps(outcome, indent=1) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """What `save` wrote, mapped into memory."""
        try:
            outcome = json.loads((directory / "projected.json").read_text())
            problem = Problem.from_json((directory / "problem.json").read_text())
            nodes = problem.chain.nodes
            stops = {each: np.load(directory / f"stops-{each}.npy", "r") for each in nodes}
            cost = {each: np.load(directory / f"cost-{each}.npy", "r") for each in nodes}
            return cls(problem, stops, cost, float(outcome["bound"]), int(outcome["sweeps"]))
        except UNREADABLE as error:
            raise DamagedFileError(
                str(directory), "holds no finished projected costs; make them with 'godwit project'"
            ) from error


def write(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array so that no reader sees half of it."""
    partial = _partial(path)
    with partial.open("wb") as file:
        np.save(file, array)
    partial.replace(path)


def write_text(path: Path, text: str) -> None:
    """Write a text so that no reader sees half of it."""
    partial = _partial(path)
    partial.write_text(text)
    partial.replace(path)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
