"""A file appears whole or not at all, one creator wins, and only local filesystems qualify."""

import errno
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from godwit.errors import ConfigError
from godwit.storage import location as filesystem
from godwit.storage.local import LocalStore
from godwit.storage.location import local_directory, local_store, open_store
from godwit.storage.store import Store
from tests.support.processes import forks

CREATORS = 6
ROUNDS = 25


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/data/query", "/data/query"),
        (Path("/data/query"), "/data/query"),
        ("file:/data/query", "/data/query"),
        ("file:///data/query", "/data/query"),
        ("FILE:///data/query", "/data/query"),
        ("file://localhost/data/query", "/data/query"),
        ("file:///data/my%20query", "/data/my query"),
        ("/data/a:b", "/data/a:b"),
    ],
)
def test_local_locations_qualify(text: str | Path, path: str) -> None:
    assert open_store(text).local_path() == Path(path)


def test_a_relative_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("query").local_path() == tmp_path / "query"


@pytest.mark.parametrize("scheme", ["hdfs", "dbfs", "oss", "http"])
@pytest.mark.parametrize("form", ["{}://host/query", "{}:/query", "{}:query"])
def test_other_filesystems_are_refused_by_name(scheme: str, form: str) -> None:
    with pytest.raises(ConfigError, match=f"'{scheme}' does not qualify.*local path"):
        open_store(form.format(scheme))


@pytest.mark.parametrize("text", ["s3a://bucket/rows", "hdfs:/rows", ""])
def test_a_location_that_does_not_qualify_says_what_it_is_for(text: str) -> None:
    with pytest.raises(ConfigError, match=r"a sink\b"):
        local_directory(text, "sink")
    with pytest.raises(ConfigError, match=r"a checkpoint\b"):
        open_store(text, to_write=True)


def test_a_store_is_the_store_that_it_names(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, durable=False)
    assert open_store(store, to_write=True) is store
    assert open_store(store, durable=False) is store


def test_a_store_that_is_given_waits_for_the_disk_as_it_is_told(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, durable=False)
    assert open_store(store, durable=True) == LocalStore(tmp_path, durable=True)
    assert open_store(LocalStore(tmp_path), durable=False) == store
    other = MagicMock(spec=Store)  # one that is no local directory
    assert open_store(other, to_write=True) is other
    assert open_store(other, durable=True) is other
    with pytest.raises(ConfigError, match="this store always waits"):
        open_store(other, durable=False)


@pytest.mark.parametrize("text", ["", "file:query", "file://server/query"])
def test_locations_that_name_no_local_path_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        open_store(text)


@pytest.mark.parametrize("text", ["/data/run[1]", "/data/*/x", "/a/{b}", "file:///a%5B1", "/a?"])
def test_patterns_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="which Spark takes for a pattern"):
        open_store(text)


def test_mounted_network_filesystems_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/sda1 / ext4 rw 0 0\nserver:/a {tmp_path}/shared nfs4 rw 0 0\n"
        f"bucket {tmp_path}/my\\040bucket fuse.s3fs rw 0 0\n"
        f"/dev/sdb {tmp_path}/shared/disk xfs rw 0 0\n"
        f"overlay {tmp_path}/rootless fuse.fuse-overlayfs rw 0 0\n"
    )
    monkeypatch.setattr(filesystem, "_MOUNTS", mounts)
    for place, kind in (("shared/a", "nfs4"), ("my bucket", "fuse.s3fs")):
        with pytest.raises(ConfigError, match=f"the filesystem '{kind}' does not qualify"):
            open_store(tmp_path / place, to_write=True)
        assert open_store(tmp_path / place).local_path() == tmp_path / place  # to look at it
        with pytest.raises(ConfigError, match=f"the filesystem '{kind}' does not qualify"):
            open_store(open_store(tmp_path / place), to_write=True)
        with pytest.raises(ConfigError, match=r"gw.local_store\(path, network=True\)"):
            open_store(tmp_path / place, to_write=True)
        with pytest.raises(ConfigError, match=f"'{kind}' does not qualify for a sink unless"):
            local_directory(tmp_path / place, "sink")
        chosen = local_store(tmp_path / place, network=True)
        assert open_store(chosen, to_write=True) is chosen
    for place in ("own", "shared/disk/a", "rootless"):
        assert open_store(tmp_path / place, to_write=True).local_path() == tmp_path / place


def test_the_second_create_fails_and_changes_nothing(tmp_path: Path) -> None:
    files = LocalStore(tmp_path)
    files.create("one.json", b"first")
    with pytest.raises(FileExistsError):
        files.create("one.json", b"second")
    assert files.read("one.json") == b"first"
    assert os.listdir(tmp_path) == ["one.json"]


def test_on_a_network_a_link_whose_answer_was_lost_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def asks_again(draft: str, target: str) -> None:
        link(draft, target)
        link(draft, target)  # which NFS does when the answer to the first did not come

    monkeypatch.setattr(os, "link", asks_again)
    LocalStore(tmp_path, network=True).create("log/1", b"mine")
    assert LocalStore(tmp_path).read("log/1") == b"mine"
    with pytest.raises(FileExistsError):
        LocalStore(tmp_path, network=True).create("log/1", b"theirs")
    with pytest.raises(FileExistsError):
        LocalStore(tmp_path).create("log/2", b"mine")


def test_replace_writes_over(tmp_path: Path) -> None:
    files = LocalStore(tmp_path)
    files.replace("tick", b"1")
    files.replace("tick", b"2")
    assert files.read("tick") == b"2"
    assert os.listdir(tmp_path) == ["tick"]


