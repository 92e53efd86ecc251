"""Where workers run, and which executors keep copies of their state."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from godwit.model.ids import ExecutorId, SlotId, WorkerId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held:
    """What an executor has of a worker's state: all files of `epoch`, if it has ever had all of
    one; `lacking` bytes of the newest epoch that it has seen.

    >>> Held(epoch=7).lacking
    0
    """

    epoch: int | None
    lacking: int = 0


# By executor and worker; what is not there is unknown.
Replicas = Mapping[ExecutorId, Mapping[WorkerId, Held]]


@dataclass(frozen=True, slots=True)
class Placement:
    """The slot of each worker, and the executors that hold a replica of its state.

    Slot s is on executor `executors[s % len(executors)]`. No worker has a replica where it runs,
    and none has two on one executor. Two placements that differ have different versions.

    >>> placement = Placement.of(7, ["0", "1"], ["1", "0", "1"], [["0"], ["1"], ["0"]])
    >>> placement.slots, placement.homes, placement.width
    ((1, 0, 3), ('1', '0', '1'), 2)
    """

    version: int
    executors: tuple[ExecutorId, ...]
    slots: tuple[SlotId, ...]
    replicas: tuple[tuple[ExecutorId, ...], ...]

    @classmethod
    def of(
        cls,
        version: int,
        executors: Sequence[ExecutorId],
        homes: Iterable[ExecutorId],
        replicas: Iterable[Iterable[ExecutorId]],
    ) -> Self:
        """The placement in which worker w runs on executor `homes[w]`."""
        free = {executor: number for number, executor in enumerate(executors)}
        slots = []
        for home in homes:
            slots.append(SlotId(free[home]))
            free[home] += len(executors)
        return cls(version, tuple(executors), tuple(slots), tuple(map(tuple, replicas)))

    @property
    def homes(self) -> tuple[ExecutorId, ...]:
        """The executor of each worker."""
        return tuple(self.executors[slot % len(self.executors)] for slot in self.slots)

    @property
    def width(self) -> int:
        """How many slots an executor needs at least."""
        return max(self.slots) // len(self.executors) + 1

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "executors": self.executors,
            "slots": self.slots,
            "workers": self.homes,
            "replicas": self.replicas,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        replicas = tuple(map(tuple, data["replicas"]))
        return cls(data["version"], tuple(data["executors"]), tuple(data["slots"]), replicas)


def by_worker(values: Iterable[T]) -> Iterator[tuple[WorkerId, T]]:
    """Each value with its worker, where they are in the order of the workers."""
    return ((WorkerId(number), value) for number, value in enumerate(values))
