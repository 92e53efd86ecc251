"""Whether a directory can be written, and whether it lies in another: asked before a start."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from godwit.errors import ConfigError
from godwit.storage.local import LocalStore
from godwit.storage.store import Store

Place: TypeAlias = Store | os.PathLike[str] | str


def check_writable(place: Place, what: str) -> None:
    """Raise ConfigError unless files can be made in `place`, which may not be there yet.

    It is tried where the directory is or would be made, and nothing of that stays.
    """
    path = _path(place)
    if path is None:
        return
    try:
        there = next(one for one in (path, *path.parents) if os.path.lexists(one))
        os.rmdir(tempfile.mkdtemp(prefix=".godwit-", dir=there))
        os.scandir(there).close()
    except NotADirectoryError:
        raise _unfit(what, path, f"{there} is a file") from None
    except OSError as error:
        raise _unfit(what, path, f"{error.strerror}, at {there}") from None


def local_path(place: Place | None) -> Path | None:
    """The path of a place, or of a URL, that is on a local disk.

    >>> local_path("file:/data/a%20b"), local_path("/data"), local_path("s3://bucket/data")
    (PosixPath('/data/a b'), PosixPath('/data'), None)
    """
    if not place:
        return None
    if not isinstance(place, str):
        return _path(place)
    url = urlsplit(place)
    if url.scheme == "file":
        return Path(unquote(url.path))
    return None if url.scheme else Path(place).absolute()


@contextmanager
def marked(path: Path) -> Iterator[str]:
    """A file in a directory, or where that would be made, as long as the block runs."""
    there = next(one for one in (path, *path.parents) if one.is_dir())
    with tempfile.NamedTemporaryFile(prefix=".godwit-", dir=there) as file:
        yield file.name


def is_marked(marker: str) -> bool:
    """Is the file of a mark, made by another process, here?"""
    return os.path.exists(marker)


def lies_in(place: Place, directory: Place) -> bool:
    """Is a place a directory, or below it? Links are followed.

    >>> lies_in("/data/query/checkpoint", "/data/query"), lies_in("/data/query", "/data/q")
    (True, False)
    """
    path, parent = _path(place), _path(directory)
    if path is None or parent is None:
        return path is parent and f"{place}/".startswith(f"{directory}/")
    return parent in (path, *path.parents)


def _path(place: Place) -> Path | None:
    if isinstance(place, LocalStore):
        place = place.root
    return None if isinstance(place, Store) else Path(place).resolve()


def _unfit(what: str, path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"the {what} {path} cannot be written: {reason}. Name a directory that this process may "
        "make and write to"
    )
