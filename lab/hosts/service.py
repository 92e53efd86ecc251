"""A server on a host: a process that is up once it listens, and what it says."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from types import MappingProxyType
from typing import Any, Final

from lab.hosts.host import Host

_SECONDS: Final = 180  # until a server must be up, on a machine that is busy otherwise
_TOLD: Final = 2000  # characters of what a server has said that an error shows


class Service:
    """A server process of a host; what it says is in its `log`, on the disk of the host."""

    def __init__(
        self,
        host: Host,
        name: str,
        command: Sequence[str | Path],
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.host = host
        self.log = host.disk / f"{name}.log"
        assignments = [f"{variable}={value}" for variable, value in variables.items()]
        with self.log.open("wb") as log:
            self._process: Popen[Any] = host.start(
                ["env", *assignments, *command], stdin=DEVNULL, stdout=log, stderr=STDOUT
            )

    def await_port(self, port: int) -> None:
        """Wait until it listens."""
        self._await(lambda: self.host.listens(port), f"listen at {port}")

    def await_said(self, text: str) -> None:
        """Wait until it has said this."""
        self._await(lambda: text in self.log.read_text(errors="replace"), f"say '{text}'")

    def _await(self, happened: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + _SECONDS
        while not happened():
            if self._process.poll() is not None or time.monotonic() > until:
                said = self.log.read_text(errors="replace")[-_TOLD:]
                raise RuntimeError(f"{self.log.stem} on {self.host.name} does not {what}:\n{said}")
            time.sleep(0.05)
