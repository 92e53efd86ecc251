"""Waiting for what processes of other hosts do."""

import time
from collections.abc import Callable
from subprocess import Popen
from typing import Final

from lab.hosts.host import Host
from tests.support.hosts.link import PORT

_SECONDS: Final = 30


def until(happened: Callable[[], bool]) -> None:
    """Look for it until it has happened."""
    end = time.monotonic() + _SECONDS
    while not happened():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.01)


def said(process: Popen[str]) -> str:
    """The next line that a process prints."""
    assert process.stdout
    return process.stdout.readline()


def until_listening(host: Host) -> None:
    until(lambda: host.listens(PORT))
