"""Hosts that die, are cut off, and come back."""

import sys
from subprocess import PIPE

import pytest

from lab.hosts.host import Host
from lab.hosts.hosts import Hosts
from tests.support.hosts.waiting import said, until, until_listening

LINK = [sys.executable, "-m", "tests.support.hosts.link"]


def reaches(host: Host, other: str) -> bool:
    return host.run([*LINK, "reach", other]) == "reached\n"


@pytest.fixture
def listening(hosts: Hosts) -> Hosts:
    """All hosts listen."""
    for host in hosts:
        host.start([*LINK, "accept"])
    for host in hosts:
        until_listening(host)
    return hosts


def test_with_a_host_all_of_its_processes_end(hosts: Hosts) -> None:
    host = hosts["a"]
    host.start(["sh", "-c", "setsid sleep 1000 & setsid nohup sh -c 'sleep 2000; true' &"])
    until(lambda: "sleep 2000" in host.processes().values())
    before = host.processes()
    host.kill()
    assert not host.up
    assert host.processes() == {}
    others = [pid for other in hosts for pid in other.processes()]
    assert not before.keys() & {*others}
    with pytest.raises(RuntimeError, match="host a is down"):
        host.run(["true"])


def test_a_killed_host_says_no_farewell(listening: Hosts) -> None:
    waiting = listening["b"].start([*LINK, "wait", "a"], stdin=PIPE, stdout=PIPE, text=True)
    assert said(waiting) == "connected\n"
    listening["a"].kill()
    assert waiting.communicate("\n")[0] == "timed out\n"


def test_who_kills_a_process_of_a_host_gets_it(hosts: Hosts) -> None:
    process = hosts["a"].start(["sleep", "1000"])
    until(lambda: "sleep 1000" in hosts["a"].processes().values())
    process.kill()
    process.wait()
    until(lambda: "sleep 1000" not in hosts["a"].processes().values())


def test_a_host_that_was_killed_comes_back_with_its_disk_and_its_address(listening: Hosts) -> None:
    host = listening["a"]
    host.run(["touch", "/tmp/mine", "/dev/shm/mine"])
    assert reaches(listening["b"], "a")
    host.kill()
    assert not reaches(listening["b"], "a")
    listening.boot("a")
    assert "mine" in host.run(["ls", "/tmp"])
    assert "mine" not in host.run(["ls", "/dev/shm"])
    host.start([*LINK, "accept"])
    until_listening(host)
    assert reaches(listening["b"], "a")


def test_a_partition_isolates_a_host_until_it_is_healed(listening: Hosts) -> None:
    listening["a"].partition()
    assert not reaches(listening["b"], "a")
    assert not reaches(listening["a"], "b")
    assert reaches(listening["b"], "c")
    assert listening["a"].up
    listening["a"].heal()
    until(lambda: reaches(listening["b"], "a"))
    assert reaches(listening["a"], "b")


def test_a_connection_outlives_a_partition(listening: Hosts) -> None:
    waiting = listening["b"].start([*LINK, "wait", "a"], stdin=PIPE, stdout=PIPE, text=True)
    assert said(waiting) == "connected\n"
    listening["a"].partition()
    listening["a"].heal()
    assert waiting.communicate("\n")[0] == "timed out\n"  # and neither refused nor closed


def test_a_cut_is_between_two_hosts_alone(listening: Hosts) -> None:
    assert reaches(listening["a"], "b")  # so that they know each other's interfaces
    listening.cut("a", "b")
    assert not reaches(listening["a"], "b")
    assert not reaches(listening["b"], "a")
    assert reaches(listening["c"], "a")
    assert reaches(listening["c"], "b")
    listening.mend("a", "b")
    assert reaches(listening["a"], "b")
    assert reaches(listening["b"], "a")


def test_a_cut_holds_for_a_host_that_comes_back(listening: Hosts) -> None:
    listening.cut("a", "b")
    listening["a"].kill()
    listening.boot("a")
    assert not reaches(listening["a"], "b")
    assert reaches(listening["a"], "c")
    listening.mend("a", "b")
    assert reaches(listening["a"], "b")
