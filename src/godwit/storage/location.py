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
from godwit.storage.object_client import Bucket, client
from godwit.storage.object_store import ObjectStore
from godwit.storage.store import Store

Location: TypeAlias = Store | str | PathLike[str]
Purpose = Literal["checkpoint", "sink"]

_WILD: Final = re.compile(r"[*?\[\]{}]")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(.*)", re.DOTALL)
_MOUNTS = Path("/proc/self/mounts")
_REMOTE: Final = re.compile(
    r"(nfs|cifs|smb|afs|ceph|gluster|lustre|beegfs|gpfs).*|fuse(\.(?!fuse-overlayfs).*)?"
)
_USE: Final[Mapping[Purpose, str]] = {
    "checkpoint": "use a local path, a file: URL, or an object store: s3://, gs:// or az://",
    "sink": "use a local path, a file: URL, or an object store: s3://, gs:// or az://",
}
_NEEDS: Final[Mapping[Purpose, str]] = {
    "checkpoint": "Publishing an epoch needs an exclusive create that is atomic and durable",
    "sink": "Delivering an epoch needs an exclusive create that is atomic and durable",
}
_MEANT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("s3a", "s3n"), "s3://bucket/prefix"),
    "gcs": "gs://bucket/prefix",
    **dict.fromkeys(("abfs", "abfss", "azure", "wasb", "wasbs"), "az://container/prefix"),
}


def open_store(location: Location, *, to_write: bool = False, durable: bool | None = None) -> Store:
    """The store of a checkpoint that a path or URL names; a store is one already.

    Where there is a filesystem that does not qualify, ConfigError says so: for one that is mounted,
    only if it is to be written. `durable` says whether writing waits for the disk: of None, a store
    does as before, and one that a path names does. A store that is given is held to the same.

    >>> str(open_store("file:///data/my%20query"))
    '/data/my query'
    >>> open_store("s3://bucket/query")
    ObjectStore(bucket=Bucket(scheme='s3', name='bucket'), prefix='query')
    >>> open_store("s3a://bucket/query")
    Traceback (most recent call last):
    ...
    godwit.errors.ConfigError: s3a://bucket/query: the filesystem 's3a' does not qualify for a \
checkpoint; write s3://bucket/prefix
    """
    store = location if isinstance(location, Store) else _open(location)
    if isinstance(store, LocalStore):
        if to_write and not store.network:
            _check_mounted(str(store), store.root, "checkpoint")
        return store if durable in (None, store.durable) else replace(store, durable=durable)
    if durable is False:
        raise ConfigError(f"{store}: this store always waits until files are durable")
    return store


def object_store(url: str, *, endpoint: str | None = None, **options: str | bool) -> Store:
    """A checkpoint in an object store, reached otherwise than the environment says.

    `url` is `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`. `endpoint` is
    the address of a server that is not the provider's own. Further options are the fields of
    obstore's `S3Config`, `GCSConfig` or `AzureConfig`, such as `region`, `access_key_id` and
    `secret_access_key`. What you leave out comes from the environment, or from the host's role.

    >>> import godwit as gw
    >>> store = gw.object_store("s3://bucket/query", endpoint="http://minio:9000", region="eu")
    >>> print(store)  # job.start(store)
    s3://bucket/query
    """
    if _scheme(_text(url, "checkpoint")) not in _OBJECTS:
        raise ConfigError(
            f"{url}: names no object store; write s3://bucket/prefix, gs://bucket/prefix or "
            "az://container/prefix"
        )
    store = _open_objects(url, endpoint, options)
    client(store.bucket)  # so that an option that does not exist is named here
    return store


def local_store(path: str | PathLike[str], *, network: bool = False) -> Store:
    """A checkpoint in a directory; with `network`, also on a mounted network filesystem.

    All hosts must see a file as soon as one has written it, and NFS, CephFS and Lustre do so only
    if they are mounted for that: see "Network filesystems" in docs/guide/deploying.md.

    >>> import godwit as gw
    >>> print(gw.local_store("/mnt/shared/query", network=True))
    /mnt/shared/query
    """
    return LocalStore(_path(_text(path, "checkpoint"), "checkpoint"), network=network)


