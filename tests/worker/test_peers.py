"""Keepers' sides of the chain over real connections: who sends what to whom, and to nobody else."""

import os
import socket
import ssl
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from godwit.errors import DamagedFileError
from godwit.model.files import FileRef
from godwit.model.ids import ExecutorId, WorkerId
from godwit.state.cache import FileCache
from godwit.storage.local import LocalStore
from godwit.worker.chain_events import Lack, Need, Want, Written
from godwit.worker.peer_key import PeerKey
from godwit.worker.peer_source import PeerSource
from godwit.worker.peer_wire import Data, Hello, PeerError, Wire, call
from godwit.worker.peers import SILENCE, Peers, listen
from tests.support.peer_certificate import CERTIFICATE, PRIVATE

A, B, C = map(ExecutorId, "abc")
W = WorkerId(0)
PLENTY = 1 << 30
KEYS = {"plain": PeerKey.make(), "encrypted": PeerKey.make(CERTIFICATE, PRIVATE)}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Place:
    """An executor: a cache, and the peers' side of its keeper."""

    def __init__(self, name: ExecutorId, directory: Path, key: PeerKey, clock: Clock) -> None:
        self.store = LocalStore(directory / "store", durable=False)
        self.cache = FileCache(self.store, directory / name, PLENTY)
        self.peers = Peers(name, self.cache, key, listen("127.0.0.1"), clock.monotonic)
        self.peers.plan(frozenset([W]), {})

    def has(self, ref: FileRef) -> bool:
        return bool(self.cache.names_present([ref]))


@pytest.fixture(params=[*KEYS])
def key(request: pytest.FixtureRequest) -> PeerKey:
    return KEYS[request.param]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def places(tmp_path: Path, key: PeerKey, clock: Clock) -> Iterator[dict[ExecutorId, Place]]:
    """Three executors that know where the others are."""
    places = {name: Place(name, tmp_path, key, clock) for name in (A, B, C)}
    for place in places.values():
        place.peers.know({name: other.peers.address for name, other in places.items()})
    yield places
    for place in places.values():
        place.peers.close()


def make(name: str, size: int = 3 << 20) -> tuple[FileRef, bytes]:
    data = os.urandom(size)
    return FileRef(name, 1, size, zlib.crc32(data)), data


def put(place: Place, name: str, size: int = 3 << 20) -> FileRef:
    """A file in the cache of an executor, and nowhere else."""
    ref, data = make(name, size)
    assert place.cache.take(ref, [memoryview(data)])
    return ref


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_is_written_goes_along_the_chain(places: dict[ExecutorId, Place]) -> None:
    refs = [put(places[A], f"file-{n}", size) for n, size in enumerate([1, 10, 5 << 20, 20 << 20])]
    for ref in refs:
        places[A].peers.written(Written(ref, W, (B, C)))
    until(lambda: all(places[C].has(ref) for ref in refs))
    assert all(places[B].has(ref) for ref in refs)
    total = sum(ref.bytes for ref in refs)
    assert [places[name].peers.received for name in (A, B, C)] == [0, total, total]
    until(lambda: not places[A].peers.awaited)  # all is acknowledged
    assert places[B].peers.next_fetch(0) is None


def test_what_is_needed_comes_from_a_peer_and_else_from_the_store(
    places: dict[ExecutorId, Place],
) -> None:
    ref, missing = put(places[C], "here"), make("missing")[0]
    needs = {one.name: Need(one, (A, C)) for one in (ref, missing)}
    places[B].peers.plan(frozenset([W]), needs)
    until(lambda: places[B].has(ref))
    while (wanted := places[B].peers.next_fetch(5)) is None:
        pass
    assert wanted == missing
    until(lambda: places[B].peers.lacking == {"missing"})
    places[B].peers.fetched(missing, sound=False)
    assert places[B].peers.lacking == set()


def test_one_that_has_ended_is_stepped_over(places: dict[ExecutorId, Place]) -> None:
    places[A].peers.written(Written(put(places[A], "first"), W, (B, C)))
    until(lambda: not places[A].peers.awaited)
    places[B].peers.close()
    ref = put(places[A], "second")
    places[A].peers.written(Written(ref, W, (B, C)))
    until(lambda: places[C].has(ref))


