"""A plan: the moves from one routing to another, as a file that people read and change."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError, RefusedError
from godwit.model.ids import BinId, WorkerId
from godwit.model.routing import Routing


@dataclass(frozen=True, slots=True)
class Moves:
    """Bins `first` to `last`, from one worker to another."""

    first: BinId
    last: BinId
    source: WorkerId
    target: WorkerId

    def __str__(self) -> str:
        bins = f"bin {self.first}" if self.first == self.last else f"bins {self.first}-{self.last}"
        return f"{bins}: {self.source} -> {self.target}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The moves of one operator, made for the routing of which `routing` is the digest."""

    operator: str
    routing: str
    workers: int
    moves: tuple[Moves, ...]

    @classmethod
    def of(cls, operator: str, origin: Routing, target: Routing) -> Self:
        """The plan that leads from `origin` to `target`.

        >>> plan = Plan.of("counts", Routing.even(8, 2), Routing.even(8, 2).spread(3))
        >>> plan.workers, [str(moves) for moves in plan.moves]
        (3, ['bin 3: 0 -> 2', 'bin 7: 1 -> 2'])
        """
        bins = np.flatnonzero(origin.owners != target.owners)
        pairs = np.stack([origin.owners[bins], target.owners[bins]])
        breaks = (np.diff(bins) != 1) | (np.diff(pairs) != 0).any(axis=0)
        parts = np.split(bins, np.flatnonzero(breaks) + 1) if len(bins) else []
        moves = [_run(part, origin, target) for part in parts]
        return cls(operator, origin.digest(), target.workers, tuple(moves))

    @property
    def bins(self) -> int:
        """How many bins it moves."""
        return sum(moves.last - moves.first + 1 for moves in self.moves)

    def target(self, origin: Routing) -> Routing:
        """The routing that the plan leads to; refused if it was made for another `origin`."""
        if origin.digest() != self.routing:
            raise RefusedError(
                f"the plan was made for another routing of operator '{self.operator}' than it has "
                "now; plan again"
            )
        owners: dict[int, int] = {}
        for moves in self.moves:
            for bin in range(moves.first, moves.last + 1):
                if not 0 <= bin < origin.bins or origin.owners[bin] != moves.source:
                    raise RefusedError(
                        f"the plan moves {moves}, but worker {moves.source} does not own bin {bin}"
                    )
                if bin in owners:
                    raise RefusedError(f"the plan moves bin {bin} twice")
                owners[bin] = moves.target
        return origin.assign(owners, self.workers)

    def to_text(self) -> str:
        """As JSON, a line for each run of bins."""
        head = {"operator": self.operator, "routing": self.routing, "workers": self.workers}
        lines = [f"    {json.dumps(_move_to_json(moves))}" for moves in self.moves]
        moves = "[\n" + ",\n".join(lines) + "\n  ]" if lines else "[]"
        return json.dumps({**head, "moves": 0}, indent=2).replace(": 0\n}", f": {moves}\n}}\n")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """What `to_text` wrote, perhaps changed by hand since."""
        try:
            data = json.loads(text)
        except ValueError:
            raise ConfigError("not a plan that Godwit can read (it is not JSON)") from None
        try:
            _check_whole("it", data, [field.name for field in fields(cls)])
            moves = _moves(data.pop("moves"))
            plan = cls(**data, moves=tuple(moves))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(f"not a plan that Godwit can read ({error})") from None
        if [*map(type, (plan.operator, plan.routing, plan.workers))] != [str, str, int]:
            raise ConfigError("a plan names its operator, routing and number of workers")
        return plan


def _run(bins: npt.NDArray[np.int64], origin: Routing, target: Routing) -> Moves:
    """Bins without a gap, all with one worker before and one after."""
    first, last = BinId(int(bins[0])), BinId(int(bins[-1]))
    source, destination = int(origin.owners[first]), int(target.owners[first])
    return Moves(first, last, WorkerId(source), WorkerId(destination))


def _move_to_json(moves: Moves) -> dict[str, Any]:
    bins = f"{moves.first}-{moves.last}" if moves.first < moves.last else str(moves.first)
    return {"bins": bins, "from": moves.source, "to": moves.target}


def _check_whole(what: str, data: Any, names: Iterable[str]) -> None:
    if missing := [name for name in names if name not in data]:
        raise ValueError(f"{what} lacks {', '.join(missing)}")


def _moves(entries: Any) -> list[Moves]:
    if not isinstance(entries, list):
        raise TypeError("its moves are no list")
    found = []
    for entry in entries:
        _check_whole(f"move {entry}", entry, ["bins", "from", "to"])
        first, _, last = str(entry["bins"]).partition("-")
        numbers = first, last or first, str(entry["from"]), str(entry["to"])
        if not all(number.isdecimal() for number in numbers):
            raise ValueError(f"move {entry} has something else than whole numbers from 0")
        low, high, source, target = map(int, numbers)
        moves = Moves(BinId(low), BinId(high), WorkerId(source), WorkerId(target))
        if moves.first > moves.last:
            raise ValueError(f"bins {entry['bins']}")
        found.append(moves)
    return found
