"""The end of a process, simulated: at a point that a test names, and nothing happens after it."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from godwit import faults

CHANGE = "change"  # a fault point of the tests: any change of a name in the filesystem
CHANGES = ("link", "mkdir", "rename", "replace", "rmdir", "unlink")


class Death(BaseException):
    """The end of a process."""


class Reaper:
    """Ends the process at a fault point; from then on it changes no name in the filesystem."""

    def __init__(self) -> None:
        self.dead = False
        self._point: tuple[str, faults.Side] | None = None
        self._skip = 0

    def arm(self, point: str, side: faults.Side, skip: int = 0) -> None:
        """Wait at a point for the process, and let it pass `skip` times."""
        self._point, self._skip = (point, side), skip

    def revive(self) -> None:
        """There is a new process, for which no death waits."""
        self.dead, self._point = False, None

    def reach(self, point: str, side: faults.Side, epoch: int) -> None:
        if (point, side) == self._point:
            self.dead = self.dead or self._skip == 0
            self._skip -= 1
        if self.dead:
            raise Death

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Be reached by all fault points and all changes of names in the filesystem."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(faults, "handler", self.reach))
            for name in CHANGES:
                stack.enter_context(patch.object(os, name, self._guarded(getattr(os, name))))
            yield

    def _guarded(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.reach(CHANGE, "before", -1)
            return change(*args, **kwargs)

        return guarded


@contextmanager
def death_at(point: str, side: faults.Side, skip: int = 0) -> Iterator[None]:
    """What is done here must die at this point."""
    reaper = Reaper()
    reaper.arm(point, side, skip)
    with reaper.at_work(), pytest.raises(Death):
        yield
