"""A checkpoint in a directory of a local filesystem.

Local filesystems have an exclusive create that is atomic and durable: a hard link to a synced file.
"""

import errno
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, Self

import pyarrow as pa

from godwit.errors import ConfigError
from godwit.storage.store import CHUNK, Store

_DRAFT: Final = ".tmp"  # ends the names, which begin with a dot, of what is being written
_NO_LINKS: Final = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP}


@dataclass(frozen=True, slots=True)
class LocalStore(Store):
    """Files below the directory `root`; directories below it are made with their files.

    With `staging`, every change passes through that directory: new files are written in it and old
    ones are unlinked in it. A process that moves it away therefore stops all changes through this
    store, at once and for good: the next one fails with FileNotFoundError, or with
    NotADirectoryError if there is a file in its place. Without `staging`, a new file is written
    beside its target under a name that is not listed.

    With `network`, the directory may be on a network filesystem that several hosts have mounted.
    """

    root: Path
    durable: bool = True  # else nothing waits for the disk: for tests
    staging: Path | None = None
    network: bool = False

    def create(self, name: str, data: bytes) -> None:
        with self._draft(name) as draft:
            with open(draft, "xb") as file:
                file.write(data)
                self._flush(file)
            try:
                os.link(draft, self.address(name))
            except FileExistsError:
                if not (self.network and os.stat(draft).st_nlink == 2):
                    raise  # else it is this one: NFS asks again when an answer was lost
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise ConfigError(
                        f"{self.root}: this filesystem has no hard links ({error.strerror}), which "
                        "publishing an epoch needs; use a local filesystem such as ext4 or xfs"
                    ) from error
                raise
        self._sync_parent(name)

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        with self._draft(name) as draft:
            with open(draft, "xb") as file:
                yield file
                self._flush(file)
            os.rename(draft, self.address(name))
        self._sync_parent(name)

    def replace(self, name: str, data: bytes) -> None:
        with self._draft(name) as draft:
            with open(draft, "wb") as file:
                file.write(data)
            os.rename(draft, self.address(name))

    def read(self, name: str) -> bytes:
        with open(self.address(name), "rb") as file:
            return file.read()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with open(self.address(name), "rb") as file:
            file.seek(start)
            return file.read(length)

    def exists(self, name: str) -> bool:
        try:
            os.stat(self.address(name))
        except (FileNotFoundError, NotADirectoryError):
            return False  # any other error is raised: who may not look is not told "no"
        return True

    def list_files(self, directory: str) -> list[str]:
        return sorted(_walk(self.address(directory), directory, _is_listed))

    def delete(self, name: str) -> None:
        target = self.root / name
        if self.staging is None:
            target.unlink(missing_ok=True)
            return
        grave = self.staging / uuid.uuid4().hex
        try:
            target.rename(grave)
        except FileNotFoundError:
            if not self.staging.is_dir():
                raise
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                grave.unlink()

    def within(self, directory: str) -> Self:
        return replace(self, root=self.root / directory)

    def address(self, name: str = "") -> str:
        return f"{self.root}/{name}" if name else str(self.root)  # building a Path takes longer

    def url(self, name: str = "") -> str:
        return f"file://{self.address(name)}"  # Spark would take an escaped space literally

    # -- better than the default ---------------------------------------------------------------

    def names(self, directory: str) -> list[str]:
        """It looks into this directory alone."""
        try:
            return sorted(filter(_is_listed, os.listdir(self.root / directory)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def chunks(self, name: str) -> Iterator[memoryview]:
        """All pieces are in the same buffer."""
        buffer = memoryview(bytearray(CHUNK))
        with open(self.address(name), "rb", buffering=0) as file:
            while size := file.readinto(buffer):
                yield buffer[:size]

    def map(self, name: str) -> pa.Buffer:
        """The bytes stay in the page cache, and readable when the file is deleted."""
        with pa.memory_map(self.address(name)) as source:  # closing leaves it to its buffers
            return source.read_buffer()

    def move(self, name: str, target: str) -> None:
        Store.move(self, name, target)
        self._sync_parent(name)

    def make(self, directory: str = "") -> None:
        """Make a directory and those above it; they outlive a loss of power."""
        if not os.path.isdir(self.address(directory)):
            path = self.root / directory
            missing = [path, *(parent for parent in path.parents if not parent.is_dir())]
            path.mkdir(parents=True, exist_ok=True)
            for made in missing:
                self._sync(made.parent)

    def put_directory(self, path: Path, name: str) -> None:
        """Let a directory that is elsewhere take the place of an empty one, with all its files."""
        path.rename(self.root / name)
        self._sync((self.root / name).parent)

    def drafts(self, directory: str) -> list[str]:
        return sorted(_walk(self.address(directory), directory, _is_draft))

    def modified(self, name: str) -> float:
        return os.stat(self.address(name)).st_mtime

    def local_path(self, name: str = "") -> Path:
        return self.root / name

    @contextmanager
    def _draft(self, name: str) -> Iterator[str]:
        """A path for a file that is to appear under `name`; what is left there is deleted."""
        directory = name.rpartition("/")[0]
        parent = self.address(directory)
        if not os.path.isdir(parent) and self.root.is_dir():  # which may have been deleted
            self.make(directory)
        draft = f"{self.staging or parent}/.{uuid.uuid4().hex}{_DRAFT}"
        try:
            yield draft
        finally:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(draft)

    def _flush(self, file: BinaryIO) -> None:
        if self.durable:
            file.flush()
            os.fsync(file.fileno())

    def _sync_parent(self, name: str) -> None:
        if self.durable:
            self._sync((self.root / name).parent)

    def _sync(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        if self.durable:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def scratch() -> Iterator[LocalStore]:
    """A store that is deleted in the end."""
    with tempfile.TemporaryDirectory() as directory:
        yield LocalStore(Path(directory), durable=False)


def _is_listed(file: str) -> bool:
    return not file.startswith(".")


def _is_draft(file: str) -> bool:
    return file.startswith(".") and file.endswith(_DRAFT)


def _walk(path: str, name: str, shows: Callable[[str], bool]) -> Iterator[str]:
    """The names of files below a directory that is called `name`; hidden ones are not entered."""
    try:
        entries = os.scandir(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            below = f"{name}/{entry.name}" if name else entry.name
            if not entry.is_dir(follow_symlinks=False):
                if shows(entry.name):
                    yield below
            elif _is_listed(entry.name):
                yield from _walk(entry.path, below, shows)
