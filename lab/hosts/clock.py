"""Clocks that are wrong: what programs of a host are told that the time is.

Linux has one wall clock for all namespaces, so a library answers for it. libfaketime would do that
as well, but the JVM of an idle Spark worker used a third of a processor with it.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from godwit.errors import ConfigError
from lab.hosts import init

_SOURCE: Final = Path(__file__).with_name("skew.c")
_LIBRARY: Final = "skew.so"


def skewed(seconds: int, disk: Path) -> dict[str, str]:
    """Variables of the environment with which programs of a host with this disk are told a time
    that is later by so many seconds. How long something takes, they are told as it is."""
    if not seconds:
        return {}
    if (missing := unavailable()) is not None:
        raise ConfigError(missing)
    library = disk / _LIBRARY
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
    return {"LD_PRELOAD": str(init.OWN / _LIBRARY), "CLOCK_SKEW": str(seconds)}


def unavailable() -> str | None:
    """Why no host can have a clock of its own; None if it can."""
    if shutil.which("cc") is None:
        return "a host with a clock of its own needs a C compiler: apt-get install gcc libc6-dev"
    return None
