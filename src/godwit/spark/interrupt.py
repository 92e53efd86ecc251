"""Ctrl-C in a program that waits for its query."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType


@contextmanager
def stopping_at_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at Ctrl-C, and raise a KeyboardInterrupt of which Python shows no traceback.

    Meanwhile Spark's own handler is out of the way: it would cancel the jobs of a query that is not
    stopped yet, which therefore fails. Do not wait for Spark in here: a call into the JVM that is
    interrupted leaves an answer behind, which this thread's next call would take for its own.
    """
    if threading.current_thread() is not threading.main_thread():  # gets no signals
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as interrupt:
        stop()
        _show_no_traceback(interrupt)
        raise
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


def _show_no_traceback(error: BaseException) -> None:
    """If a program does not catch it, it just ends."""
    show = sys.excepthook

    def hook(kind: type[BaseException], raised: BaseException, trace: TracebackType | None) -> None:
        if raised is not error:
            show(kind, raised, trace)

    sys.excepthook = hook
