"""Local copies of immutable checkpoint files, shared by the processes of an executor.

Nothing here is needed for correctness: files are fetched from the checkpoint again when the cache,
or a part of it, is gone. Processes need no locks between them, because a copy appears by renaming
and a mapped file stays readable when its name is deleted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from godwit.errors import ConfigError, DamagedFileError
from godwit.model.files import FileRef
from godwit.model.store_requests import StoreRequests
from godwit.state.draft import Draft
from godwit.state.file import StateFile, checked, read, verified_chunks
from godwit.state.rate_limit import RateLimit
from godwit.state.table import TableSpec
from godwit.storage.local import LocalStore
from godwit.storage.object_client import requests_made
from godwit.storage.store import Store

SUFFIX: Final = ".godwit"  # eviction deletes no file that is called otherwise

MAX_OPENED: Final = 2048
IDLE_SECONDS: Final = 120.0
TOUCH_SECONDS: Final = 5.0
RATE_FILE: Final = "rate"  # in the cache of an executor: bounds what it fetches


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """Where an executor keeps local copies of state files, and how many bytes of them.

    Its processes read at most `fetch_rate` bytes a second from the checkpoint, if it is given.
    """

    name: str
    limit: int
    directory: str | None = None
    fetch_rate: float | None = None

    def __post_init__(self) -> None:
        if self.fetch_rate is not None and not self.fetch_rate > 0:
            raise ConfigError(f"fetch_rate is in bytes a second, above 0, not {self.fetch_rate}")

    @property
    def path(self) -> Path:
        """The directory of the executor that this process belongs to."""
        parent = self.directory or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        return Path(parent or tempfile.gettempdir()) / self.name

    def open(
        self, store: Store, *, yields: bool = False, near: NearFiles | None = None
    ) -> FileCache:
        """The local files of a checkpoint; who `yields` fetches only while others do not. What
        somebody `near` has is not read from the checkpoint."""
        rate = self.fetch_rate
        rate_limit = RateLimit(self.path / RATE_FILE, rate, yields=yields) if rate else None
        return FileCache(store, self.path, self.limit, rate_limit, near=near)

    def delete(self) -> None:
        """Delete the cache of the executor that this process belongs to."""
        shutil.rmtree(self.path, ignore_errors=True)


class NearFiles(Protocol):
    """Files that are nearer than the checkpoint, if they are there."""

    def chunks(self, ref: FileRef) -> Iterator[memoryview] | None:
        """The bytes of a file, as far as nothing goes wrong; None if nobody has it."""
        ...


class FileCache:
    """Local copies of checkpoint files, bounded in bytes and safe to delete at any time.

    At most `limit` bytes stay in `directory`, apart from what other processes added since this one
    last looked (at most a sixteenth of the limit each). Files larger than the limit, and all files
    when the directory cannot be written, are mapped where they are. What is read from the
    checkpoint keeps to the `rate_limit`, if there is one.
    """

    def __init__(
        self,
        store: Store,
        directory: Path,
        limit: int,
        rate_limit: RateLimit | None = None,
        clock: Callable[[], float] = time.monotonic,
        near: NearFiles | None = None,
    ) -> None:
        self._store = store
        self._location = str(store)
        self._directory = directory
        self._limit = limit
        self._rate_limit = rate_limit
        self._clock = clock
        self._near = near
        self._drafts: dict[str, str] = {}  # of files that are also being written to the checkpoint
        self._requests = requests_made()
        self.fetched_bytes = 0  # that were not here, but in the checkpoint or near
        self.fetch_seconds = 0.0  # that this took
        self.hits = 0  # files that this object found here

    @property
    def store_requests(self) -> StoreRequests:
        """What this process has asked of object stores since this object was made."""
        return requests_made() - self._requests

    @property
    def room(self) -> int:
        """So many bytes of the files that were used last, no eviction deletes."""
        return self._limit - self._limit // 8

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """Write a file to the checkpoint, and where that is not on this machine, here as well;
        `add` then keeps it."""
        if self._store.local_path(name) is not None:
            with self._store.write(name) as target:
                yield target
            return
        with ExitStack() as trouble:
            with self._store.write(name) as target:
                draft = Draft(self._temporary(), target)
                trouble.callback(draft.drop)
                yield draft  # type: ignore[misc]
                draft.end()
            trouble.pop_all()  # there was none
        if draft.is_whole:
            self._drafts[name] = draft.path

    def add(self, ref: FileRef) -> None:
        """Keep a file that this process has just written to the checkpoint.

        It is a hard link where possible, so marking it as used changes the original's times too.
        """
        draft = self._drafts.pop(ref.name, None)
        if ref.bytes > self._limit:
            if draft is not None:
                _delete(draft)
            return
        local = self._local(ref)
        try:
            if draft is not None:
                os.rename(draft, local)
            elif not self._linked(ref, local) and not self._copy(ref, local):
                return
        except OSError:  # it is here already, or may not be
            return
        self._account(ref.bytes)

    def path(self, ref: FileRef) -> str:
        """Where the local copy is, if there is one."""
        return self._local(ref)

    def take(self, ref: FileRef, chunks: Iterable[memoryview]) -> bool:
        """Keep a file that somebody else sends; False if it cannot be kept here.

        Raises DamagedFileError if the bytes are not those of the file.
        """
        kept = self._keep(self._local(ref), checked(chunks, ref, ref.name))
        if kept:
            self._account(ref.bytes)
        return kept

    def has(self, ref: FileRef) -> bool:
        """Is there nothing to fetch? Either the file is here, or it is too large to be."""
        return ref.bytes > self._limit or _touch(self._local(ref))

    def holds(self, ref: FileRef) -> bool:
        """Is there a local copy? It counts as used."""
        return _touch(self._local(ref))

    def names_present(self, refs: Iterable[FileRef]) -> set[str]:
        """The names of those files that are in the directory now; none counts as used."""
        try:
            found = set(os.listdir(self._directory))
        except OSError:
            return set()
        return {ref.name for ref in refs if _local_name(self._location, ref.name, ref.crc) in found}

    def fetch(self, ref: FileRef) -> None:
        """Copy a file here that is not; raises DamagedFileError if the original is damaged."""
        self.fetched_bytes += ref.bytes
        with self._timed():
            copied = self._copy(ref, self._local(ref))
        if copied:
            self._account(ref.bytes)

    def open(self, ref: FileRef, spec: TableSpec) -> StateFile:
        """Map a file, from here if possible; raises DamagedFileError if the original is damaged."""
        local = self._local(ref)
        file = _opened.get(local, spec)
        if file is None:
            file = _open_local(local, ref, spec)
        if file is not None:
            self.hits += 1
            return file
        if ref.bytes <= self._limit:
            self.fetch(ref)
            file = _open_local(local, ref, spec)
        else:
            self.fetched_bytes += ref.bytes
        if file is None:
            file = self._open_original(ref, spec)
            _opened.put(local, file, copied=False)
        return file

    def _local(self, ref: FileRef) -> str:
        """The path of the local copy."""
        return f"{self._directory}/{_local_name(self._location, ref.name, ref.crc)}"

    def _linked(self, ref: FileRef, local: str) -> bool:
        """Give an original a name here; False if it is on another filesystem, or on none."""
        original = self._store.local_path(ref.name)
        if original is None:
            return False
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            os.link(original, local)
        except FileExistsError:
            raise
        except OSError:
            return False
        return True

    def _open_original(self, ref: FileRef, spec: TableSpec) -> StateFile:
        with self._timed():
            for _ in self._chunks(ref):
                pass
        return read(self._store, ref.name, spec, ref)

    def _copy(self, ref: FileRef, local: str) -> bool:
        """Copy a file from near or from the checkpoint, checking its sum; False if it cannot be
        kept here."""
        if self._near is not None and (chunks := self._near.chunks(ref)) is not None:
            with suppress(DamagedFileError):
                if self._keep(local, checked(chunks, ref, ref.name)):
                    return True
        return self._keep(local, self._chunks(ref))

    def _keep(self, local: str, chunks: Iterator[memoryview]) -> bool:
        """Write a local file that appears when it is whole; False if it cannot be written."""
        temporary = self._temporary()
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as target:
                for chunk in chunks:
                    target.write(chunk)
            os.rename(temporary, local)
        except DamagedFileError:
            _delete(temporary)
            raise
        except OSError:
            _delete(temporary)
            return False
        return True

    def _temporary(self) -> str:
        return f"{self._directory}/{uuid.uuid4().hex}.tmp{SUFFIX}"

    def _chunks(self, ref: FileRef) -> Iterator[memoryview]:
        """The bytes of an original, at the pace of the limit; raises if they are not right."""
        for chunk in verified_chunks(self._store, ref):
            if self._rate_limit is not None:
                self._rate_limit.take(len(chunk))
            yield chunk

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = self._clock()
        try:
            yield
        finally:
            self.fetch_seconds += self._clock() - start

    def _account(self, added: int) -> None:
        """Note that this process added so many bytes; look at the directory only when it must."""
        with _accounting:
            self._count(added)

    def _count(self, added: int) -> None:
        usage = _usages.get(str(self._directory))
        if usage is not None:
            usage.total += added
            usage.unseen += added
            if usage.total <= self._limit and usage.unseen <= self._limit // 16:
                return
        _usages[str(self._directory)] = _Usage(total=self._evict(), unseen=0)

    def _evict(self) -> int:
        """Delete the least recently used files if there are too many bytes; returns what stays."""
        files = _scan(self._directory)
        total = sum(size for _, size, _ in files)
        if total <= self._limit:
            return total
        for _, size, path in sorted(files):
            if total <= self.room:  # less than the limit, so as not to be back at once
                break
            if _delete(path):
                _opened.forget(path)
                total -= size
        return total


@dataclass(slots=True)
class _Usage:
    """How many bytes a directory holds as far as this process knows."""

    total: int
    unseen: int  # added by this process since it last looked


@dataclass(slots=True)
class _Entry:
    file: StateFile
    copied: bool  # it is a local copy, and to be marked as used
    used: float
    touched: float


class _Opened:
    """The files that this process has mapped, by the path of their local copy.

    A mapped file holds its disk space also when it has been deleted; so the number of files, and
    the time that one stays without being used, are bounded.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_files: int = MAX_OPENED,
        idle_seconds: float = IDLE_SECONDS,
        touch_seconds: float = TOUCH_SECONDS,
    ) -> None:
        self._clock = clock
        self._max_files = max_files
        self._idle_seconds = idle_seconds
        self._touch_seconds = touch_seconds
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def get(self, local: str, spec: TableSpec) -> StateFile | None:
        """The file if it is open; None when its local copy was deleted, to give its space back."""
        now = self._clock()
        with self._lock:
            self._expire(now)
            entry = self._entries.get(local)
            if entry is None or entry.file.spec != spec:
                return None
            if entry.copied and now - entry.touched > self._touch_seconds:
                if not _touch(local):
                    del self._entries[local]
                    return None
                entry.touched = now
            entry.used = now
            self._entries.move_to_end(local)
            return entry.file

    def put(self, local: str, file: StateFile, *, copied: bool) -> None:
        now = self._clock()
        with self._lock:
            self._entries[local] = _Entry(file, copied, used=now, touched=now)
            self._entries.move_to_end(local)
            self._expire(now)

    def forget(self, local: str) -> None:
        with self._lock:
            self._entries.pop(local, None)

    def _expire(self, now: float) -> None:
        while self._entries:
            oldest = next(iter(self._entries.values()))
            if len(self._entries) <= self._max_files and now - oldest.used <= self._idle_seconds:
                return
            self._entries.popitem(last=False)


