"""The network between hosts: a switch in a namespace of its own, which nothing else is part of."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

GIGABIT: Final = 10**9  # bits a second
_PREFIX: Final = "10.77.0"
_NOBODY: Final = "02:77:00:00:00:00"  # an address of the link layer that no interface has


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a host has sent and received, with the headers of what carried them."""

    sent: int = 0
    received: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.sent + other.sent, self.received + other.received)

    def __sub__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.sent - other.sent, self.received - other.received)


@dataclass
class Network:
    """A switch with a port for each host, limited to `rate` bits a second either way.

    It is the network namespace of the process `switch`. No interface leads from there, or from a
    host, to the machine's own network.
    """

    switch: int
    names: Sequence[str]
    rate: int = GIGABIT
    _plugged: dict[str, int] = field(default_factory=dict)  # the first process of each host
    _cuts: set[frozenset[str]] = field(default_factory=set)
    _before: dict[str, Traffic] = field(default_factory=dict)  # over ports that are gone

    def __post_init__(self) -> None:
        self._ip(self.switch, "link add switch type bridge", "link set switch up")

    def address(self, name: str) -> str:
        return f"{_PREFIX}.{self.names.index(name) + 1}"

    def plug_in(self, name: str, process: int) -> None:
        """Give a host its interface, as it was if it had one before."""
        port = self._port(name)
        self._ip(
            self.switch,
            f"link add name {port} type veth peer name eth0 netns {process}",
            f"link set {port} master switch up",
        )
        self._ip(
            process,
            "link set lo up",
            f"link set eth0 address {self._link_address(name)} up",
            f"address add {self.address(name)}/24 dev eth0",
        )
        limit = f"root tbf rate {self.rate}bit burst 256kb latency 20ms"
        self._enter(self.switch, "tc", f"qdisc add dev {port} {limit}")
        self._enter(process, "tc", f"qdisc add dev eth0 {limit}")
        self._plugged[name] = process
        for cut in self._cuts:
            if name in cut:
                (other,) = cut - {name}
                self._hide(name, other)

    def unplug(self, name: str) -> None:
        """Take a host's interface away, with what is on its way."""
        self._before[name] = self.traffic(name)
        self._ip(self.switch, f"link delete {self._port(name)}")
        del self._plugged[name]

    def partition(self, name: str) -> None:
        """Pull a host's cable out: to others, it looks as if it were dead."""
        self._ip(self.switch, f"link set {self._port(name)} down")

    def heal(self, name: str) -> None:
        """Plug a host's cable in again."""
        self._ip(self.switch, f"link set {self._port(name)} up")

    def cut(self, one: str, other: str) -> None:
        """Lose whatever two hosts send to each other; all others still reach both."""
        self._cuts.add(frozenset({one, other}))
        for this, that in ((one, other), (other, one)):
            if this in self._plugged:
                self._hide(this, that)

    def mend(self, one: str, other: str) -> None:
        """Undo a cut."""
        self._cuts.remove(frozenset({one, other}))
        for this, that in ((one, other), (other, one)):
            if this in self._plugged:
                self._ip(self._plugged[this], f"neighbour del {self.address(that)} dev eth0")

    def traffic(self, name: str) -> Traffic:
        """Since the network is there, over all interfaces that the host has had."""
        before = self._before.get(name, Traffic())
        if name not in self._plugged:
            return before
        for line in Path(f"/proc/{self.switch}/net/dev").read_text().splitlines():
            port, _, numbers = line.partition(":")
            if port.strip() == self._port(name):
                counts = numbers.split()
                return before + Traffic(sent=int(counts[0]), received=int(counts[8]))
        raise AssertionError(f"no port for {name}")

    def listens(self, name: str, port: int) -> bool:
        """Whether a process of a host waits for connections at a port."""
        tables = [Path(f"/proc/{self._plugged[name]}/net/{one}") for one in ("tcp", "tcp6")]
        rows = [row.split() for table in tables for row in table.read_text().splitlines()[1:]]
        return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)

    def _hide(self, this: str, that: str) -> None:
        """Let `this` send what is for `that` to nobody."""
        hidden = f"neighbour replace {self.address(that)} lladdr {_NOBODY} dev eth0 nud permanent"
        self._ip(self._plugged[this], hidden)

    def _port(self, name: str) -> str:
        return f"port-{self.names.index(name) + 1}"

    def _link_address(self, name: str) -> str:
        """The same after a restart, since others remember it."""
        return f"02:77:00:00:00:{self.names.index(name) + 1:02x}"

    def _ip(self, process: int, *lines: str) -> None:
        self._enter(process, "ip", "-batch -", "\n".join(lines))

    def _enter(self, process: int, program: str, arguments: str, given: str = "") -> None:
        """Run a program of iproute2 in the network namespace of a process."""
        subprocess.run(
            ["nsenter", f"--target={process}", "--net", "--", program, *arguments.split()],
            input=given.encode(),
            check=True,
            env=os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        )
