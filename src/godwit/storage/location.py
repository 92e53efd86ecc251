"""From what a user writes to a store: where a checkpoint, or the files of a sink, may be."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote

from godwit.errors import ConfigError
from godwit.storage.local import LocalStore
from godwit.storage.store import Store

Location: TypeAlias = Store | str | PathLike[str]
Purpose = Literal["checkpoint", "sink"]

_WILD: Final = re.compile(r"[*?\[\]{}]")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(.*)", re.DOTALL)
_MOUNTS = Path("/proc/self/mounts")
_REMOTE: Final = re.compile(
    r"(nfs|cifs|smb|afs|ceph|gluster|lustre|beegfs|gpfs).*|fuse(\.(?!fuse-overlayfs).*)?"
)
_NEEDS: Final[Mapping[Purpose, str]] = {
    "checkpoint": "Publishing an epoch needs an exclusive create that is atomic and durable",
    "sink": "Delivering an epoch needs a directory that appears as a whole and is durable",
}


def open_store(location: Location, *, to_write: bool = False, durable: bool | None = None) -> Store:
    """The store of a checkpoint that a path or URL names; a store is one already.

    Where there is a filesystem that does not qualify, ConfigError says so: for one that is mounted,
    only if it is to be written. `durable` says whether writing waits for the disk: of None, a store
    does as before, and one that a path names does. A store that is given is held to the same.

    >>> str(open_store("file:///data/my%20query"))
    '/data/my query'
    >>> open_store("s3a://bucket/query")
    Traceback (most recent call last):
    ...
    godwit.errors.ConfigError: s3a://bucket/query: the filesystem 's3a' does not qualify for a \
checkpoint; use a local path or a file: URL. Publishing an epoch needs an exclusive create that is \
atomic and durable, which local filesystems have
    """
    if isinstance(location, Store):
        return _given(location, to_write, durable)
    text = _text(location, "checkpoint")
    scheme = match[1] if (match := _SCHEME.match(text)) else "file"
    if (opened := _STORES.get(scheme.lower())) is None:
        raise _unfit(text, scheme, "checkpoint")
    return opened(text, to_write, durable is not False)


def local_directory(location: str | PathLike[str], purpose: Purpose) -> Path:
    """The absolute path that a location to write to names, which must be on a local filesystem."""
    text = _text(location, purpose)
    path = _path(text, purpose)
    _check_mounted(text, path, purpose)
    return path


def _text(location: str | PathLike[str], purpose: Purpose) -> str:
    if not isinstance(location, str | PathLike):
        raise ConfigError(
            f"a {purpose} needs a location: a local path or a file: URL, not {location!r}"
        )
    return fspath(location)


def _given(store: Store, to_write: bool, durable: bool | None) -> Store:
    if isinstance(store, LocalStore):
        if to_write:
            _check_mounted(str(store), store.root, "checkpoint")
        return store if durable in (None, store.durable) else replace(store, durable=durable)
    if durable is False:
        raise ConfigError(f"{store}: this store always waits until files are durable")
    return store


def _open_local(text: str, to_write: bool, durable: bool) -> Store:
    path = local_directory(text, "checkpoint") if to_write else _path(text, "checkpoint")
    return LocalStore(path, durable)


# What opens the locations of each scheme; a new store is one line here.
_STORES: Final[Mapping[str, Callable[[str, bool, bool], Store]]] = {
    "file": _open_local,
}


def _path(text: str, purpose: Purpose) -> Path:
    if not text:
        raise ConfigError(f"a {purpose} needs a location: a local path or a file: URL")
    match = _SCHEME.match(text)
    if match is None:
        path = Path(text).absolute()
    elif match[1].lower() == "file":
        path = _path_of_url(text, match[2])
    else:
        raise _unfit(text, match[1], purpose)
    if wild := _WILD.search(str(path)):
        raise ConfigError(
            f"{text}: holds '{wild[0]}', which Spark takes for a pattern; use another path"
        )
    return path


def _path_of_url(url: str, rest: str) -> Path:
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        if host not in ("", "localhost"):
            raise ConfigError(f"{url}: names the host '{host}'; a local file URL is file:///path")
    if not rest.startswith("/"):
        raise ConfigError(f"{url}: is not absolute; a local file URL is file:///path")
    return Path(unquote(rest))


def _unfit(text: str, filesystem: str, purpose: Purpose) -> ConfigError:
    return ConfigError(
        f"{text}: the filesystem '{filesystem}' does not qualify for a {purpose}; "
        f"use a local path or a file: URL. {_NEEDS[purpose]}, which local filesystems have"
    )


def _check_mounted(text: str, path: Path, purpose: Purpose) -> None:
    if _REMOTE.fullmatch(kind := _mounted(path)):
        raise _unfit(text, kind, purpose)


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
