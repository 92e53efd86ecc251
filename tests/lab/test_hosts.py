"""One machine as several hosts: the least of it. The rest is in tests/hosts, for `make hosts`."""

import pytest

from godwit.errors import ConfigError
from lab.__main__ import main
from lab.hosts.fault import Fault, Faults
from lab.hosts.hosts import Hosts, unavailable


def test_hosts_share_no_files_and_reach_each_other_until_one_is_killed() -> None:
    if (missing := unavailable()) is not None:
        pytest.skip(missing)
    with Hosts(["a", "b"]) as hosts:
        hosts["a"].run(["touch", "/tmp/mine"])
        assert hosts["b"].run(["sh", "-c", "hostname; ls /tmp | grep mine || true"]) == "b\n"
        assert hosts["a"].disk.joinpath("mine").exists()
        hosts["a"].kill()
        assert hosts["a"].processes() == {}
        assert hosts["b"].up
    assert not hosts["a"].disk.exists()


def test_without_namespaces_it_is_said_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("lab.hosts.hosts.PROGRAMS", ("missing",))
    unavailable.cache_clear()
    with pytest.raises(ConfigError, match="hosts need missing: apt-get install"), Hosts(["a"]):
        pass
    unavailable.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hosts", "run", "--workers", "0", "true"], "--workers is a number from 1 on, not 0"),
        (["hosts", "run", "--on", "moon", "true"], "no host is called 'moon': driver, master,"),
    ],
)
def test_the_command_refuses_what_cannot_be(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_the_first_fault_that_fits_decides_and_is_used_up() -> None:
    faults = Faults(
        [
            Fault("throttle", methods=("PUT",), path="/log/", times=1),
            Fault("lose", methods=("PUT",)),
        ]
    )
    met = [faults.meet(*request)[1] for request in [("GET", "/log/1"), *[("PUT", "/log/1")] * 2]]
    assert [fault.kind if fault else None for fault in met] == [None, "throttle", "lose"]


def test_delays_add_up_and_another_fault_comes_after_them() -> None:
    faults = Faults([Fault("delay", seconds=0.1), Fault("delay", seconds=0.2), Fault("full")])
    seconds, fault = faults.meet("PUT", "/key")
    assert seconds == pytest.approx(0.3)
    assert fault == Fault("full")
    assert faults.meet("GET", "/key")[1] is None


def test_new_faults_take_the_place_of_all_before() -> None:
    faults = Faults([Fault("hang")])
    faults.replace([])
    assert faults.meet("GET", "/key") == (0.0, None)


def test_a_fault_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault is called 'rain': delay, throttle"):
        Fault("rain")  # type: ignore[arg-type]
