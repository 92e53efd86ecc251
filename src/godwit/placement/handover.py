"""A handover, without I/O: a worker that is given to another executor (Rhino, section 4.1).

The epoch is its marker: every task of an epoch has the placement of its intent, so nothing is in
between. Its table is in docs/internals/replicas.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from godwit.model.ids import NO_EXECUTOR, Epoch, ExecutorId, WorkerId

Homes = Mapping[WorkerId, ExecutorId]


class HandoverStage(StrEnum):
    """Of a handover; the last two are for good."""

    BUILDING = "building"  # its target fetches the state of the worker
    SWITCHED = "switched"  # an epoch was decided in which the worker runs on the target
    DONE = "done"  # such an epoch is published
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class HandoverState:
    """A worker that is to run on executor `target` from some epoch on.

    Until it has switched the worker is where it was; from then on it is on the target. If the
    target is lost, the worker goes where any worker goes whose executor is lost.
    """

    id: int
    worker: WorkerId
    target: ExecutorId
    stage: HandoverStage = HandoverStage.BUILDING
    epoch: Epoch | None = None  # in which it switched
    automatic: bool = False  # nobody asked for it
    origin: ExecutorId = NO_EXECUTOR  # the executor that the worker was on
    least: int | None = None  # bytes that its target has ever lacked, at the least
    stalled: int = 0  # epochs since that became less
    reason: str = ""  # why it failed

    @property
    def is_open(self) -> bool:
        return self.stage not in (HandoverStage.DONE, HandoverStage.FAILED)

    def published(self, epoch: Epoch, executors: Homes) -> Self:
        """After an epoch is published in which workers ran at `executors`."""
        switched = (
            self.stage is HandoverStage.SWITCHED and self.epoch is not None and self.epoch <= epoch
        )
        arrived = switched and executors.get(self.worker) == self.target
        return replace(self, stage=HandoverStage.DONE) if arrived else self

    def failed(self, reason: str) -> Self:
        return replace(self, stage=HandoverStage.FAILED, reason=reason)

    def waited(self, lacking: int | None) -> Self:
        """It goes on for another epoch, with so many bytes to come, if that is known."""
        if lacking is not None and (self.least is None or lacking < self.least):
            return replace(self, least=lacking, stalled=0)
        return replace(self, stalled=self.stalled + 1)

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return f"handover of worker {self.worker} to executor {self.target}: {self.stage}{why}"

    def record(self) -> Self:
        """What an intent says of it: not what only the driver that decides it has to know."""
        return replace(self, origin=NO_EXECUTOR, least=None, stalled=0)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "worker": self.worker,
            "target": self.target,
            "stage": str(self.stage),
            "epoch": self.epoch,
            "automatic": self.automatic,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "stage": HandoverStage(data["stage"])})
