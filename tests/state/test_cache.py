"""The file cache: bounded, shared, and never needed for a right answer."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from godwit.errors import DamagedFileError, IncompatibleError
from godwit.model.files import FileRef
from godwit.model.ids import Epoch, WorkerId
from godwit.state import cache as module
from godwit.state.cache import SUFFIX, FileCache
from godwit.state.file import write
from godwit.storage.local import LocalStore
from godwit.storage.store import StoreError
from tests.support.cached import PLENTY, SPEC, Clock, check, forget, put, rows_of
from tests.support.object_gateway import Gateway, gateway

pytestmark = pytest.mark.usefixtures("clock")


def held(directory: Path) -> list[Path]:
    return sorted(directory.glob("*")) if directory.exists() else []


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in held(directory))


# -- hits and fetches


def test_an_added_file_is_a_link_and_never_fetched(location: Path, directory: Path) -> None:
    cache, ref = FileCache(LocalStore(location), directory, PLENTY), put(location, 1)
    cache.add(ref)
    assert held(directory)[0].samefile(location / ref.name)
    check(cache, ref)
    assert (cache.hits, cache.fetched_bytes) == (1, 0)


def test_a_file_is_fetched_once_for_all_processes(location: Path, directory: Path) -> None:
    ref = put(location, 1)
    first = FileCache(LocalStore(location), directory, PLENTY)
    check(first, ref)
    check(first, ref)
    assert (first.hits, first.fetched_bytes) == (1, ref.bytes)
    forget()
    (location / ref.name).unlink()  # the copy is a copy
    second = FileCache(LocalStore(location), directory, PLENTY)
    check(second, ref)
    assert (second.hits, second.fetched_bytes) == (1, 0)


def test_an_open_file_is_not_opened_again(location: Path, directory: Path) -> None:
    cache, ref = FileCache(LocalStore(location), directory, PLENTY), put(location, 1)
    file = cache.open(ref, SPEC)
    assert FileCache(LocalStore(location), directory, PLENTY).open(ref, SPEC) is file
    same = replace(SPEC)
    assert cache.open(ref, same) is file


def test_an_empty_file_is_a_hit_too(location: Path, directory: Path) -> None:
    cache, ref = FileCache(LocalStore(location), directory, PLENTY), put(location, 1, rows=0)
    assert cache.open(ref, SPEC) is cache.open(ref, SPEC)
    assert cache.hits == 1


def test_another_spec_sees_the_same_file_through_other_columns(
    location: Path, directory: Path
) -> None:
    cache, ref = FileCache(LocalStore(location), directory, PLENTY), put(location, 1)
    check(cache, ref)
    grown = replace(SPEC, value=pa.schema([("n", pa.int64()), ("m", pa.string())]))
    assert cache.open(ref, grown).whole().rows["m"].null_count == 1000
    with pytest.raises(IncompatibleError, match=ref.name):
        cache.open(ref, replace(SPEC, value=pa.schema([("m", pa.string())])))
    assert len(held(directory)) == 1


def test_equal_names_of_other_checkpoints_or_contents_stay_apart(
    tmp_path: Path, location: Path, directory: Path
) -> None:
    old = put(location, 1, rows=3)
    check(FileCache(LocalStore(location), directory, PLENTY), old)
    other = put(tmp_path / "other", 1, rows=4)
    check(FileCache(LocalStore(tmp_path / "other"), directory, PLENTY), other)
    shutil.rmtree(location)
    new = put(location, 1, rows=5)
    assert new.name == old.name
    check(FileCache(LocalStore(location), directory, PLENTY), new)


def test_files_are_copied_where_they_cannot_be_linked(
    location: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    cache, ref = FileCache(LocalStore(location), directory, PLENTY), put(location, 1)
    cache.add(ref)
    (location / ref.name).unlink()
    check(cache, ref)
    assert (cache.hits, cache.fetched_bytes) == (1, 0)


def test_adding_a_file_that_is_there_changes_nothing(location: Path, directory: Path) -> None:
    cache, ref = FileCache(LocalStore(location), directory, PLENTY), put(location, 1)
    check(cache, ref)
    cache.add(ref)
    cache.add(ref)
    assert len(held(directory)) == 1


# -- the limit


def test_the_least_recently_used_files_go(location: Path, directory: Path, clock: Clock) -> None:
    refs = [put(location, number) for number in range(9)]
    cache = FileCache(LocalStore(location), directory, limit=8 * refs[0].bytes)
    for age, ref in enumerate(refs[:8]):
        cache.add(ref)
        os.utime(location / ref.name, (age, age))
        check(cache, ref)
        os.utime(location / ref.name, (age, age))
    clock.now += 2 * module.TOUCH_SECONDS
    check(cache, refs[0])  # the oldest is used again
    cache.add(refs[8])
    left = {path.stat().st_ino for path in held(directory)}
    kept = [n for n, ref in enumerate(refs) if (location / ref.name).stat().st_ino in left]
    assert kept == [0, 3, 4, 5, 6, 7, 8]


def test_the_directory_stays_below_its_limit(location: Path, directory: Path) -> None:
    refs = [put(location, number) for number in range(40)]
    cache = FileCache(LocalStore(location), directory, limit=10 * refs[0].bytes)
    for ref in refs * 2:
        check(cache, ref)
        assert size(directory) <= 10 * refs[0].bytes


def test_what_other_processes_added_is_noticed(location: Path, directory: Path) -> None:
    refs = [put(location, number) for number in range(64)]
    limit = 32 * refs[0].bytes
    mine, others = (FileCache(LocalStore(location), directory, limit) for _ in range(2))
    for a, b in zip(refs[:32], refs[32:], strict=True):
        check(mine, a)
        usages = dict(module._usages)
        module._usages.clear()
        check(others, b)
        module._usages.clear()
        module._usages.update(usages)
        assert size(directory) <= limit + 2 * limit // 16


def test_the_directory_is_not_scanned_at_each_file(
    location: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = 0
    scan = module._scan

    def counted(path: Path) -> list[tuple[int, int, str]]:
        nonlocal scans
        scans += 1
        return scan(path)

    monkeypatch.setattr(module, "_scan", counted)
    refs = [put(location, number, rows=1) for number in range(100)]
    cache = FileCache(LocalStore(location), directory, limit=sum(ref.bytes for ref in refs))
    for ref in refs:
        cache.add(ref)
    assert scans <= 17


@pytest.mark.parametrize("limit", [0, 1, 30_000])
def test_a_limit_too_small_costs_time_only(limit: int, location: Path, directory: Path) -> None:
    refs = [put(location, number) for number in range(4)]
    cache = FileCache(LocalStore(location), directory, limit)
    for ref in refs * 3:
        cache.add(ref)
        check(cache, ref)
        assert size(directory) <= limit


def test_eviction_deletes_no_file_of_others(location: Path, directory: Path) -> None:
    directory.mkdir()
    theirs = directory / "thesis.arrow"
    theirs.write_bytes(bytes(100_000))
    refs = [put(location, number) for number in range(4)]
    cache = FileCache(LocalStore(location), directory, limit=refs[0].bytes)
    for ref in refs:
        check(cache, ref)
    assert theirs.exists()
    assert len(held(directory)) <= 2


# -- open files


def test_open_files_are_bounded_in_number_and_in_idle_time(
    location: Path, directory: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_opened", module._Opened(clock.monotonic, max_files=3))
    cache = FileCache(LocalStore(location), directory, PLENTY)
    refs = [put(location, number) for number in range(5)]
    for ref in refs:
        check(cache, ref)
    assert len(module._opened._entries) == 3
    clock.now += module.IDLE_SECONDS + 1
    check(cache, refs[4])
    assert len(module._opened._entries) == 1


def test_a_deleted_copy_is_let_go_and_fetched_again(
    location: Path, directory: Path, clock: Clock
) -> None:
    cache, ref = FileCache(LocalStore(location), directory, PLENTY), put(location, 1)
    file = cache.open(ref, SPEC)
    held(directory)[0].unlink()
    assert cache.open(ref, SPEC) is file
    clock.now += module.TOUCH_SECONDS + 1
    assert cache.open(ref, SPEC) is not file
    assert cache.fetched_bytes == 2 * ref.bytes
    assert file.whole().rows.equals(rows_of(1))  # whoever still has it can still read it


# -- damage and trouble


def test_a_damaged_copy_is_replaced(location: Path, directory: Path) -> None:
    ref = put(location, 1)
    check(FileCache(LocalStore(location), directory, PLENTY), ref)
    for damage in (b"", b"garbage", bytes(ref.bytes)):
        forget()
        held(directory)[0].write_bytes(damage)
        cache = FileCache(LocalStore(location), directory, PLENTY)
        check(cache, ref)
        assert cache.fetched_bytes == ref.bytes


@pytest.mark.parametrize("limit", [0, PLENTY])
def test_a_damaged_original_is_an_error_that_names_it(
    limit: int, location: Path, directory: Path
) -> None:
    ref = put(location, 1)
    path = location / ref.name
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    cache = FileCache(LocalStore(location), directory, limit)
    for damage in (bytes(flipped), content[:-1], b""):
        path.write_bytes(damage)
        with pytest.raises(DamagedFileError, match=ref.name):
            cache.open(ref, SPEC)
    path.unlink()
    with pytest.raises(DamagedFileError, match="the file is missing"):
        cache.open(ref, SPEC)
    assert held(directory) == []


def test_a_cache_that_cannot_be_written_is_done_without(location: Path, directory: Path) -> None:
    directory.write_text("a file where the directory should be")
    cache, ref = FileCache(LocalStore(location), directory, PLENTY), put(location, 1)
    cache.add(ref)
    check(cache, ref)
    check(cache, ref)
    assert (cache.hits, cache.fetched_bytes) == (1, ref.bytes)


def test_a_full_disk_is_done_without(
    location: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cache, ref = FileCache(LocalStore(location), directory, PLENTY), put(location, 1)
    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(os, "rename", full)
    cache.add(ref)
    check(cache, ref)
    check(cache, ref)
    assert (cache.hits, cache.fetched_bytes) == (1, ref.bytes)
    assert held(directory) == []


def test_a_cache_deleted_in_mid_use_is_made_again(
    location: Path, directory: Path, clock: Clock
) -> None:
    cache = FileCache(LocalStore(location), directory, PLENTY)
    refs = [put(location, number) for number in range(6)]
    for ref in refs[:3]:
        cache.add(ref)
        check(cache, ref)
    shutil.rmtree(directory)
    clock.now += module.TOUCH_SECONDS + 1
    cache.add(refs[3])
    for ref in refs:
        check(cache, ref)
    assert len(held(directory)) == 6


PROCESS = """
import random, shutil, sys
from pathlib import Path
import pyarrow as pa
from godwit.state import cache as module
from godwit.state.cache import FileCache
from godwit.storage.local import LocalStore
from godwit.model.files import FileRef
from godwit.state.table import TableSpec

