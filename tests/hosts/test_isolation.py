"""What hosts share, and what they do not."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CalledProcessError
from tempfile import TemporaryDirectory

import pytest

from lab.hosts import clock
from lab.hosts.host import ROOT
from lab.hosts.hosts import Hosts
from tests.support.hosts.link import PORT
from tests.support.hosts.waiting import until

HOUR = 3600
LINK = [sys.executable, "-m", "tests.support.hosts.link"]


@pytest.fixture(scope="module")
def hosts(_namespaces: None) -> Iterator[Hosts]:
    """The same for all, since none of them is lost here."""
    with Hosts(["a", "b", "c"]) as hosts:
        yield hosts


def test_a_host_has_a_name_and_an_address_and_knows_the_others(hosts: Hosts) -> None:
    assert [host.run(["hostname"]).strip() for host in hosts] == ["a", "b", "c"]
    known = hosts["a"].run(["getent", "hosts", "b"]).split()
    assert known == [hosts["b"].address, "b"]
    assert hosts["b"].address in hosts["b"].run(["ip", "address", "show", "eth0"])


@pytest.mark.parametrize("directory", ["/tmp", "/var/tmp", "/run", "/dev/shm"])
def test_what_a_host_writes_no_other_one_sees(hosts: Hosts, directory: str) -> None:
    hosts["a"].run(["touch", f"{directory}/mine"])
    assert "mine" in hosts["a"].run(["ls", directory])
    assert "mine" not in hosts["b"].run(["ls", directory])
    assert not Path(directory, "mine").exists()


@pytest.mark.parametrize("directory", ["/", "/etc", "/usr", "/dev", str(Path.home()), str(ROOT)])
def test_no_directory_of_the_machine_can_be_written_to(hosts: Hosts, directory: str) -> None:
    with pytest.raises(CalledProcessError):
        hosts["a"].run(["touch", f"{directory}/mine"])


def test_all_see_one_input_which_grows_and_which_none_can_change(tmp_path: Path) -> None:
    with Hosts(["a", "b"], [tmp_path]) as hosts:
        (tmp_path / "part").write_text("one")
        assert [host.run(["cat", tmp_path / "part"]) for host in hosts] == ["one", "one"]
        with pytest.raises(CalledProcessError):
            hosts["a"].run(["touch", tmp_path / "mine"])


@pytest.mark.parametrize("base", ["/tmp", "/var/tmp", str(Path.home())])
def test_only_what_is_shared_can_be_written_to_by_all(base: str) -> None:
    with (
        TemporaryDirectory(dir=base) as shared,
        TemporaryDirectory(dir=base) as other,
        Hosts(["a", "b"], [Path(other)], shared=[Path(shared)]) as hosts,
    ):
        hosts["a"].run(["touch", f"{shared}/mine"])
        assert hosts["b"].run(["ls", shared]) == "mine\n"
        assert Path(shared, "mine").exists()
        with pytest.raises(CalledProcessError):
            hosts["a"].run(["touch", f"{other}/mine"])


def test_a_host_sees_its_own_processes_only(hosts: Hosts) -> None:
    hosts["a"].start(["sleep", "1000"])
    until(lambda: "sleep 1000" in hosts["a"].processes().values())
    assert "sleep 1000" in hosts["a"].run(["ps", "-e", "-o", "args"])
    assert "sleep" not in hosts["b"].run(["ps", "-e", "-o", "args"])
    assert "sleep 1000" not in hosts["b"].processes().values()


def test_no_host_reaches_the_machine_or_what_lies_beyond(hosts: Hosts) -> None:
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        told = subprocess.check_output(["ip", "-json", "-4", "address"])
        addresses = [one["local"] for link in json.loads(told) for one in link["addr_info"]]
        assert addresses
        for address in [*addresses, "192.0.2.1", "8.8.8.8"]:
            answer = hosts["a"].run([*LINK, "reach", address, port])
            assert "unreachable" in answer or "refused" in answer


def test_hosts_reach_each_other(hosts: Hosts) -> None:
    hosts["a"].start([*LINK, "accept"])
    until(lambda: hosts["a"].listens(PORT))
    assert hosts["b"].run([*LINK, "reach", "a"]) == "reached\n"
    assert "refused" in hosts["b"].run([*LINK, "reach", "c"])


def test_a_clock_may_be_wrong_for_python_and_java() -> None:
    if (missing := clock.unavailable()) is not None:
        pytest.skip(missing)
    with Hosts(["right", "ahead", "behind"], skews={"ahead": HOUR, "behind": -HOUR}) as hosts:
        python = [sys.executable, "-c", "import time; print(time.time(), time.monotonic())"]
        java = ["java", "-Xlog:os=info:stdout:timemillis", "-version"]
        times, durations, told = [], [], []
        for host in hosts:
            time, duration = host.run(python).split()
            times.append(float(time))
            durations.append(float(duration))
            told.append(int(host.run(java)[1:14]) / 1000)
    for right, ahead, behind in (times, told):
        assert ahead - right == pytest.approx(HOUR, abs=60)
        assert behind - right == pytest.approx(-HOUR, abs=60)
    assert max(durations) - min(durations) < 60


def test_nothing_is_left_of_hosts_whose_program_is_killed(tmp_path: Path) -> None:
    program = """
import sys
from lab.hosts.hosts import Hosts
with Hosts(["a", "b"]) as hosts:
    hosts["a"].run(["touch", "/tmp/mine"])
    hosts["b"].start(["setsid", "sleep", "1000"])
    print(hosts["a"].disk.parent, *[pid for host in hosts for pid in host.processes()], flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as opened:
        assert opened.stdout
        scratch, *processes = opened.stdout.readline().split()
        assert Path(scratch, "a/mine").exists()
        assert len(processes) >= 3
        os.kill(opened.pid, signal.SIGKILL)
        until(lambda: not Path(scratch).exists())
    assert not [pid for pid in processes if Path("/proc", pid).exists()]
