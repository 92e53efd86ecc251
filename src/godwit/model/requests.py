"""Control requests: what a user or a controller asks of later epochs."""

import base64
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt

from godwit.errors import RefusedError
from godwit.model.ids import BinId, Epoch, ExecutorId, WorkerId
from godwit.model.routing import Routing, Update

OnTimeout = Literal["finish", "rollback"]


@dataclass(frozen=True, slots=True, eq=False)
class Updates(Sequence[Update]):
    """Any number of updates, packed in arrays: by epoch, and in the order given within an epoch.

    >>> updates = Updates.of([Update(8, 3, 1), Update(7, 0, 1), Update(7, 2, 0)])
    >>> updates[0], len(updates)
    (Update(epoch=7, bin=0, worker=1), 3)
    >>> updates.owners(7)
    {0: 1, 2: 0}
    """

    epochs: npt.NDArray[np.int64]
    bins: npt.NDArray[np.int64]
    workers: npt.NDArray[np.int64]

    @classmethod
    def of(cls, updates: Iterable[Update]) -> Self:
        rows = [(update.epoch, update.bin, update.worker) for update in updates]
        table = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
        epochs, bins, workers = table[np.argsort(table[:, 0], kind="stable")].T
        return cls(epochs, bins, workers)

    def owners(self, epoch: int) -> dict[BinId, WorkerId]:
        """The worker of each bin that the updates of one epoch name; the last update counts."""
        start, stop = np.searchsorted(self.epochs, [epoch, epoch + 1])
        return dict(
            zip(self.bins[start:stop].tolist(), self.workers[start:stop].tolist(), strict=True)
        )

    def split(self, parts: int) -> "Updates":
        """The same, where each bin has become so many.

        >>> list(Updates.of([Update(7, bin=1, worker=3)]).split(2))
        [Update(epoch=7, bin=2, worker=3), Update(epoch=7, bin=3, worker=3)]
        """
        bins = (self.bins * parts)[:, None] + np.arange(parts)
        return Updates(self.epochs.repeat(parts), bins.ravel(), self.workers.repeat(parts))

    def __len__(self) -> int:
        return len(self.epochs)

    @overload
    def __getitem__(self, index: int) -> Update: ...
    @overload
    def __getitem__(self, index: slice) -> "Updates": ...
    def __getitem__(self, index: int | slice) -> "Update | Updates":
        if isinstance(index, slice):
            return Updates(self.epochs[index], self.bins[index], self.workers[index])
        return Update(int(self.epochs[index]), int(self.bins[index]), int(self.workers[index]))

    def __iter__(self) -> Iterator[Update]:
        columns = self.epochs.tolist(), self.bins.tolist(), self.workers.tolist()
        return map(Update, *columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Updates):
            return NotImplemented
        return (
            np.array_equal(self.epochs, other.epochs)
            and np.array_equal(self.bins, other.bins)
            and np.array_equal(self.workers, other.workers)
        )

    def __hash__(self) -> int:
        return hash((self.epochs.tobytes(), self.bins.tobytes(), self.workers.tobytes()))

    def to_json(self) -> list[Any]:
        epochs, starts = np.unique(self.epochs, return_index=True)
        slices = zip(
            epochs.tolist(),
            np.split(self.bins, starts[1:]),
            np.split(self.workers, starts[1:]),
            strict=False,
        )
        return [[epoch, _pack(bins), _pack(workers)] for epoch, bins, workers in slices]

    @classmethod
    def from_json(cls, data: list[Any]) -> Self:
        none = np.empty(0, np.int64)
        bins = [_unpack(packed) for _, packed, _ in data]
        workers = [_unpack(packed) for _, _, packed in data]
        epochs = [np.full(len(part), epoch) for (epoch, _, _), part in zip(data, bins, strict=True)]
        return cls(*(np.concatenate([none, *column]) for column in (epochs, bins, workers)))


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """From `epoch` on, `operator` has `workers` workers (None: as before), and `updates` hold.

    The updates are to a routing of `bins` bins, none of them for an earlier epoch. A request that
    came as data has the id that it has there as its `source`.
    """

    id: int
    operator: str
    epoch: Epoch
    updates: Updates
    bins: int
    workers: int | None
    source: str | None = None

    def __post_init__(self) -> None:
        if self.updates and self.updates[0].epoch < self.epoch:
            raise RefusedError(
                f"an update for epoch {self.updates[0].epoch} in a request from epoch {self.epoch} "
                "on; give the request the epoch of its first update"
            )

    @property
    def last(self) -> Epoch:
        """The last epoch at which this request changes something."""
        return Epoch(int(self.updates.epochs[-1])) if self.updates else self.epoch

    def with_bins(self, bins: int) -> Self:
        """The same for a routing of as many bins or more, into which those of now were split."""
        return replace(self, updates=self.updates.split(bins // self.bins), bins=bins)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "schedule",
            "id": self.id,
            "operator": self.operator,
            "epoch": self.epoch,
            "updates": self.updates.to_json(),
            "bins": self.bins,
            "workers": self.workers,
            "source": self.source,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**{**data, "updates": Updates.from_json(data["updates"])})


@dataclass(frozen=True, slots=True)
class MigrateRequest:
    """Bring `operator` from `origin`, the routing that this was planned for, to `target`.

    `strategy` cuts the way into steps. With a `deadline`, the outcome at that time is `on_timeout`.
    `supersede` says that an open migration ends where it is, and this one goes on from there.
    Times are seconds since 1970.
    """

    id: int
    operator: str
    origin: Routing
    target: Routing
    strategy: str
    time: float
    deadline: float | None = None
    on_timeout: OnTimeout = "finish"
    supersede: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "migrate",
            "id": self.id,
            "operator": self.operator,
            "origin": self.origin.to_json(),
            "target": self.target.to_json(),
            "strategy": self.strategy,
            "time": self.time,
            "deadline": self.deadline,
            "on_timeout": self.on_timeout,
            "supersede": self.supersede,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        origin, target = Routing.from_json(data["origin"]), Routing.from_json(data["target"])
        return cls(**{**data, "origin": origin, "target": target})


@dataclass(frozen=True, slots=True)
class AbortRequest:
    """End `migration` of `operator` after the steps that have begun, or move its bins back."""

    id: int
    operator: str
    migration: int
    rollback: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "abort",
            "id": self.id,
            "operator": self.operator,
            "migration": self.migration,
            "rollback": self.rollback,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """Give `operator` so many bins: split those that it has, or merge them; none moves."""

    id: int
    operator: str
    bins: int

    def to_json(self) -> dict[str, Any]:
        return {"kind": "split", "id": self.id, "operator": self.operator, "bins": self.bins}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """Move the watermark of `operator` to the end of time: its stream has no more records."""

    id: int
    operator: str

    def to_json(self) -> dict[str, Any]:
        return {"kind": "finish", "id": self.id, "operator": self.operator}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class HandoverRequest:
    """Let `worker` run on another executor; executors are those of the driver's `generation`."""

    id: int
    generation: int
    worker: WorkerId
    executor: ExecutorId

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "handover",
            "id": self.id,
            "generation": self.generation,
            "worker": self.worker,
            "executor": self.executor,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """Let an executor of the driver's `generation` have neither workers nor replicas."""

    id: int
    generation: int
    executor: ExecutorId

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "drain",
            "id": self.id,
            "generation": self.generation,
            "executor": self.executor,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Let the next epoch be the last one of the driver of this `generation`, and of no other."""

    id: int
    generation: int

    def to_json(self) -> dict[str, Any]:
        return {"kind": "stop", "id": self.id, "generation": self.generation}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class StartRequest:
    """The program was started with other numbers than it had named before; None: with the same."""

    id: int
    workers: int | None
    bins: int | None

    def to_json(self) -> dict[str, Any]:
        return {"kind": "start", "id": self.id, "workers": self.workers, "bins": self.bins}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class StreamedUpdates:
    """Updates that came as data under one id: each is an epoch (None: the next), bin and worker."""

    id: str
    operator: str | None
    updates: tuple[tuple[Epoch | None, BinId, WorkerId], ...]
    workers: int | None = None


OperatorRequest = ScheduleRequest | MigrateRequest | AbortRequest | SplitRequest | FinishRequest


@dataclass(frozen=True, slots=True)
class JointRequest:
    """Requests of several operators, one each, which all accept or none. All have the id of it."""

    id: int
    parts: tuple[OperatorRequest, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(replace(part, id=self.id) for part in self.parts))

    def to_json(self) -> dict[str, Any]:
        return {"kind": "joint", "id": self.id, "parts": [part.to_json() for part in self.parts]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        parts = [part for one in data["parts"] for part in parts_of(request_from_json(one))]
        return cls(data["id"], tuple(parts))


PlacementRequest = HandoverRequest | DrainRequest
Request = OperatorRequest | JointRequest | PlacementRequest | StopRequest | StartRequest


def jointly(parts: Sequence[OperatorRequest]) -> OperatorRequest | JointRequest:
    """The request that asks for all of these."""
    return parts[0] if len(parts) == 1 else JointRequest(parts[0].id, tuple(parts))


def migrate_of(request: Request, operator: str) -> MigrateRequest | None:
    """The migration that a request asks of an operator."""
    parts = (part for part in parts_of(request) if isinstance(part, MigrateRequest))
    return next((part for part in parts if part.operator == operator), None)


def parts_of(request: Request) -> tuple[OperatorRequest, ...]:
    """What a request asks of operators, by operator."""
    if isinstance(request, JointRequest):
        return request.parts
    return (request,) if isinstance(request, OperatorRequest) else ()


def request_from_json(data: dict[str, Any]) -> Request:
    """The request that `to_json` made this of."""
    kinds: dict[str, type[Request]] = {
        "schedule": ScheduleRequest,
        "migrate": MigrateRequest,
        "abort": AbortRequest,
        "split": SplitRequest,
        "finish": FinishRequest,
        "joint": JointRequest,
        "handover": HandoverRequest,
        "drain": DrainRequest,
        "stop": StopRequest,
        "start": StartRequest,
    }
    return kinds[data["kind"]].from_json({k: v for k, v in data.items() if k != "kind"})


def _pack(values: npt.NDArray[np.int64]) -> str:
    return base64.b64encode(zlib.compress(values.astype("<i8").tobytes(), 1)).decode()


def _unpack(packed: str) -> npt.NDArray[np.int64]:
    return np.frombuffer(zlib.decompress(base64.b64decode(packed)), "<i8").astype(np.int64)
