"""Several hosts, opened and closed together."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType, TracebackType
from typing import Final, Self

from godwit.errors import ConfigError
from lab.hosts.host import ROOT, Host
from lab.hosts.network import GIGABIT, Network

PROGRAMS: Final = ("unshare", "nsenter", "setpriv", "ip", "tc")
# Holds the network, and what hosts have on their disks until the last process of the last one has
# ended, however this one ended: then nobody holds the other end of its input.
SWITCH: Final = 'echo; cat; exec rm -rf "$0"'


class Hosts:
    """Hosts by name, each with an address, a disk and processes of its own, on one network.

    They see the machine's files, but for its /tmp, and can write to none. `readable` are
    directories that they all see wherever these are, such as the input of a file source. `shared`
    ones they can write to, too, as to a network filesystem whose clients all see the same at once.
    `skews` are seconds by which the clocks of some are ahead. Everything ends with the context, and
    also if this process is killed.
    """

    def __init__(
        self,
        names: Sequence[str],
        readable: Sequence[Path] = (),
        *,
        shared: Sequence[Path] = (),
        rate: int = GIGABIT,
        skews: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._names = names
        installed = (ROOT, Path(sys.prefix), Path(sys.base_prefix))
        self._seen = [str(path.resolve()) for path in (*installed, *readable)]
        self._seen += [f"+{path.resolve()}" for path in shared]
        self._rate = rate
        self._skews = skews
        self._stack = ExitStack()
        self._hosts: dict[str, Host] = {}

    def __enter__(self) -> Self:
        if (missing := unavailable()) is not None:
            raise ConfigError(missing)
        with ExitStack() as stack:
            scratch = Path(mkdtemp(prefix="godwit-hosts-"))
            ended, self._alive = os.pipe()
            switch = subprocess.Popen(
                ["unshare", "--net", "--", "sh", "-c", SWITCH, str(scratch)],
                stdin=ended,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            os.close(ended)
            stack.callback(switch.wait)
            stack.callback(os.close, self._alive)
            assert switch.stdout
            switch.stdout.readline()
            self.network = Network(switch.pid, self._names, self._rate)
            for name in self._names:
                host = Host(name, self.network, scratch, self._skews.get(name, 0))
                self._hosts[name] = host
                stack.callback(host.kill)
                self.boot(name)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def boot(self, name: str) -> None:
        """Start a host that was killed, with what it had on its disk."""
        self[name].boot(self._seen, self._alive)

    def cut(self, one: str, other: str) -> None:
        """Lose whatever two hosts send to each other; all others still reach both."""
        self.network.cut(one, other)

    def mend(self, one: str, other: str) -> None:
        """Undo a cut."""
        self.network.mend(one, other)


@cache
def unavailable() -> str | None:
    """Why there can be no hosts here; None if there can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if missing:
        return f"hosts need {', '.join(missing)}: apt-get install util-linux iproute2"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        why = tried.stderr.strip()
        return f"hosts need namespaces, on Linux as root (CAP_SYS_ADMIN) they are allowed: {why}"
    return None
