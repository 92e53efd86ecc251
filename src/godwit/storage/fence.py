"""The fence between drivers on a local filesystem: each changes files through a directory of its
own, which a newer one takes away."""

import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from godwit.errors import ConfigError
from godwit.storage.local import LocalStore
from godwit.storage.store import Store


class Fence:
    """The staging directory of one generation, below `directory`.

    Changes through `store` succeed until `close_older` of a later generation: from then on, and
    whatever instruction this process was at, they fail with FileNotFoundError, FileExistsError or
    NotADirectoryError and have changed nothing.
    """

    def __init__(self, store: Store, directory: str, generation: int) -> None:
        if not isinstance(store, LocalStore):
            raise ConfigError(f"{store}: no driver can fence others off here; use a local path")
        self._staging = store.root / directory / f"{generation}-{uuid.uuid4().hex}"
        self._staging.mkdir()
        self._generation = generation
        self.store = replace(store, staging=self._staging)

    @property
    def is_open(self) -> bool:
        return self._staging.is_dir()

    def withdraw(self) -> None:
        """Leave no trace, since another driver took the generation."""
        shutil.rmtree(self._staging, ignore_errors=True)

    def close_older(self) -> None:
        """Take the staging directories of all older generations away.

        A file stays in the place of each: the JVM of an older driver would make the directory
        again, in order to write its log there.
        """
        for place in sorted(self._staging.parent.iterdir()):
            number = place.name.partition("-")[0]
            if number.isdecimal() and int(number) < self._generation:
                _close(place)

    def directory(self, name: str) -> "FencedDirectory":
        """A directory of the store, for a program that changes it on its own."""
        path = self._staging / name
        path.symlink_to(os.path.relpath(self.store.root / name, self._staging))
        return FencedDirectory(path, self.store)


class FencedDirectory:
    """A directory as one driver must address it: the `path` ends with the driver's staging."""

    def __init__(self, path: Path, store: LocalStore) -> None:
        self.path = path
        self._store = store

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def fill(self, write: Callable[[LocalStore], None]) -> None:
        """Write files into an empty directory, where they appear all at once."""
        draft = replace(self._store, root=self.path.with_name(uuid.uuid4().hex), staging=None)
        draft.make()
        write(draft)
        self._store.put_directory(draft.root, self.path.name)


def _close(staging: Path) -> None:
    while not staging.is_file():
        closed = staging.with_name(f".{uuid.uuid4().hex}")
        with suppress(FileNotFoundError):  # closed by another driver at the same time
            staging.rename(closed)
        if closed.is_file():
            closed.unlink()
        shutil.rmtree(closed, ignore_errors=True)
        with suppress(FileExistsError):
            staging.touch(exist_ok=False)
