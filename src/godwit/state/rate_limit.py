"""A bound on how fast the processes of an executor read from the checkpoint's location.

It keeps what is fetched ahead of need from taking all that a shared store can give, and stands for
a network where there is none.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_INSTANTS: Final = struct.Struct("=dd")
_PAUSE: Final = 0.1  # seconds; who fetches one piece after the other takes less between two


class RateLimit:
    """A link of `rate` bytes a second, shared by all processes of a machine that name its file.

    The file holds the instant until which the link is taken, on the clock that all processes of a
    machine share. Who passes bytes over the link takes the time behind that instant and sleeps to
    its end. So nobody waits for more than what others have in hand: pass bytes in small pieces.

    Who `yields` takes nothing while others use the link: the file also holds the instant until
    which those have taken it that do not yield.
    """

    def __init__(
        self,
        path: Path,
        rate: float,
        *,
        yields: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path = path
        self._rate = rate
        self._yields = yields
        self._clock = clock
        self._sleep = sleep

    def take(self, size: int) -> None:
        """Wait as long as `size` bytes take, behind those of others who came before."""
        try:
            end = self._reserve(size / self._rate)
        except OSError:  # nothing can be shared here
            end = self._clock() + size / self._rate
        self._sleep(max(0.0, end - self._clock()))

    def _reserve(self, seconds: float) -> float:
        """The end of the next `seconds` that nobody has taken."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                data = os.pread(descriptor, _INSTANTS.size, 0)
                taken, used = _INSTANTS.unpack(data) if len(data) == _INSTANTS.size else (0.0, 0.0)
                now = self._clock()
                if not self._yields or now >= used + _PAUSE:
                    end: float = max(now, taken) + seconds
                    instants = end, used if self._yields else end
                    os.pwrite(descriptor, _INSTANTS.pack(*instants), 0)
                    return end
            finally:
                os.close(descriptor)  # and with it the lock
            self._sleep(used + _PAUSE - now)