_opened: Final = _Opened()
_usages: Final[dict[str, _Usage]] = {}
_accounting: Final = threading.Lock()


@lru_cache(maxsize=1 << 14)
def _local_name(location: str, name: str, crc: int) -> str:
    """A name of its own for each content of each checkpoint."""
    origin = hashlib.blake2b(f"{location}/{name}".encode(), digest_size=16)
    return f"{origin.hexdigest()}-{crc:08x}{SUFFIX}"


def _open_local(local: str, ref: FileRef, spec: TableSpec) -> StateFile | None:
    """Map a local copy; None when there is none, or was none that could be used."""
    if not _touch(local):
        return None
    try:
        directory, _, name = local.rpartition("/")
        file = read(LocalStore(Path(directory)), name, spec, ref)
    except DamagedFileError:
        _delete(local)
        return None
    _opened.put(local, file, copied=True)
    return file


def _scan(directory: Path) -> list[tuple[int, int, str]]:
    """Time of last use, bytes and path of each file of the cache."""
    files = []
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime_ns, status.st_size, entry.path))
    return files


def _touch(path: str) -> bool:
    """Mark a file as used now; False when there is none."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:  # the mark is not worth failing for
        pass
    return True


def _delete(path: str) -> bool:
    """Delete a file; True when it is gone, whoever did it."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
