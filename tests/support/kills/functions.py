"""Functions for the state machine of `bank`: the right one, and some in which things go wrong."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from godwit import faults

STRUCK = "a"  # the branch at which things go wrong
LONGEST = 30  # a history longer than this is cleared

Row = tuple[Any, ...]


def statement(branch: str, change: Any, state: Any) -> list[Row]:
    """What changed, and how much the branch has seen.

    A test can strike it as it strikes Godwit, at the point `function` and a number of `seen`.
    """
    state.profile.seen = (state.profile.seen or 0) + 1
    if branch == STRUCK:
        faults.reach("function", "before", state.profile.seen)
    if len(state.history) == LONGEST:
        state.history.clear()
    state.history.append((change.account, change.balance))
    state.best[change.account] = max(state.best.get(change.account, change.balance), change.balance)
    return [(branch, change.account, change.balance, state.profile.seen, len(state.history))]


@dataclass(frozen=True)
class Struck:
    """`statement`, but something happens when the struck branch has seen so much."""

    home: Path
    seen: int

    def __call__(self, branch: str, change: Any, state: Any) -> list[Row]:
        rows = statement(branch, change, state)
        if (branch, state.profile.seen) == (STRUCK, self.seen):
            self.strike(change.account)
        return rows

    def strike(self, account: str) -> None:
        raise NotImplementedError


class Raising(Struck):
    def strike(self, account: str) -> None:
        raise LookupError(f"no such account: {account}")


class Dying(Struck):
    """The first process that comes here ends."""

    def strike(self, account: str) -> None:
        marker = self.home / "died"
        if not marker.exists():
            marker.touch()
            os._exit(1)


class Blocking(Struck):
    """Whoever comes here stays here."""

    def strike(self, account: str) -> None:
        (self.home / "blocked").touch()
        while True:
            time.sleep(1)


@dataclass(frozen=True)
class Keeping:
    """Keeps what it gets; the first process that has written its files in an epoch ends then."""

    home: Path
    epoch: int

    def __call__(self, key: Any, value: Any, state: Any) -> list[tuple[Any, ...]]:
        faults.handler = self._reached
        state.lots.append(value.lot)
        return [(key, value.lot)]

    def _reached(self, point: str, side: faults.Side, epoch: int) -> None:
        if (point, side) == ("outputs", "after"):
            faults.handler = None
            with suppress(FileExistsError):
                if epoch == self.epoch:
                    (self.home / "died").touch(exist_ok=False)
                    os._exit(1)


class Overtaken(Struck):
    """Two attempts of a task write their files, and go on when both have."""

    def strike(self, account: str) -> None:
        context = TaskContext.get()
        assert context is not None
        faults.handler = partial(self._reached, context.attemptNumber())

    def _reached(self, attempt: int, point: str, side: faults.Side, epoch: int) -> None:
        if (point, side) == ("outputs", "after"):
            faults.handler = None
            (self.home / f"attempt-{attempt}").touch()
            while not all((self.home / f"attempt-{one}").exists() for one in (0, 1)):
                time.sleep(0.01)
