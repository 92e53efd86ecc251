"""The lock that the parts of a driver share, and the bell for those who wait."""

import threading
from collections.abc import Callable
from types import TracebackType


class Monitor:
    """`with monitor:` holds the one lock of a driver; a thread that holds it may do so again.

    What parts share changes only while it is held. So whoever holds it sees all parts as of one
    moment, and an epoch is decided, or its publishing told, for all of them at once.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False

    def __enter__(self) -> None:
        self._changed.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._changed.__exit__(kind, error, trace)

    def wait_for(self, happened: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until something has `happened`; False if it has not by the end of the query."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or happened(), timeout)
            return happened()

    def wake(self) -> None:
        """Something has happened: let those who wait look."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """The query has ended: wake those who wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
