"""Fetching files into the cache: ahead of need, and over a link."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from godwit.state.cache import FileCache
from godwit.state.rate_limit import RateLimit
from godwit.storage.local import LocalStore
from tests.support.cached import PLENTY, SPEC, Clock, check, forget, put, rows_of

pytestmark = pytest.mark.usefixtures("clock")


def test_a_file_can_be_fetched_ahead_of_need(tmp_path: Path) -> None:
    ref = put(tmp_path / "checkpoint", 1)
    cache = FileCache(LocalStore(tmp_path / "checkpoint"), tmp_path / "cache", PLENTY)
    assert not cache.has(ref)
    cache.fetch(ref)
    assert cache.has(ref)
    shutil.rmtree(tmp_path / "checkpoint")
    assert cache.open(ref, SPEC).whole().rows == rows_of(1)
    assert (cache.fetched_bytes, cache.hits) == (ref.bytes, 1)


def test_what_is_here_is_told_from_what_is_not(location: Path, directory: Path) -> None:
    cache = FileCache(LocalStore(location), directory, PLENTY)
    refs = [put(location, number) for number in range(3)]
    assert cache.names_present(refs) == set()
    cache.add(refs[0])
    cache.fetch(refs[2])
    assert cache.names_present(refs) == {refs[0].name, refs[2].name}
    assert cache.names_present([replace(refs[0], crc=0)]) == set()


def test_there_is_nothing_to_fetch_of_a_file_that_is_too_large(tmp_path: Path) -> None:
    ref = put(tmp_path / "checkpoint", 1)
    assert FileCache(LocalStore(tmp_path / "checkpoint"), tmp_path / "cache", ref.bytes - 1).has(
        ref
    )


class Counted(RateLimit):
    """A link without a limit that says what passed over it."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def take(self, size: int) -> None:
        self.taken.append(size)


def test_what_is_fetched_passes_over_the_link_in_pieces(location: Path, directory: Path) -> None:
    ref, link = put(location, 1, rows=100_000), Counted()
    cache = FileCache(LocalStore(location), directory, PLENTY, link)
    check(cache, ref)
    assert sum(link.taken) == ref.bytes
    assert len(link.taken) > 1
    assert max(link.taken) <= 1 << 20
    forget()
    check(cache, ref)  # from here
    assert sum(link.taken) == ref.bytes


def test_a_file_that_stays_where_it_is_passes_over_the_link_when_it_is_opened(
    location: Path, directory: Path
) -> None:
    ref, link = put(location, 1), Counted()
    check(FileCache(LocalStore(location), directory, ref.bytes - 1, link), ref)
    assert sum(link.taken) == ref.bytes


def test_the_time_that_fetching_takes_is_told(
    location: Path, directory: Path, clock: Clock
) -> None:
    class Slow(RateLimit):
        def take(self, size: int) -> None:
            clock.now += size

    small, large = put(location, 1), put(location, 2, rows=2000)
    link = Slow(directory / "link", 1.0)
    cache = FileCache(LocalStore(location), directory, small.bytes, link, clock.monotonic)
    check(cache, small)
    assert cache.fetch_seconds == small.bytes
    check(cache, large)
    assert cache.fetch_seconds == small.bytes + large.bytes
