"""What something was measured with: versions, the machine and the commit."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("godwit", "pyspark", "pyarrow", "numpy")


def environment() -> dict[str, str]:
    """Versions, the machine, and the commit if this is a working copy."""
    found = versions() | {"machine": platform.machine()}
    commit = git("describe", "--always", "--dirty")
    return found | ({"commit": commit} if commit else {})


def versions(*more: str) -> dict[str, str]:
    """Of Python and of packages."""
    packages = {name: version(name) for name in (*PACKAGES, *more)}
    return packages | {"python": platform.python_version()}


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processors": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.platform(),
        "load_average": os.getloadavg(),
    }


def git(*arguments: str) -> str:
    """What git says of this working copy; nothing if it is none."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
