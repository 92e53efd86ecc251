"""Files whose names ask a running query for an epoch: it reads them as a second stream."""

import uuid
from collections.abc import Sequence
from contextlib import suppress

from godwit.log.layout import TICKS
from godwit.storage.store import Store


def tick(files: Store) -> None:
    """Ask the query of a checkpoint for an epoch."""
    files.create(f"{TICKS}/{uuid.uuid4().hex}", b"tick")


class SeenTicks:
    """Deletes the ticks that Spark has done with.

    Spark's `cleanSource` would delete the last ones again in every epoch, and warn each time that
    they are gone.
    """

    def __init__(self, files: Store) -> None:
        self._files = files
        self._last: Sequence[str] = ()  # that were there when the last epoch began
        self._before: Sequence[str] = ()  # and when the one before did

    def sweep(self) -> None:
        """An epoch begins: what was there when the one before the last began has been read by the
        last at the latest, which Spark has committed."""
        with suppress(OSError):  # no epoch fails for it: the next one tries again
            for name in self._before:
                self._files.delete(f"{TICKS}/{name}")
            self._before, self._last = self._last, self._files.names(TICKS)
