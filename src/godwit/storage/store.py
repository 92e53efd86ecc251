"""What Godwit needs of the place where a checkpoint lies: few operations on whole files.

Local disks and object stores have all of them. There is no rename, link, append, lock or clock.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self, runtime_checkable

import pyarrow as pa

CHUNK = 1 << 20

_NUMBERED = re.compile(r"(0|-?[1-9][0-9]*)\.json")


class StoreError(OSError):
    """A store cannot be reached, or refuses: `strerror` says why and what to do, in one sentence.

    `errno` is EACCES or EIO. `status` is the server's answer, if there was one, and `sent` is False
    if the request has surely not reached it. To try again may help: so this is no GodwitError,
    and a task that fails by it is run again.

    >>> import errno
    >>> print(StoreError(errno.EIO, "s3://bucket/log/7: the server did not answer in time"))
    s3://bucket/log/7: the server did not answer in time
    """

    def __init__(
        self, number: int, reason: str, status: int | None = None, sent: bool = True
    ) -> None:
        super().__init__(number, reason)
        self.status = status
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errno, self.strerror, self.status, self.sent)

    def __str__(self) -> str:
        return str(self.strerror)


class UnknownOutcomeError(StoreError):
    """Nobody can tell whether a file was created, or still will be: the answer was lost.

    It is settled as soon as the name is taken, by whomever: create it again, or find it there.
    """


@runtime_checkable
class Store(Protocol):
    """Files by name: parts joined by `/`, relative to where the store is.

    A file appears under its name whole or not at all, and then outlives a loss of power. Of several
    that create a name, one wins. A file that is not there raises FileNotFoundError. `make` comes
    before the first file. Stores are values: they can be pickled and compared, and to have one
    costs nothing. `str` tells people where it is.

    A store subclasses this and writes the methods down to `url`; those below have a default.

    >>> import godwit as gw
    >>> isinstance(gw.local_store("/data/query"), gw.Store)
    True
    """

    __slots__ = ()

    def create(self, name: str, data: bytes) -> None:
        """Create a file; FileExistsError, and nothing changes, if the name is taken.

        UnknownOutcomeError says that the file may be there or appear later; after any other error
        it neither is nor will be. A store over a network asks again when an answer was lost. If it
        then finds the same bytes, it takes them for its own: so creators of a name who must be
        told apart write something of their own, such as an id.
        """
        ...

    def write(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Write a file piece by piece, under a name that nobody else uses.

        It appears when the block ends; if the block raises, nothing appears.
        """
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Write a file over the one that may be there. Only for hints: the last writer wins, and
        a loss of power may take it back."""
        ...

    def read(self, name: str) -> bytes: ...

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """The bytes of a file from `start` on; fewer than `length`, or none, at its end."""
        ...

    def exists(self, name: str) -> bool: ...

    def list_files(self, directory: str) -> list[str]:
        """The names of all files below a directory, in order; none if there is no such directory.

        A name with a part that begins with a dot is not listed.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone already is no error."""
        ...

    def within(self, directory: str) -> Self:
        """The same store, whose names are relative to a directory."""
        ...

    def address(self, name: str = "") -> str:
        """What people call a file, or without a name the store."""
        ...

    def url(self, name: str = "") -> str:
        """What Spark calls it."""
        ...

    # -- with a default ------------------------------------------------------------------------

    def names(self, directory: str) -> list[str]:
        """The first parts of the names below a directory, in order; where there are directories,
        also those without files."""
        start = len(directory) + 1 if directory else 0
        return sorted({name[start:].partition("/")[0] for name in self.list_files(directory)})

    def numbers(self, directory: str) -> list[int]:
        """The numbers n, in order, for which `directory` holds a file n.json."""
        matches = (_NUMBERED.fullmatch(name) for name in self.names(directory))
        return sorted(int(match[1]) for match in matches if match)

    def chunks(self, name: str) -> Iterator[memoryview]:
        """The bytes of a file in pieces, each valid until the next."""
        start = 0
        while data := self.read_range(name, start, CHUNK):
            yield memoryview(data)
            start += len(data)

    def map(self, name: str) -> pa.Buffer:
        """The bytes of a file, read when they are needed where a store can do that."""
        return pa.py_buffer(self.read(name))

    def move(self, name: str, target: str) -> None:
        """Move a file to a new name, which must be free; at no time is it at neither."""
        self.create(target, self.read(name))
        self.delete(name)

    def make(self, directory: str = "") -> None:
        """Make the store, or a directory ahead of its files, where there are directories."""
        return

    def drafts(self, directory: str) -> list[str]:
        """Names, for `delete`, of what writers below a directory are at or left when they died."""
        return []

    def modified(self, name: str) -> float | None:
        """When a file appeared, in seconds since 1970, if the store tells; clocks differ, so no
        decision reads it."""
        return None

    def local_path(self, name: str = "") -> Path | None:
        """Where a file is on this machine; only to link to it, or for programs that need a path."""
        return None

    def __str__(self) -> str:
        return self.address()