def local_directory(location: str | PathLike[str], purpose: Purpose) -> Path:
    """The absolute path that a location to write to names, which must be on a local filesystem."""
    text = _text(location, purpose)
    path = _path(text, purpose)
    _check_mounted(text, path, purpose)
    return path


def place_of_files(location: Location) -> Path | Store:
    """Where the files of a sink go: to a directory of a filesystem, or to a store of another kind.

    >>> place_of_files("file:///data/out"), str(place_of_files("s3://bucket/out"))
    (PosixPath('/data/out'), 's3://bucket/out')
    """
    if isinstance(location, LocalStore):
        return location.root if location.network else local_directory(location.root, "sink")
    if isinstance(location, Store):
        return location
    text = _text(location, "sink")
    return _open_objects(text) if _scheme(text) in _OBJECTS else local_directory(text, "sink")


def _text(location: str | PathLike[str], purpose: Purpose) -> str:
    if not isinstance(location, str | PathLike):
        raise ConfigError(f"a {purpose} needs a location, not {location!r}; {_USE[purpose]}")
    return fspath(location)


def _scheme(text: str) -> str:
    return match[1].lower() if (match := _SCHEME.match(text)) else "file"


def _open(location: str | PathLike[str]) -> Store:
    text = _text(location, "checkpoint")
    scheme = _scheme(text)
    if (opened := _STORES.get(scheme)) is None:
        raise _unfit(text, scheme, "checkpoint")
    return opened(text)


def _open_local(text: str) -> Store:
    return LocalStore(_path(text, "checkpoint"))


def _open_objects(
    text: str, endpoint: str | None = None, options: Mapping[str, object] | None = None
) -> ObjectStore:
    scheme, _, rest = text.partition(":")
    bucket, *parts = rest.removeprefix("//").split("/")
    if "@" in bucket or ":" in bucket:
        raise ConfigError(
            f"a URL such as {scheme}://bucket/prefix holds no credentials; set them in the "
            "environment, or by gw.object_store"
        )
    if not rest.startswith("//") or not bucket:
        raise ConfigError(
            f"{text}: names no bucket; write {scheme}://bucket/prefix, as a str and not as a Path"
        )
    _check_tame(text, text)
    prefix = "/".join(filter(None, parts))
    return ObjectStore(Bucket.of(scheme.lower(), bucket, endpoint, options or {}), prefix)


_OBJECTS: Final = ("s3", "gs", "az")

# What opens the locations of each scheme; a new store is one line here.
_STORES: Final[Mapping[str, Callable[[str], Store]]] = {
    "file": _open_local,
    **dict.fromkeys(_OBJECTS, _open_objects),
}


def _path(text: str, purpose: Purpose) -> Path:
    if not text:
        raise ConfigError(f"a {purpose} needs a location; {_USE[purpose]}")
    match = _SCHEME.match(text)
    if match is None:
        path = Path(text).absolute()
    elif match[1].lower() == "file":
        path = _path_of_url(text, match[2])
    else:
        raise _unfit(text, match[1], purpose)
    _check_tame(text, str(path))
    return path


def _check_tame(text: str, path: str) -> None:
    if wild := _WILD.search(path):
        raise ConfigError(
            f"{text}: holds '{wild[0]}', which Spark takes for a pattern; use another path"
        )


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
    no = f"{text}: the filesystem '{filesystem}' does not qualify for a {purpose}"
    if meant := _MEANT.get(filesystem.lower()):
        return ConfigError(f"{no}; write {meant}")
    if _REMOTE.fullmatch(filesystem):
        return ConfigError(
            f"{no} unless you say how it is mounted; give gw.local_store(path, network=True) in "
            "place of the path, and mount it as docs/guide/deploying.md says"
        )
    return ConfigError(f"{no}; {_USE[purpose]}. {_NEEDS[purpose]}")


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