location, directory, limit, seed, *refs = sys.argv[1:]
columns = [pa.schema([(name, pa.int64())]) for name in ("word", "n")]
spec = TableSpec("counts", columns[0], pa.schema([]), columns[1])
refs = [FileRef(name, int(rows), int(size), int(crc))
        for name, rows, size, crc in (ref.split(",") for ref in refs)]
cache = FileCache(LocalStore(Path(location)), Path(directory), int(limit))
choose = random.Random(int(seed))
module._opened = module._Opened(max_files=4, touch_seconds=0.0)
for step in range(600):
    ref = choose.choice(refs)
    if choose.random() < 0.2:
        cache.add(ref)
    if choose.random() < 0.01:
        shutil.rmtree(directory, ignore_errors=True)
    rows = cache.open(ref, spec).whole().rows
    number = int(Path(ref.name).stem)
    assert rows["n"].unique().to_pylist() == [number], (ref, rows)
    assert len(rows) == ref.rows
print(cache.hits, cache.fetched_bytes)
"""


def test_processes_share_a_small_cache_without_harm(location: Path, directory: Path) -> None:
    refs = [put(location, number) for number in range(20)]
    limit = 5 * refs[0].bytes
    texts = [f"{ref.name},{ref.rows},{ref.bytes},{ref.crc}" for ref in refs]
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                PROCESS,
                str(location),
                str(directory),
                str(limit),
                seed,
                *texts,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
        )
        for seed in ("1", "2")
    ]
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        hits, fetched = map(int, output.split())
        assert hits > 0
        assert fetched > 0
    assert not list(directory.glob(f"*.tmp{SUFFIX}"))
    assert size(directory) <= limit + limit // 8


# -- a checkpoint in an object store


@pytest.fixture
def objects() -> Iterator[Gateway]:
    with gateway() as made:
        yield made


def written(cache: FileCache, number: int) -> FileRef:
    return write(
        cache,
        f"state/words/{number}.arrow",
        SPEC,
        rows_of(number),
        operator="words",
        epoch=Epoch(number),
        worker=WorkerId(0),
        kind="delta",
    ).ref


def test_what_was_written_to_an_object_store_is_here_and_never_read(
    objects: Gateway, directory: Path
) -> None:
    cache = FileCache(objects.s3(), directory, PLENTY)
    ref = written(cache, 1)
    cache.add(ref)
    check(cache, ref)
    assert objects.methods == ["PUT"]
    assert (cache.hits, cache.fetched_bytes) == (1, 0)
    assert len(held(directory)) == 1


def test_a_file_of_an_object_store_is_fetched_once_and_summed_up(
    objects: Gateway, tmp_path: Path, directory: Path
) -> None:
    ref = written(FileCache(objects.s3(), tmp_path / "other", PLENTY), 1)
    cache = FileCache(objects.s3(), directory, PLENTY)
    check(cache, ref)
    check(cache, ref)
    assert objects.methods == ["PUT", "GET"]
    objects.objects[f"query/{ref.name}"] = bytes(ref.bytes)
    with pytest.raises(DamagedFileError, match=r"s3://bucket/query/.*its checksum is"):
        FileCache(objects.s3(), tmp_path / "third", PLENTY).fetch(ref)
    assert held(tmp_path / "third") == []


@pytest.mark.parametrize("limit", [0, PLENTY])
def test_without_a_place_for_it_a_file_of_an_object_store_is_read_all_the_same(
    objects: Gateway, directory: Path, limit: int
) -> None:
    if limit:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.write_text("no directory")
    cache = FileCache(objects.s3(), directory, limit)
    ref = written(cache, 1)
    cache.add(ref)
    check(cache, ref)


def test_a_write_that_fails_leaves_no_copy(objects: Gateway, directory: Path) -> None:
    objects.acts = [403]
    with pytest.raises(StoreError):
        written(FileCache(objects.s3(), directory, PLENTY), 1)
    assert held(directory) == []
