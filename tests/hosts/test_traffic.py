"""How much hosts send, and how fast."""

import sys
import time
from subprocess import PIPE

import pytest

from lab.hosts.hosts import Hosts
from tests.support.hosts.waiting import until_listening

LINK = [sys.executable, "-m", "tests.support.hosts.link"]
AMOUNT = 5_000_000
RATE = 12_500_000  # bytes a second: that of the fixture


def transfer(hosts: Hosts, to: str, *senders: str) -> float:
    """The bytes a second that arrive at a host when others send it `AMOUNT` each."""
    receiving = hosts[to].start([*LINK, "receive", str(len(senders))], stdout=PIPE, text=True)
    until_listening(hosts[to])
    sending = [hosts[name].start([*LINK, "send", to, str(AMOUNT)]) for name in senders]
    assert [process.wait() for process in sending] == [0] * len(senders)
    return float(receiving.communicate()[0])


@pytest.mark.parametrize("senders", [("a",), ("a", "b")])
def test_no_host_receives_faster_than_its_interface_does(
    hosts: Hosts, senders: tuple[str, ...]
) -> None:
    rate = transfer(hosts, "c", *senders)
    assert RATE / 2 < rate <= RATE * 1.1  # what fits into buffers arrives before the time starts


def test_no_host_sends_faster_than_its_interface_does(hosts: Hosts) -> None:
    """To two others at once."""
    receiving = [
        hosts[to].start([*LINK, "receive", "1"], stdout=PIPE, text=True) for to in ("b", "c")
    ]
    for to in ("b", "c"):
        until_listening(hosts[to])
    began = time.monotonic()
    for to in ("b", "c"):
        hosts["a"].start([*LINK, "send", to, str(AMOUNT)])
    for process in receiving:
        process.communicate()
    assert 2 * AMOUNT / (time.monotonic() - began) <= RATE * 1.1


def test_what_a_host_sends_and_receives_is_counted(hosts: Hosts) -> None:
    before = {host.name: host.traffic for host in hosts}
    transfer(hosts, "b", "a")
    a, b, c = (host.traffic - before[host.name] for host in hosts)
    assert AMOUNT < a.sent < AMOUNT * 1.1
    assert a.sent == pytest.approx(b.received, rel=0.01)
    assert a.received < AMOUNT / 10
    assert c.sent + c.received < AMOUNT / 100


def test_counts_outlive_a_host(hosts: Hosts) -> None:
    transfer(hosts, "b", "a")
    until_now = hosts["a"].traffic
    hosts["a"].kill()
    assert hosts["a"].traffic.sent >= until_now.sent
    hosts.boot("a")
    transfer(hosts, "b", "a")
    assert hosts["a"].traffic.sent > until_now.sent + AMOUNT