def test_one_that_is_silent_is_stepped_over(places: dict[ExecutorId, Place], clock: Clock) -> None:
    """Its process has stopped, while its host takes connections and acknowledges packets."""
    ref = put(places[A], "file")
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        host, port = stopped.getsockname()
        places[A].peers.know({B: f"{host}:{port}"})
        places[A].peers.written(Written(ref, W, (B, C)))
        other = put(places[A], "other")
        places[A].peers.written(Written(other, W, (C,)))
        until(lambda: places[A].peers.awaited == {B})  # the other one does not wait for it
        assert places[C].has(other)
        places[A].peers.look()
        assert not places[C].has(ref)
        clock.now += SILENCE + 1
        places[A].peers.look()
        until(lambda: places[C].has(ref))


def test_one_that_was_started_again_is_found(
    places: dict[ExecutorId, Place], tmp_path: Path, key: PeerKey, clock: Clock
) -> None:
    places[A].peers.written(Written(put(places[A], "first"), W, (B, C)))
    until(lambda: not places[A].peers.awaited)
    places[B].peers.close()
    places[B] = again = Place(B, tmp_path, key, clock)
    again.peers.know({A: places[A].peers.address, C: places[C].peers.address})
    places[A].peers.know({B: again.peers.address})
    ref = put(places[A], "second")
    places[A].peers.written(Written(ref, W, (B, C)))
    until(lambda: again.has(ref) and places[C].has(ref))


def test_a_damaged_copy_is_not_taken(places: dict[ExecutorId, Place]) -> None:
    ref = put(places[A], "file")
    Path(places[A].cache.path(ref)).write_bytes(bytes(ref.bytes))
    places[B].peers.plan(frozenset([W]), {"file": Need(ref, (A,))})
    while (wanted := places[B].peers.next_fetch(5)) is None:
        pass
    assert wanted == ref
    assert not places[B].has(ref)


def test_a_file_that_is_gone_is_said_to_be(places: dict[ExecutorId, Place]) -> None:
    ref = put(places[A], "file")
    places[A].peers.written(Written(ref, W, (B,)))
    Path(places[A].cache.path(ref)).unlink(missing_ok=True)
    until(lambda: not places[A].peers.awaited or places[B].has(ref))


# -- tasks


def test_a_task_gets_a_file_from_the_first_that_has_it(
    places: dict[ExecutorId, Place], key: PeerKey, tmp_path: Path
) -> None:
    refs = [put(places[C], f"file-{n}") for n in range(3)]
    addresses = [places[A].peers.address, places[C].peers.address]
    near = PeerSource(key, B, addresses)
    cache = FileCache(LocalStore(tmp_path / "store"), tmp_path / "task", PLENTY, near=near)
    for ref in refs:
        cache.fetch(ref)
    assert cache.names_present(refs) == {ref.name for ref in refs}
    assert near.chunks(make("missing")[0]) is None
    places[C].peers.close()
    with pytest.raises(DamagedFileError, match="missing"):  # of the store, which is empty
        cache.fetch(put(places[C], "another"))
    near.close()


def test_trouble_with_a_peer_sends_a_task_to_the_store(
    places: dict[ExecutorId, Place], key: PeerKey, tmp_path: Path
) -> None:
    ref, data = make("file")
    store = LocalStore(tmp_path / "store", durable=False)
    store.make()
    with store.write(ref.name) as file:
        file.write(data)
    assert places[A].cache.take(ref, [memoryview(data)])
    Path(places[A].cache.path(ref)).write_bytes(data[:-1])  # it ends too early
    near = PeerSource(key, B, [places[A].peers.address, "127.0.0.1:1"])
    cache = FileCache(store, tmp_path / "task", PLENTY, near=near)
    cache.fetch(ref)
    assert Path(cache.path(ref)).read_bytes() == data


# -- strangers


