"""Files that are written to a checkpoint elsewhere and to the cache at once, or are near."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from godwit.errors import DamagedFileError
from godwit.model.files import FileRef
from godwit.model.ids import Epoch, WorkerId
from godwit.state import file as state_file
from godwit.state.cache import FileCache
from godwit.storage.local import LocalStore
from tests.support.cached import PLENTY, SPEC, put, rows_of

pytestmark = pytest.mark.usefixtures("clock")


class Elsewhere(LocalStore):
    """A store that no path of this machine leads to."""

    __slots__ = ()

    def local_path(self, name: str = "") -> None:  # type: ignore[override]
        return None


def write(cache: FileCache, number: int = 1) -> FileRef:
    return state_file.write(
        cache,
        "state/file.arrow",
        SPEC,
        rows_of(number),
        operator="counts",
        epoch=Epoch(1),
        worker=WorkerId(0),
        kind="delta",
    ).ref


def test_what_is_written_is_here_and_there_and_not_read_again(
    location: Path, directory: Path
) -> None:
    store = Elsewhere(location, durable=False)
    store.make("state")
    cache = FileCache(store, directory, PLENTY)
    ref = write(cache)
    assert not cache.holds(ref)  # it is not kept before it is known to be there
    cache.add(ref)
    assert cache.holds(ref)
    assert store.read(ref.name) == Path(cache.path(ref)).read_bytes()
    store.delete(ref.name)
    assert cache.open(ref, SPEC).whole().rows == rows_of(1)
    assert cache.fetched_bytes == 0
    assert len([*directory.iterdir()]) == 1


def test_one_that_is_too_large_is_there_alone(location: Path, directory: Path) -> None:
    store = Elsewhere(location, durable=False)
    store.make("state")
    cache = FileCache(store, directory, 10)
    ref = write(cache)
    cache.add(ref)
    assert store.exists(ref.name)
    assert [*directory.iterdir()] == []


def test_a_write_that_fails_leaves_nothing(location: Path, directory: Path) -> None:
    store = Elsewhere(location, durable=False)
    store.make("state")
    cache = FileCache(store, directory, PLENTY)
    with pytest.raises(RuntimeError), cache.write("state/file") as target:  # noqa: PT012
        target.write(b"part")
        raise RuntimeError
    assert not store.exists("state/file")
    assert [*directory.iterdir()] == []


def test_a_cache_that_cannot_be_written_fails_no_write(location: Path, directory: Path) -> None:
    store = Elsewhere(location, durable=False)
    store.make("state")
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_bytes(b"in its place")
    cache = FileCache(store, directory, PLENTY)
    cache.add(ref := write(cache))
    state_file.verify(store, ref)


# -- files that are near


class Near:
    def __init__(self, data: bytes | None, fails: bool = False) -> None:
        self._data = data
        self._fails = fails

    def chunks(self, ref: FileRef) -> Iterator[memoryview] | None:
        return None if self._data is None else self._read(self._data)

    def _read(self, data: bytes) -> Iterator[memoryview]:
        yield memoryview(data)
        if self._fails:
            raise ConnectionResetError


def test_what_is_near_is_not_read_from_the_checkpoint(location: Path, directory: Path) -> None:
    ref = put(location, 1)
    data = (location / ref.name).read_bytes()
    (location / ref.name).unlink()
    cache = FileCache(LocalStore(location), directory, PLENTY, near=Near(data))
    assert cache.open(ref, SPEC).whole().rows == rows_of(1)
    assert cache.fetched_bytes == ref.bytes


@pytest.mark.parametrize("near", [Near(None), Near(b""), Near(b"other"), Near(b"part", fails=True)])
def test_what_is_not_or_is_wrong_comes_from_the_checkpoint(
    near: Near, location: Path, directory: Path
) -> None:
    ref = put(location, 1)
    cache = FileCache(LocalStore(location), directory, PLENTY, near=near)
    assert cache.open(ref, SPEC).whole().rows == rows_of(1)
    assert len([*directory.iterdir()]) == 1


def test_what_somebody_sends_is_kept_if_it_is_right(location: Path, directory: Path) -> None:
    ref = put(location, 1)
    data = (location / ref.name).read_bytes()
    cache = FileCache(LocalStore(location), directory, PLENTY)
    with pytest.raises(DamagedFileError, match="checksum"):
        cache.take(ref, [memoryview(bytes(len(data)))])
    assert not cache.holds(ref)
    assert cache.take(ref, [memoryview(data[:7]), memoryview(data[7:])])
    assert cache.holds(ref)
