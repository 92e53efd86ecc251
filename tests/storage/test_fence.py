"""The fence: changes pass until a later generation closes it, then none does."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from godwit.storage.fence import Fence
from godwit.storage.local import LocalStore

CLOSED = (FileNotFoundError, NotADirectoryError)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    made = LocalStore(tmp_path, durable=False)
    made.make("staging")
    made.make("spark")
    return made


def _log(files: LocalStore) -> None:
    files.create("metadata", b"id")
    files.create("offsets/0", b"v1")


def test_only_older_fences_are_closed(store: LocalStore) -> None:
    fences = [Fence(store, "staging", generation) for generation in (1, 2, 10)]
    fences[1].close_older()
    assert [fence.is_open for fence in fences] == [False, True, True]
    with pytest.raises(CLOSED):
        fences[0].store.create("late", b"")
    for fence in fences[1:]:
        fence.store.create(f"{fence is fences[1]}", b"")
    fences[1].withdraw()
    assert not fences[1].is_open
    assert store.list_files("") == ["False", "True", *store.list_files("staging")]


def test_a_directory_is_filled_at_once_or_not_at_all(store: LocalStore) -> None:
    log = Fence(store, "staging", 1).directory("spark")

    def interrupted(files: LocalStore) -> None:
        _log(files)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        log.fill(interrupted)
    assert store.list_files("spark") == []
    log.fill(_log)
    assert store.list_files("spark") == ["spark/metadata", "spark/offsets/0"]
    assert (log.path / "metadata").read_bytes() == b"id"
    assert log.url == f"file://{log.path}"


def test_what_fills_a_directory_outlives_a_loss_of_power(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Fence(replace(store, durable=True), "staging", 1).directory("spark")
    filled: list[str] = []  # the directories that are synced after the rename

    def sync(descriptor: int) -> None:
        if store.exists("spark/metadata"):
            filled.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", sync)
    log.fill(_log)
    assert filled == [str(tmp_path)]


def test_a_driver_that_was_fenced_off_fills_nothing(store: LocalStore) -> None:
    older = Fence(store, "staging", 1)
    log = older.directory("spark")

    def overtaken(files: LocalStore) -> None:
        _log(files)
        Fence(store, "staging", 2).close_older()

    with pytest.raises(CLOSED):
        log.fill(overtaken)
    with pytest.raises(CLOSED):
        log.fill(_log)
    assert store.list_files("spark") == []
