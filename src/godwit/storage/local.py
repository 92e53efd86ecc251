"""The one module that knows filesystems: where a checkpoint may live, and how a file is published.

Publishing needs an exclusive create that is atomic and durable. Local filesystems have it (a hard
link to a synced file); object stores and network filesystems do not, or not yet through here.
"""

import errno
import os
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from godwit.errors import ConfigError

_WILD = re.compile(r"[*?\[\]{}]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(.*)", re.DOTALL)
_NUMBERED = re.compile(r"(0|-?[1-9][0-9]*)\.json")
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP}
_MOUNTS = Path("/proc/self/mounts")
_REMOTE = re.compile(
    r"(nfs|cifs|smb|afs|ceph|gluster|lustre|beegfs|gpfs).*|fuse(\.(?!fuse-overlayfs).*)?"
)


@dataclass(frozen=True, slots=True)
class Location:
    """A place that qualifies for a checkpoint: an absolute path on a local filesystem.

    >>> Location.parse("file:///data/my%20query").path.as_posix()
    '/data/my query'
    >>> Location.parse("s3a://bucket/query")
    Traceback (most recent call last):
    ...
    godwit.errors.ConfigError: s3a://bucket/query: the filesystem 's3a' does not qualify for a \
checkpoint; use a local path or a file: URL. Publishing an epoch needs an exclusive create that is \
atomic and durable, which local filesystems have
    """

    path: Path

    @classmethod
    def parse(cls, text: str | os.PathLike[str], what: str = "checkpoint") -> Self:
        """The location that a path or a file: URL names; every other filesystem is refused."""
        text = os.fspath(text)
        if not text:
            raise ConfigError(f"a {what} needs a location: a local path or a file: URL")
        path = _path_of(text, what)
        if wild := _WILD.search(str(path)):
            raise ConfigError(
                f"{text}: holds '{wild[0]}', which Spark takes for a pattern; use another path"
            )
        return cls(path)

    @classmethod
    def to_write(cls, text: str | os.PathLike[str], what: str = "checkpoint") -> Self:
        """The same for who writes there: a mounted network filesystem is refused, too."""
        location = cls.parse(text, what)
        if _REMOTE.fullmatch(kind := _mounted(location.path)):
            raise _unfit(os.fspath(text), kind, what)
        return location


def _path_of(text: str, what: str) -> Path:
    match = _SCHEME.match(text)
    if match is None:
        return Path(text).absolute()
    scheme, rest = match.groups()
    if scheme.lower() != "file":
        raise _unfit(text, scheme, what)
    return _path_of_url(text, rest)


def _unfit(text: str, filesystem: str, what: str) -> ConfigError:
    return ConfigError(
        f"{text}: the filesystem '{filesystem}' does not qualify for a {what}; "
        "use a local path or a file: URL. Publishing an epoch needs an exclusive "
        "create that is atomic and durable, which local filesystems have"
    )


def _mounted(path: Path) -> str:
    """The kind of filesystem that a path is on; empty where the system does not tell."""
    if not _MOUNTS.exists():
        return ""
    real = path.resolve()  # which also mounts what is mounted when it is used
    kinds = {}
    for line in _MOUNTS.read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        kinds[re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), point)] = kind
    return next((kinds[str(one)] for one in (real, *real.parents) if str(one) in kinds), "")


def _path_of_url(url: str, rest: str) -> Path:
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        if host not in ("", "localhost"):
            raise ConfigError(f"{url}: names the host '{host}'; a local file URL is file:///path")
    if not rest.startswith("/"):
        raise ConfigError(f"{url}: is not absolute; a local file URL is file:///path")
    return Path(unquote(rest))


class LocalStore:
    """LocalStore below `root` that appear whole or not at all, and of which one creator wins.

    Every change passes through `staging`, where new files are written and old ones are unlinked. A
    process that moves this directory away therefore stops all changes through this object, at once
    and for good: the next one fails with FileNotFoundError, or with NotADirectoryError if there is
    a file in its place. Without `staging`, new files are
    written beside their target under a name that `names` does not show.
    """

    def __init__(self, root: Path, durable: bool = True, staging: Path | None = None) -> None:
        self.root = root
        self._durable = durable
        self._staging = staging

    def make(self, directory: str = "") -> None:
        """Make a directory and those above it; they outlive a loss of power."""
        path = self.root / directory
        if not path.is_dir():
            missing = [path, *(parent for parent in path.parents if not parent.is_dir())]
            path.mkdir(parents=True, exist_ok=True)
            for made in missing:
                self._sync(made.parent)

    def create(self, name: str, data: bytes) -> None:
        """Create a file durably; FileExistsError, and nothing changes, if the name is taken."""
        target = self.root / name
        draft = self._draft(target, data)
        try:
            os.link(draft, target)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise ConfigError(
                    f"{self.root}: this filesystem has no hard links ({error.strerror}), which "
                    "publishing an epoch needs; use a local filesystem such as ext4 or xfs"
                ) from error
            raise
        finally:
            with suppress(FileNotFoundError, NotADirectoryError):
                draft.unlink()
        self._sync(target.parent)

    def replace(self, name: str, data: bytes) -> None:
        """Write a file over the one that may be there. Only for hints: the last writer wins."""
        target = self.root / name
        draft = self._draft(target, data)
        draft.replace(target)
        self._sync(target.parent)

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone already is no error."""
        target = self.root / name
        if self._staging is None:
            target.unlink(missing_ok=True)
            return
        grave = self._staging / uuid.uuid4().hex
        try:
            target.rename(grave)
        except FileNotFoundError:
            if not self._staging.is_dir():
                raise
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                grave.unlink()

    def move(self, name: str, target: str) -> None:
        """Move a file to a new name, which must be free; at no time is it at neither."""
        self.make(str(Path(target).parent))
        self.create(target, self.read(name))
        self.delete(name)
        self._sync((self.root / name).parent)

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def names(self, directory: str) -> list[str]:
        """The names in a directory in order, without hidden ones; none if it does not exist."""
        try:
            return sorted(n for n in os.listdir(self.root / directory) if not n.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def numbers(self, directory: str) -> list[int]:
        """The numbers n, in order, for which `directory` holds a file n.json."""
        matches = (_NUMBERED.fullmatch(name) for name in self.names(directory))
        return sorted(int(match[1]) for match in matches if match)

    def _draft(self, target: Path, data: bytes) -> Path:
        draft = (self._staging or target.parent) / f".{uuid.uuid4().hex}"
        with open(draft, "xb") as file:
            file.write(data)
            if self._durable:
                file.flush()
                os.fsync(file.fileno())
        return draft

    def _sync(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        if self._durable:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