def ask(address: str, key: PeerKey, ref: FileRef) -> None:
    wire = call(address, key, Hello(B, "task"))
    wire.say(Want(ref))
    wire.hear()


def send_again_and_again(wire: Wire, ref: FileRef) -> None:
    for _ in range(1000):
        wire.say(Data(ref.name, ref.bytes))
        time.sleep(0.01)


@pytest.mark.parametrize("stranger", [PeerKey.make(), PeerKey.make(CERTIFICATE, PRIVATE)])
def test_who_does_not_know_the_secret_gets_nothing(
    places: dict[ExecutorId, Place], stranger: PeerKey
) -> None:
    ref = put(places[A], "file")
    with pytest.raises((PeerError, ConnectionError, ssl.SSLError, TimeoutError)):
        ask(places[A].peers.address, stranger, ref)
    assert PeerSource(stranger, B, [places[A].peers.address]).chunks(ref) is None


def test_a_stranger_is_told_nothing_either(tmp_path: Path, key: PeerKey) -> None:
    """Somebody else listens at the address of a keeper."""
    place = Place(A, tmp_path, PeerKey.make(), Clock())
    with pytest.raises((PeerError, ConnectionError, ssl.SSLError, TimeoutError)):
        call(place.peers.address, key, Hello(B, "task"))
    place.peers.close()


def test_noise_harms_nobody(places: dict[ExecutorId, Place], key: PeerKey) -> None:
    host, _, port = places[A].peers.address.rpartition(":")
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\xff" * 5000):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(noise)
    ref = put(places[A], "file")
    wire = call(places[A].peers.address, key, Hello(B, "task"))
    wire.say(Want(ref))
    assert wire.hear() == Data(ref.name, ref.bytes)
    wire.close()


def test_what_nobody_wants_is_not_taken(places: dict[ExecutorId, Place], key: PeerKey) -> None:
    wire = call(places[A].peers.address, key, Hello(B, "keeper", "process", "127.0.0.1:1"))
    ref = make("file")[0]
    with pytest.raises((ConnectionError, ssl.SSLError)):
        send_again_and_again(wire, ref)
    assert not places[A].has(ref)


def test_a_task_says_nothing_but_what_it_wants(
    places: dict[ExecutorId, Place], key: PeerKey
) -> None:
    wire = call(places[A].peers.address, key, Hello(B, "task"))
    wire.say(Lack("file"))
    with pytest.raises(PeerError):
        wire.hear()


def test_an_encrypted_connection_shows_nothing(tmp_path: Path) -> None:
    """What goes over it passes a place where somebody reads."""
    key, seen = KEYS["encrypted"], tmp_path / "seen"
    place = Place(A, tmp_path, key, Clock())
    ref = FileRef("file", 1, 7 * 10000, zlib.crc32(b"content" * 10000))
    place.cache.take(ref, [memoryview(b"content" * 10000)])
    host, _, port = place.peers.address.rpartition(":")
    script = (
        "import socket, sys, threading\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "a, b = s.accept()[0], socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "seen = open(sys.argv[3], 'wb', buffering=0)\n"
        "def pump(x, y):\n"
        "    while data := x.recv(65536):\n"
        "        seen.write(data); y.sendall(data)\n"
        "threading.Thread(target=pump, args=(a, b), daemon=True).start(); pump(b, a)\n"
    )
    command = [sys.executable, "-c", script, host, port, str(seen)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as between:
        assert between.stdout is not None
        where = int(between.stdout.readline())
        near = PeerSource(key, B, [f"127.0.0.1:{where}"])
        chunks = near.chunks(ref)
        assert chunks is not None
        assert b"".join(map(bytes, chunks)) == b"content" * 10000
        near.close()
        place.peers.close()
        between.kill()
    passed = seen.read_bytes()
    assert len(passed) > ref.bytes
    assert b"content" not in passed
    assert b"executor" not in passed


def test_a_key_shows_itself_to_nobody() -> None:
    key = KEYS["encrypted"]
    assert repr(key) == "PeerKey(is_encrypted=True)"
    assert PRIVATE not in repr([key])
