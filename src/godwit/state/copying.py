"""A copy of a file, made while the file is written elsewhere; nobody needs it."""

import io
import os
from contextlib import suppress
from typing import Any, BinaryIO, Self


class Copying:
    """A copy at `path`, as long as that works, which is then kept or dropped."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: io.BufferedWriter | None = None
        with suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._file = io.BufferedWriter(io.FileIO(path, "wb"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.drop()

    def of(self, target: BinaryIO) -> io.RawIOBase:
        """What writes to a target and to the copy."""
        return _Both(target, self)

    def write(self, data: Any) -> None:
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError:
                self.drop()

    def keep(self, path: str) -> bool:
        """Give the whole copy a name; False if there is none."""
        if self._file is None:
            return False
        try:
            self._file.close()
            os.rename(self._path, path)
        except OSError:
            self.drop()
            return False
        return True

    def drop(self) -> None:
        if self._file is not None:
            for step in (self._file.close, lambda: os.unlink(self._path)):
                with suppress(OSError):
                    step()
            self._file = None


class _Both(io.RawIOBase):
    def __init__(self, target: BinaryIO, copy: Copying) -> None:
        self._target = target
        self._copy = copy

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._target.write(data)
        self._copy.write(data)
        return memoryview(data).nbytes
