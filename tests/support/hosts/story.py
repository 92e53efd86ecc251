"""A query that goes on whatever happens to hosts, its input, and what it must have counted."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

from lab.hosts.cluster import Cluster
from lab.hosts.host import Host
from tests.support.feed import Feed
from tests.support.hosts.query import SCHEMA
from tests.support.hosts.waiting import said

KEYS: Final = 5_000
ROWS: Final = 20_000  # of a file, which is an epoch


class Driver:
    """A process that drives the query, on one of the hosts."""

    def __init__(self, host: Host, home: str, directory: Path) -> None:
        self._log = host.disk / "query.log"
        command = [sys.executable, "-m", "tests.support.hosts.query", home, str(directory)]
        with self._log.open("wb") as log:
            self._process = host.start(command, stdin=PIPE, stdout=PIPE, stderr=log, text=True)
        self._until(lambda told: "started" in told)

    def begin(self, command: Any) -> None:
        print(json.dumps(command), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """What came of the command that was begun."""
        return self._until(lambda told: "answer" in told)["answer"]

    def do(self, command: Any) -> Any:
        self.begin(command)
        return self.answer()

    @property
    def losses(self) -> int:
        """How often executors were lost, as far as it has seen."""
        return self._log.read_text().count(": lost executor ")

    def epochs(self, count: int) -> None:
        """Wait for so many more."""
        for _ in range(count):
            self._until(lambda told: "epoch" in told)

    def _until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while line := said(self._process):
            told: dict[str, Any] = json.loads(line)
            if wanted(told):
                return told
        raise AssertionError(f"the driver has ended:\n{self._log.read_text()[-5000:]}")


class Story:
    """Files that come in, and drivers of one query that counts what they have."""

    def __init__(self, cluster: Cluster, home: str, directory: Path) -> None:
        self._cluster = cluster
        self._home = home
        self._feed = Feed(directory, SCHEMA)
        self._fed = 0

    def feed(self, files: int) -> None:
        for _ in range(files):
            numbers = range(self._fed, self._fed + ROWS)
            self._feed.add({"k": number * 7919 % KEYS} for number in numbers)
            self._fed += ROWS

    def drive(self, host: str) -> Driver:
        return Driver(self._cluster.hosts[host], self._home, self._feed.directory)

    def check(self, driver: Driver) -> None:
        """Nothing was lost and nothing counted twice, and the checkpoint is whole."""
        driver.do("all")
        counts, findings = driver.do("stop")
        expected = Counter(number * 7919 % KEYS for number in range(self._fed))
        assert counts == {str(key): count for key, count in expected.items()}
        assert findings == []


@contextmanager
def healed(cluster: Cluster) -> Iterator[None]:
    """Afterwards all hosts that are down are booted, for those who use the cluster next."""
    try:
        yield
    finally:
        for name in cluster.names:
            if not cluster.hosts[name].up:
                cluster.boot(name)