def test_names_are_in_order_and_numbers_are_numeric(tmp_path: Path) -> None:
    files = LocalStore(tmp_path, durable=False)
    for name in ["10.json", "9.json", "-1.json", "0.json", "007.json", "7.json.bak", ".8.json"]:
        files.create(name, b"")
    assert files.numbers("") == [-1, 0, 9, 10]
    assert ".8.json" not in files.names("")
    assert files.names("nowhere") == []
    assert files.names("0.json") == []
    assert files.numbers("nowhere") == []


def test_names_look_into_one_directory_however_much_is_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalStore(tmp_path, durable=False)
    for name in ("undone/2/control/1.json", "undone/3/manifests/4.json", "undone/3/.draft"):
        files.create(name, b"")
    entered: list[Path] = []
    for function in (os.listdir, os.scandir):

        def enter(path: Path, function: Callable[[Path], Any] = function) -> Any:
            entered.append(Path(path))
            return function(path)

        monkeypatch.setattr(os, function.__name__, enter)
    assert files.names("undone") == ["2", "3"]
    assert entered == [tmp_path / "undone"]


def test_a_deleted_file_is_gone_and_deleting_it_again_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "staging").mkdir()
    for files in (LocalStore(tmp_path), LocalStore(tmp_path, staging=tmp_path / "staging")):
        files.create("one", b"1")
        files.delete("one")
        files.delete("one")
        assert not files.exists("one")
    assert os.listdir(tmp_path / "staging") == []


def test_a_durable_create_syncs_the_file_and_then_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    LocalStore(tmp_path, durable=False).create("one", b"1")
    assert synced == []
    LocalStore(tmp_path).create("two", b"2")
    draft, directory = synced
    assert draft.startswith(f"{tmp_path}/.")
    assert directory == str(tmp_path)


def test_made_directories_are_synced_from_the_first_that_existed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(os.readlink(f"/proc/self/fd/{fd}")))
    LocalStore(tmp_path / "a").make("b/c")
    assert (tmp_path / "a/b/c").is_dir()
    assert synced == {str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"}


def test_a_durable_write_syncs_the_file_and_then_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    for durable in (False, True):
        with LocalStore(tmp_path, durable).write("one") as target:
            target.write(b"1")
    draft, directory = synced
    assert draft.startswith(f"{tmp_path}/.")
    assert directory == str(tmp_path)
    synced.clear()
    LocalStore(tmp_path).replace("hint", b"1")
    assert synced == []


def test_a_create_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        LocalStore(tmp_path).create("one", b"1")
    assert os.listdir(tmp_path) == []


def test_a_deleted_directory_is_not_made_again_by_writers(tmp_path: Path) -> None:
    """A keeper outlives its query, and users delete checkpoints."""
    store = LocalStore(tmp_path / "checkpoint" / "godwit")
    for change in (store.create, store.replace):
        with pytest.raises(FileNotFoundError):
            change("replicas/1", b"1")
    with pytest.raises(FileNotFoundError), store.write("state/1") as target:
        target.write(b"1")
    assert list(tmp_path.iterdir()) == []


def test_a_filesystem_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(ConfigError, match="no hard links"):
        LocalStore(tmp_path).create("one", b"1")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("change", ["create", "replace", "delete", "move"])
def test_nothing_changes_once_the_staging_is_gone(tmp_path: Path, change: str) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    files = LocalStore(tmp_path, staging=staging)
    files.create("one", b"1")
    staging.rename(tmp_path / "closed")
    arguments: dict[str, tuple[Any, ...]] = {
        "create": ("two", b"2"),
        "replace": ("one", b"2"),
        "delete": ("one",),
        "move": ("one", "aside/one"),
    }
    with pytest.raises(FileNotFoundError):
        getattr(files, change)(*arguments[change])
    assert files.read("one") == b"1"
    assert not files.exists("two")


def _race(
    root: Path, me: int, start: Barrier, wins: "multiprocessing.Queue[tuple[int, int]]"
) -> None:
    files = LocalStore(root)
    for name in range(ROUNDS):
        start.wait()
        try:
            files.create(f"{name}.json", str(me).encode() * 10_000)
        except FileExistsError:
            assert len(files.read(f"{name}.json")) == 10_000  # whole, once the name exists
        else:
            wins.put((name, me))


def test_of_racing_processes_exactly_one_creates_a_file(tmp_path: Path) -> None:
    context = forks()
    start, wins = context.Barrier(CREATORS), context.Queue()
    racers = [
        context.Process(target=_race, args=(tmp_path, me, start, wins)) for me in range(CREATORS)
    ]
    for racer in racers:
        racer.start()
    won = sorted(wins.get(timeout=60) for _ in range(ROUNDS))
    for racer in racers:
        racer.join()
        assert racer.exitcode == 0
    assert wins.empty()
    assert [name for name, _ in won] == list(range(ROUNDS))
    for name, winner in won:
        assert (tmp_path / f"{name}.json").read_bytes() == str(winner).encode() * 10_000
    assert len(os.listdir(tmp_path)) == ROUNDS


def test_who_may_not_look_is_not_told_that_there_is_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The fence is a file: one that cannot be seen must not count as one that is not there."""
    store = LocalStore(tmp_path)
    assert not store.exists("generations/1.json")
    monkeypatch.setattr(os, "stat", MagicMock(side_effect=PermissionError("generations")))
    with pytest.raises(PermissionError):
        store.exists("generations/1.json")
