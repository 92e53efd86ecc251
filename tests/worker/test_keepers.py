"""Keepers that send each other what workers write, beside a query whose log they follow."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from godwit.model.files import FileRef
from godwit.model.ids import ExecutorId, WorkerId
from godwit.worker.chain_events import Written
from godwit.worker.keeper import LOCK, Keeper, KeeperSpec
from godwit.worker.neighbours import News
from godwit.worker.peer_key import PeerKey
from godwit.worker.peers import listen
from godwit.worker.replicas import KeeperProgress, read_reports
from tests.support.placed import Placed, cached, copies, held
from tests.support.simulated import words

KEYS = [f"word {i}" for i in range(100)]
KEY = PeerKey.make()


@pytest.fixture
def sim(tmp_path: Path) -> Placed:
    """Worker 0 is on executor 0, with replicas on 1 and 2."""
    sim = Placed(tmp_path, ["0", "1"], [["1", "2"], ["0"]])
    sim.feed(words(*KEYS))
    return sim


@contextmanager
def start(spec: KeeperSpec) -> Iterator[Keeper]:
    spec.cache.path.mkdir(exist_ok=True)
    lock = os.open(spec.cache.path / LOCK, os.O_RDWR | os.O_CREAT)
    keeper = Keeper(spec, lock, listener=listen("127.0.0.1"))
    yield keeper
    keeper.close()


@pytest.fixture
def keepers(sim: Placed) -> Iterator[dict[str, Keeper]]:
    """Three that have looked, and know where the others are."""
    with ExitStack() as stack:
        keepers = {name: stack.enter_context(start(sim.spec(name, key=KEY))) for name in "012"}
        for keeper in keepers.values():
            keeper.keep()
        tell(sim, keepers)
        yield keepers


def tell(sim: Placed, keepers: dict[str, Keeper]) -> None:
    where = {name: report.address for name, report in reports(sim).items()}
    for keeper in keepers.values():
        keeper.hear(News(sim.begun, where))


def reports(sim: Placed) -> dict[ExecutorId, KeeperProgress]:
    return read_reports(sim.driver.files, sim.generation)


def report(sim: Placed, name: str) -> KeeperProgress:
    return reports(sim)[ExecutorId(name)]


def write(sim: Placed, keepers: dict[str, Keeper], chain: Sequence[str] = "12") -> list[FileRef]:
    """An epoch, whose worker 0 keeps what it writes in its cache, and tells of it."""
    before = set(sim.files(0))
    sim.feed(words(*KEYS))
    refs = [ref for name, ref in sim.files(0).items() if name not in before]
    assert refs
    files = sim.spec("0").cache.open(sim.driver.files)
    for ref in refs:
        files.add(ref)
        group = tuple(map(ExecutorId, chain))
        keepers["0"].hear(Written(ref, WorkerId(0), group))
    return refs


def has(sim: Placed, name: str, refs: Iterable[FileRef]) -> bool:
    """Has an executor these files in its cache?"""
    spec = sim.spec(name)
    return cached(spec) >= copies(spec, {ref.name: ref for ref in refs})


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_replicas_are_there_before_the_log_tells_of_them(
    sim: Placed, keepers: dict[str, Keeper]
) -> None:
    read = report(sim, "1").bytes
    refs = write(sim, keepers)
    until(lambda: all(has(sim, name, refs) for name in "12"))
    for name in "12":
        assert report(sim, name).workers == {0: held(0, 0)}  # which says no more than it knows
    tell(sim, keepers)
    for name in "12":
        until(keepers[name].keep)
        assert report(sim, name).workers == {0: held(1, 0)}
        assert report(sim, name).bytes == read
        assert report(sim, name).received == sum(ref.bytes for ref in refs)


def test_what_did_not_come_by_the_chain_comes_from_who_wrote_it(
    sim: Placed, keepers: dict[str, Keeper]
) -> None:
    read = report(sim, "2").bytes
    refs = write(sim, keepers, chain="")
    tell(sim, keepers)
    for name in "12":
        until(keepers[name].keep)
        assert report(sim, name).workers == {0: held(1, 0)}
        assert report(sim, name).bytes == read
        assert report(sim, name).received == sum(ref.bytes for ref in refs)


def test_without_peers_all_comes_from_the_checkpoint(
    sim: Placed, keepers: dict[str, Keeper]
) -> None:
    keepers["0"].close()
    keepers["1"].close()
    refs = write(sim, keepers)
    read = report(sim, "2").bytes
    tell(sim, keepers)
    until(keepers["2"].keep)
    assert report(sim, "2").workers == {0: held(1, 0)}
    assert report(sim, "2").bytes == read + sum(ref.bytes for ref in refs)
    assert report(sim, "2").received == 0


def test_what_is_not_kept_for_want_of_room_is_not_taken(sim: Placed) -> None:
    with ExitStack() as stack:
        keepers = {
            "0": stack.enter_context(start(sim.spec("0", key=KEY))),
            "1": stack.enter_context(start(sim.spec("1", key=KEY, limit=1000))),
            "2": stack.enter_context(start(sim.spec("2", key=KEY))),
        }
        for keeper in keepers.values():
            keeper.keep()
        tell(sim, keepers)
        refs = write(sim, keepers)
        until(lambda: has(sim, "2", refs))
        assert cached(sim.spec("1")) == set()


def test_without_a_key_no_port_is_opened(sim: Placed) -> None:
    with start(sim.spec("1")) as keeper:
        assert keeper.keep()
        assert report(sim, "1").address == ""
        assert report(sim, "1").workers == {0: held(0, 0)}
