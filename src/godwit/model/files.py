"""Files of state and outputs as the log names them, and which part of the hash space they cover."""

from dataclasses import dataclass
from typing import Any, Final

EVERYWHERE: Final = -1
"""All slices of a segment; a set of slices is an integer with a bit for each."""


@dataclass(frozen=True, slots=True)
class FileRef:
    """A committed or receipted file: where it is, how large, and what its bytes sum up to."""

    name: str  # relative to the checkpoint's directory `godwit/`
    rows: int
    bytes: int
    crc: int

    def to_json(self) -> list[Any]:
        return [self.name, self.rows, self.bytes, self.crc]

    @classmethod
    def from_json(cls, data: list[Any]) -> "FileRef":
        return cls(*data)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is durable under its final name, and how many of its rows each segment has."""

    ref: FileRef
    segment_rows: tuple[int, ...]
