"""An S3 server on a host, which others reach directly or through its faults."""

from collections.abc import Iterator

import pytest

from lab.hosts import clock
from lab.hosts.fault import Fault
from lab.hosts.hosts import Hosts
from lab.hosts.s3_server import S3Server
from tests.support.hosts.s3 import Client, ask, create, get, put

MINUTES_10 = 600  # in seconds
KEYS = [f"key-{number}" for number in range(100)]


@pytest.fixture(scope="module")
def opened(_namespaces: None) -> Iterator[tuple[Hosts, S3Server]]:
    with Hosts(["store", "a", "b"]) as hosts:
        server = S3Server(hosts["store"])
        for name in ("a", "b"):
            hosts[name].variables |= server.variables(proxied=True)
        yield hosts, server


@pytest.fixture
def hosts(opened: tuple[Hosts, S3Server]) -> Hosts:
    return opened[0]


@pytest.fixture
def store(opened: tuple[Hosts, S3Server]) -> Iterator[S3Server]:
    yield opened[1]
    opened[1].proxy.set()


@pytest.mark.parametrize("proxied", [False, True])
def test_of_two_hosts_that_create_the_same_one_succeeds(
    hosts: Hosts, store: S3Server, proxied: bool
) -> None:
    keys = [f"{key}-{proxied}" for key in KEYS]
    names = ("a", "b")
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(hosts[name], "variables", store.variables(proxied=proxied))
        racing = [Client(hosts[name], *(create(key, name) for key in keys)) for name in names]
    for client in racing:
        client.begin()
    outcomes = [client.outcomes() for client in racing]
    winners = [
        [name for name, outcome in zip(names, both, strict=True) if outcome.error is None]
        for both in zip(*outcomes, strict=True)
    ]
    assert [len(one) for one in winners] == [1] * len(keys)
    assert {name for (name,) in winners} == {*names}  # so they have raced
    assert all(
        "AlreadyExists" in (one.error or "AlreadyExists") for both in outcomes for one in both
    )
    kept = [outcome.value for outcome in ask(hosts["a"], *map(get, keys))]
    assert kept == [name for (name,) in winners]


def test_a_delayed_request_takes_longer(hosts: Hosts, store: S3Server) -> None:
    store.proxy.set(Fault("delay", methods=("PUT",), seconds=0.3))
    written, read = ask(hosts["a"], put("delayed", "value"), get("delayed"))
    assert written.error is None
    assert written.seconds > 0.3
    assert read.value == "value"
    assert read.seconds < 0.3


def test_a_throttled_request_is_not_done_and_may_be_tried_again(
    hosts: Hosts, store: S3Server
) -> None:
    store.proxy.set(Fault("throttle", methods=("PUT",), seconds=1))
    refused, missing = ask(hosts["a"], put("throttled", "value"), get("throttled"))
    assert "503" in str(refused.error)
    assert "NotFound" in str(missing.error)
    store.proxy.set(Fault("throttle", times=2))
    accepted, read = ask(hosts["a"], put("throttled", "value"), get("throttled"), retries=3)
    assert (accepted.error, read.value) == (None, "value")


def test_a_full_store_can_be_read(hosts: Hosts, store: S3Server) -> None:
    ask(hosts["a"], put("full", "before"))
    store.proxy.set(Fault("full"))
    refused, read = ask(hosts["a"], put("full", "after"), get("full"))
    assert "507" in str(refused.error)
    assert read.value == "before"


def test_a_request_that_hangs_is_not_done(hosts: Hosts, store: S3Server) -> None:
    store.proxy.set(Fault("hang", path="hanging"))
    hung, other = ask(hosts["a"], create("hanging", "value"), put("other", "value"), timeout=1)
    assert "timed out" in str(hung.error) or "timeout" in str(hung.error)
    assert other.error is None
    store.proxy.set()
    (missing,) = ask(hosts["a"], get("hanging"))
    assert "NotFound" in str(missing.error)


def test_a_truncated_answer_is_no_answer(hosts: Hosts, store: S3Server) -> None:
    ask(hosts["a"], put("truncated", "value" * 100_000))
    store.proxy.set(Fault("truncate", methods=("GET",)))
    (truncated,) = ask(hosts["a"], get("truncated"))
    assert truncated.error is not None
    store.proxy.set()
    (whole,) = ask(hosts["a"], get("truncated"))
    assert whole.value == "value" * 100_000


def test_a_request_whose_answer_is_lost_is_done(hosts: Hosts, store: S3Server) -> None:
    store.proxy.set(Fault("lose", methods=("PUT",), times=1))
    lost, read = ask(hosts["a"], create("lost", "value"), get("lost"))
    assert lost.error is not None
    assert read.value == "value"


def test_who_tries_again_after_a_lost_answer_is_told_that_it_exists(
    hosts: Hosts, store: S3Server
) -> None:
    store.proxy.set(Fault("lose", methods=("PUT",), times=1))
    (lost,) = ask(hosts["a"], create("ambiguous", "value"), retries=3)
    assert "AlreadyExists" in str(lost.error)


def test_requests_and_faults_are_counted(hosts: Hosts, store: S3Server) -> None:
    before = store.proxy.set(Fault("full", path="refused"))
    ask(hosts["a"], put("counted", "value"), get("counted"), put("refused", "value"))
    after = store.proxy.set()
    change = {name: after[name] - before.get(name, 0) for name in ("PUT", "GET", "full")}
    assert change == {"PUT": 2, "GET": 1, "full": 1}


def test_a_store_that_was_killed_has_kept_what_it_acknowledged() -> None:
    with Hosts(["store", "a"]) as hosts:
        server = S3Server(hosts["store"])
        hosts["a"].variables |= server.variables(proxied=True)
        ask(hosts["a"], *(put(key, "value") for key in KEYS))
        hosts["store"].kill()
        (lost,) = ask(hosts["a"], get(KEYS[0]))
        assert lost.error is not None
        hosts.boot("store")
        server.start()
        assert [one.value for one in ask(hosts["a"], *map(get, KEYS), retries=5)] == [
            "value"
        ] * len(KEYS)


def test_a_client_whose_clock_is_an_hour_off_is_refused() -> None:
    if (missing := clock.unavailable()) is not None:
        pytest.skip(missing)
    skews = {"early": MINUTES_10, "late": -MINUTES_10, "far": 6 * MINUTES_10}
    with Hosts(["store", *skews], skews=skews) as hosts:
        server = S3Server(hosts["store"])
        outcomes = {}
        for name in skews:
            hosts[name].variables |= server.variables(proxied=False)
            (outcomes[name],) = ask(hosts[name], put(name, "value"))
    assert outcomes["early"].error is None
    assert outcomes["late"].error is None
    assert "RequestTimeTooSkewed" in str(outcomes["far"].error)
