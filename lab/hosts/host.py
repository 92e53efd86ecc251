"""A host: namespaces that a process holds, a disk, an address."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lab.hosts import clock, init
from lab.hosts.network import Network, Traffic

ROOT: Final = Path(__file__).parents[2]
SPARK: Final = Path(str(importlib.util.find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
_PASSED_ON: Final = ("PATH", "JAVA_HOME", "LANG", "LC_ALL", "TERM", "TZ")  # from who opens the lab


class Host:
    """One of several hosts, which is up until it is killed, and may be booted again.

    Processes of it see its own address, name, process ids, /tmp and shared memory; the machine's
    files they can only read. `disk` is its /tmp, as the machine sees it; it outlives the host.
    """

    def __init__(self, name: str, network: Network, scratch: Path, skew: int) -> None:
        self.name = name
        self.address = network.address(name)
        self.disk = scratch / name
        self.variables: dict[str, str] = {}  # of the environment of all that is started here
        self._network = network
        self._namespaces: subprocess.Popen[str] | None = None
        self._first = 0
        self.disk.mkdir()
        self._clock = clock.skewed(skew, self.disk)
        named = "".join(f"{network.address(one)} {one}\n" for one in network.names)
        Path(f"{self.disk}.hosts").write_text(f"127.0.0.1 localhost\n{named}")

    @property
    def up(self) -> bool:
        return self._namespaces is not None

    def boot(self, seen: Sequence[str], alive: int) -> None:
        """Start it, and keep `alive`, a file descriptor, open as long as it has processes. `seen`
        is what `init` says of it."""
        new = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
        first = (sys.executable, "-S", "-I", init.__file__, self.name, self.disk, self.disk.parent)
        self._namespaces = subprocess.Popen(
            ["unshare", *new, "--", *map(str, [*first, *seen])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[alive],
            start_new_session=True,  # who interrupts a program at the terminal ends no host
        )
        assert self._namespaces.stdout
        if not (first_process := self._namespaces.stdout.readline()):
            raise RuntimeError(f"host {self.name} does not start: see what it has said")
        self._first = int(first_process)
        self._network.plug_in(self.name, self._first)

    def kill(self) -> None:
        """Take it from the network, and then end all of its processes; none says farewell."""
        if self._namespaces is None:
            return
        self._network.unplug(self.name)
        self._namespaces.communicate()  # its first process ends, and with it all others
        self._namespaces = None

    def partition(self) -> None:
        """Lose whatever it sends, or is sent, until it is healed."""
        self._network.partition(self.name)

    def heal(self) -> None:
        """End a partition."""
        self._network.heal(self.name)

    @property
    def traffic(self) -> Traffic:
        """What it has sent to and received from other hosts, whatever happened to it."""
        return self._network.traffic(self.name)

    def listens(self, port: int) -> bool:
        """Whether a process of it waits for connections at a port."""
        return self.up and self._network.listens(self.name, port)

    def processes(self) -> dict[int, str]:
        """The command of each of its processes, by the number that the machine gave it."""
        found = {}
        if self.up:
            own = os.readlink(f"/proc/{self._first}/ns/pid")
            for entry in Path("/proc").iterdir():
                if entry.name.isdecimal():
                    with suppress(OSError):  # it may end meanwhile
                        if os.readlink(entry / "ns/pid") == own:
                            command = (entry / "cmdline").read_bytes().decode(errors="replace")
                            found[int(entry.name)] = command.replace("\0", " ").strip()
        return found

    def start(
        self, command: Sequence[str | Path], cwd: Path = init.OWN, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a process of this host; who kills what is returned kills it. `options` are those of
        `subprocess.Popen`."""
        return subprocess.Popen(self._entering(command, cwd), **options)

    def run(self, command: Sequence[str | Path], timeout: float = 120) -> str:
        """Run a command of this host to its end; what it prints is returned."""
        entering = self._entering(command, init.OWN)
        ended = subprocess.run(
            entering, check=True, stdout=subprocess.PIPE, text=True, timeout=timeout
        )
        return ended.stdout

    def _entering(self, command: Sequence[str | Path], cwd: Path) -> list[str]:
        if not self.up:
            raise RuntimeError(f"host {self.name} is down: boot it again")
        namespaces = ("--mount", "--net", "--uts", "--ipc", "--pid")
        variables = [f"{name}={value}" for name, value in self._environment().items()]
        return [
            *("nsenter", f"--target={self._first}", *namespaces, "--"),
            *("env", "--ignore-environment", f"--chdir={cwd}", *variables),
            *("setpriv", "--pdeathsig=KILL", "--"),
            *map(str, command),
        ]

    def _environment(self) -> dict[str, str]:
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        own = {
            "HOME": str(init.OWN),
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": self.address,
        }
        return passed_on | own | self._clock | self.variables
