"""A file on its way to the checkpoint, of which a copy stays here."""

import io
import os
from contextlib import suppress
from typing import Any, BinaryIO


class Draft(io.RawIOBase):
    """A file that is written to the checkpoint and here at once; trouble here drops it here."""

    def __init__(self, path: str, target: BinaryIO) -> None:
        self.path = path
        self._target = target
        self._file: BinaryIO | None = None
        with suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._file = open(path, "xb")  # noqa: SIM115

    @property
    def is_whole(self) -> bool:
        return self._file is not None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._target.write(data)
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError:
                self.drop()
        return memoryview(data).nbytes

    def end(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError:
                self.drop()

    def drop(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
            with suppress(OSError):
                os.unlink(self.path)
