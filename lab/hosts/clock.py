"""Clocks that are wrong: what a program of a host is told that the time is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from godwit.errors import ConfigError

_LIBRARIES: Final = (Path("/usr/lib"), Path("/usr/lib64"))
INSTALL: Final = "a host with a clock of its own needs libfaketime: apt-get install libfaketime"


def skewed(seconds: float) -> Mapping[str, str]:
    """Variables of the environment with which Python, the JVM and Rust's libraries are told a time
    that is later by so many seconds. How long something takes, they are told as it is.

    Linux has one such clock for all namespaces, so that a library shifts it. Programs that ask the
    kernel without the C library, as those in Go do, see the true time.
    """
    if not seconds:
        return {}
    library = faketime()
    if library is None:
        raise ConfigError(INSTALL)
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def faketime() -> Path | None:
    """Where libfaketime is, for programs with threads."""
    found = [path for one in _LIBRARIES for path in one.glob("**/faketime/libfaketimeMT.so.1")]
    return found[0] if found else None
