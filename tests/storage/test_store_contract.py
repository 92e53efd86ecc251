"""What every store promises: one creator wins, files are whole and durable, readers see no drafts.

A new store is a line in `DIRECTORIES`, or a kind of server in `tests/support/object_servers.py`.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from godwit.storage import object_store
from godwit.storage.local import LocalStore
from godwit.storage.object_store import PART, PIECE
from godwit.storage.probe import check_store
from godwit.storage.store import CHUNK, Store
from tests.support.object_servers import KINDS, ObjectServer
from tests.support.processes import forks

DIRECTORIES: dict[str, Callable[[Path], Store]] = {
    "local": LocalStore,
    "network": lambda path: LocalStore(path, network=True),
}
RACERS = 6
ODD = (
    "a b.json",
    "größe/münze.arrow",
    "a%20b",
    "epoch=7/part",
    "colon:name",
    "plus+and&",
    "quote'\"",
    "tilde~",
    "#hash",
    "deep/er/and/deeper/still",
)


@pytest.fixture(params=[*DIRECTORIES, *KINDS])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    object_server: Callable[[str], ObjectServer],
) -> Store:
    if request.param in KINDS:
        return object_server(request.param).store()
    made = DIRECTORIES[request.param](tmp_path / "store")
    made.make()
    return made


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often to race; SeaweedFS takes a second for a name that several want."""
    return 3 if request.node.callspec.params["store"] == "seaweed" else 10


def put(store: Store, name: str, *parts: bytes) -> None:
    with store.write(name) as target:
        for part in parts:
            target.write(part)


# -- create ----------------------------------------------------------------------------------------


def test_a_file_is_created_once_and_the_second_create_changes_nothing(store: Store) -> None:
    store.create("log/1.json", b"first")
    with pytest.raises(FileExistsError):
        store.create("log/1.json", b"second")
    assert store.read("log/1.json") == b"first"
    assert store.list_files("") == ["log/1.json"]
    assert store.drafts("") == []


def _create(
    store: Store, me: int, rounds: int, start: Barrier, wins: "multiprocessing.Queue[int]"
) -> None:
    content = bytes([me]) * 100_000
    for number in range(rounds):
        start.wait()
        try:
            store.create(f"log/{number}.json", content)
        except FileExistsError:
            found = store.read(f"log/{number}.json")
            assert len(found) == 100_000  # whole, once the name exists
            assert len(set(found)) == 1
        else:
            wins.put(number)


def test_of_racing_processes_one_creates_a_file_and_all_see_it_whole(
    store: Store, rounds: int
) -> None:
    context = forks()
    start, wins = context.Barrier(RACERS), context.Queue()
    racers = [
        context.Process(target=_create, args=(store, n, rounds, start, wins)) for n in range(RACERS)
    ]
    for racer in racers:
        racer.start()
    won = sorted(wins.get(timeout=60) for _ in range(rounds))
    for racer in racers:
        racer.join()
        assert racer.exitcode == 0
    assert wins.empty()
    assert won == list(range(rounds))
    assert store.drafts("") == []


def test_of_racing_threads_one_creates_a_file(store: Store, rounds: int) -> None:
    start, won = threading.Barrier(RACERS), []

    def create(me: int) -> None:
        for number in range(rounds):
            start.wait()
            with suppress(FileExistsError):
                store.create(f"{number}.json", bytes([me]) * 1000)
                won.append((number, me))

    threads = [threading.Thread(target=create, args=[me]) for me in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, _ in won) == list(range(rounds))
    for number, me in won:
        assert store.read(f"{number}.json") == bytes([me]) * 1000


# -- write -----------------------------------------------------------------------------------------


def test_what_is_written_appears_when_the_block_ends(store: Store) -> None:
    with store.write("state/counts/1.arrow") as target:
        target.write(b"one ")
        target.flush()
        assert not store.exists("state/counts/1.arrow")
        assert store.list_files("state") == []
        target.write(b"two")
    assert store.read("state/counts/1.arrow") == b"one two"


def test_a_write_that_fails_leaves_nothing(store: Store) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the other half cannot be read")

    with pytest.raises(OSError, match="the other half"), store.write("state/1.arrow") as target:
        target.writelines(pieces())
    assert not store.exists("state/1.arrow")
    assert store.list_files("") == []
    assert store.drafts("") == []


def test_replace_writes_over_and_readers_see_one_or_the_other(store: Store) -> None:
    store.replace("hints/1", b"a" * 100_000)
    over = threading.Event()

    def write() -> None:
        for number in range(200):
            store.replace("hints/1", (b"b", b"a")[number % 2] * 100_000)
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not over.is_set():
        found = store.read("hints/1")
        assert len(found) == 100_000
        assert len(set(found)) == 1
    writer.join()
    assert store.list_files("") == ["hints/1"]


# -- a writer that dies ----------------------------------------------------------------------------


def _die_writing(store: Store, name: str) -> None:
    with store.write(name) as target:
        target.write(b"half")
        target.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def _die_creating(store: Store, name: str) -> None:
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)  # the bytes are there, the name not

    with patch.object(os, "fsync", die), patch.object(object_store, "condition", die):
        store.create(name, b"half")


