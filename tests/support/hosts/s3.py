"""Using the store from hosts."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from subprocess import PIPE

from lab.hosts.host import Host
from lab.hosts.s3_server import BUCKET
from tests.support.hosts.waiting import said


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an operation."""

    value: str | None
    error: str | None
    seconds: float


class Client:
    """A process of a host that does operations one after the other, once it is told to begin."""

    def __init__(
        self, host: Host, *operations: Mapping[str, str], retries: int = 0, timeout: int = 20
    ) -> None:
        command = [sys.executable, "-m", "tests.support.hosts.s3_client"]
        self._process = host.start(command, stdin=PIPE, stdout=PIPE, text=True)
        self._tell(json.dumps([BUCKET, retries, timeout, operations]))
        assert said(self._process) == "ready\n"

    def begin(self) -> None:
        self._tell("begin")

    def outcomes(self) -> list[Outcome]:
        told = self._process.communicate()[0]
        assert self._process.returncode == 0
        return [Outcome(**one) for one in json.loads(told)]

    def _tell(self, text: str) -> None:
        print(text, file=self._process.stdin, flush=True)


def ask(
    host: Host, *operations: Mapping[str, str], retries: int = 0, timeout: int = 20
) -> list[Outcome]:
    """Let a host do these operations."""
    client = Client(host, *operations, retries=retries, timeout=timeout)
    client.begin()
    return client.outcomes()


def create(key: str, value: str) -> Mapping[str, str]:
    return {"op": "create", "key": key, "value": value}


def put(key: str, value: str) -> Mapping[str, str]:
    return {"op": "overwrite", "key": key, "value": value}


def get(key: str) -> Mapping[str, str]:
    return {"op": "get", "key": key}
