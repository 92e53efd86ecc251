"""Which rooms of the house call which while something runs."""

import sys
from functools import cached_property
from inspect import getattr_static
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import godwit

HOUSE = str(Path(godwit.__file__).parent) + "/"
ELSEWHERE = {"model", "testing"}  # values that every room speaks of; not on the way


class Crossings:
    """The pairs of rooms of which code of the first called a function or method of the second, in
    this thread. To ask a value for an attribute is no call."""

    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()

    def __enter__(self) -> "Crossings":
        sys.setprofile(self._see)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _argument: Any) -> None:
        called = room(frame)
        if event != "call" or called is None or is_anonymous(frame) or is_property(frame):
            return
        caller = frame.f_back
        while caller is not None and room(caller) is None:  # Spark's, numpy's or Python's
            caller = caller.f_back
        calling = caller and room(caller)
        if calling and calling != called:
            self.pairs.add((calling, called))


def room(frame: FrameType) -> str | None:
    """The room whose code a frame runs, if it is of one."""
    path = frame.f_code.co_filename
    inside, _, rest = path.removeprefix(HOUSE).partition("/")
    return inside if path.startswith(HOUSE) and rest and inside not in ELSEWHERE else None


def is_anonymous(frame: FrameType) -> bool:
    """Is it code that was handed over, such as a generator that the called room goes through?"""
    return frame.f_code.co_name.startswith("<")


def is_property(frame: FrameType) -> bool:
    """Is it how a value finds an attribute?"""
    owner = frame.f_locals.get("self")
    found = getattr_static(type(owner), frame.f_code.co_name, None)
    return isinstance(found, property | cached_property)