@pytest.mark.parametrize("die", [_die_writing, _die_creating])
def test_nothing_is_seen_of_a_file_whose_writer_was_killed(
    store: Store, die: Callable[[Store, str], None]
) -> None:
    context = forks()
    process = context.Process(target=die, args=(store, "state/1.arrow"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not store.exists("state/1.arrow")
    assert store.list_files("") == []
    assert store.names("state") == []
    with pytest.raises(FileNotFoundError):
        store.read("state/1.arrow")
    for draft in store.drafts("state"):  # which can be swept
        store.delete(draft)
    assert store.drafts("") == []
    store.create("state/1.arrow", b"whole")
    assert store.read("state/1.arrow") == b"whole"


def _die_writing_much(store: Store, name: str) -> None:
    with store.write(name) as target:
        for _ in range(5):
            target.write(bytes(PART // 2))  # some of it has been sent
        target.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def test_nothing_is_seen_of_a_large_file_whose_writer_was_killed(store: Store) -> None:
    context = forks()
    process = context.Process(target=_die_writing_much, args=(store, "state/1.arrow"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not store.exists("state/1.arrow")
    assert store.list_files("") == []
    with pytest.raises(FileNotFoundError):
        store.read("state/1.arrow")


# -- read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, PIECE, PIECE + 1, PART - 1, PART, 2 * PART + 7]
)
def test_a_file_is_read_whole_in_ranges_in_chunks_and_mapped(store: Store, size: int) -> None:
    content = os.urandom(size)
    put(store, "file", content[: size // 3], content[size // 3 :])
    assert store.read("file") == content
    assert b"".join(map(bytes, store.chunks("file"))) == content
    assert b"".join(map(bytes, Store.chunks(store, "file"))) == content  # by ranges
    assert store.map("file").to_pybytes() == content
    assert Store.map(store, "file").to_pybytes() == content  # read at once
    for start, length in [(0, 10), (size // 2, 100), (max(size - 5, 0), 100), (size, 1), (3, 0)]:
        assert store.read_range("file", start, length) == content[start : start + length]
    assert store.read_range("file", size + 100, 10) == b""


def test_what_is_not_there_is_not_found(store: Store) -> None:
    reads: list[Callable[[], object]] = [
        lambda: store.read("missing"),
        lambda: store.read_range("missing", 0, 1),
        lambda: list(store.chunks("missing")),
        lambda: store.map("missing"),
        lambda: store.move("missing", "other"),
    ]
    for read in reads:
        with pytest.raises(FileNotFoundError):
            read()
    assert not store.exists("missing")
    assert not store.exists("other")


# -- list, delete, move ----------------------------------------------------------------------------


def test_names_are_listed_in_order_below_whole_parts_of_names(store: Store) -> None:
    for name in ["b/2", "b/10", "b/1", "a", "bc/1", "b/c/1", "b/.hidden", "b.json"]:
        store.create(name, b"")
    assert store.list_files("b") == ["b/1", "b/10", "b/2", "b/c/1"]
    assert store.list_files("") == ["a", "b.json", "b/1", "b/10", "b/2", "b/c/1", "bc/1"]
    assert store.names("b") == ["1", "10", "2", "c"]
    assert store.names("") == ["a", "b", "b.json", "bc"]
    assert store.list_files("nowhere") == store.names("nowhere") == store.drafts("nowhere") == []
    assert store.list_files("a") == []  # a file, and no directory


def test_deleting_is_idempotent(store: Store) -> None:
    store.create("state/1", b"1")
    for _ in range(2):
        store.delete("state/1")
        assert not store.exists("state/1")
    store.delete("never/was")
    store.create("state/1", b"again")
    assert store.read("state/1") == b"again"


def test_a_moved_file_takes_no_name_that_is_taken(store: Store) -> None:
    store.create("log/1", b"1")
    store.move("log/1", "undone/3/log/1")
    assert store.list_files("") == ["undone/3/log/1"]
    store.create("log/1", b"2")
    with pytest.raises(FileExistsError):
        store.move("log/1", "undone/3/log/1")
    assert (store.read("log/1"), store.read("undone/3/log/1")) == (b"2", b"1")


# -- names and places ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD)
def test_names_may_hold_any_character(store: Store, name: str) -> None:
    store.create(name, b"created")
    put(store, f"{name}.written", b"written")
    assert (store.read(name), store.read(f"{name}.written")) == (b"created", b"written")
    assert store.list_files("") == [name, f"{name}.written"]
    assert store.exists(name)
    assert store.address(name).endswith(name)
    store.delete(name)
    assert not store.exists(name)


def test_a_store_within_another_has_its_files(store: Store) -> None:
    inner = store.within("godwit").within("log")
    inner.make()
    inner.create("1", b"1")
    assert store.list_files("") == ["godwit/log/1"]
    assert inner.list_files("") == ["1"]
    assert inner.address("1") == store.address("godwit/log/1")
    assert inner.url("1") == store.url("godwit/log/1")
    assert str(store) == store.address()
    assert inner == store.within("godwit/log") != store


def test_a_pickled_store_is_the_same_store(store: Store) -> None:
    store.create("1", b"1")
    other = pickle.loads(pickle.dumps(store))
    assert other == store
    assert hash(other) == hash(store)
    assert other.read("1") == b"1"
    assert store.modified("1") == other.modified("1")


# -- the probe -------------------------------------------------------------------------------------


def test_the_probe_lets_it_pass_and_leaves_nothing(store: Store) -> None:
    store.create("log/1", b"1")
    check_store(store)
    assert store.list_files("") == ["log/1"]
    assert store.names("") == ["log"]
