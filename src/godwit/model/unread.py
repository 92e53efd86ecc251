"""Files that a query has not read yet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from godwit.model.text import duration


@dataclass(frozen=True, slots=True)
class UnreadFiles:
    """How many files wait in the directories of a query's sources; the oldest for `seconds`.

    >>> print(UnreadFiles(3, 71.6))
    3 files waiting, the oldest for 1 min 12 s
    >>> print(UnreadFiles(0))
    no files waiting
    """

    files: int
    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.files:
            return "no files waiting"
        if self.files == 1:
            return f"1 file waiting for {duration(self.seconds)}"
        return f"{self.files:,} files waiting, the oldest for {duration(self.seconds)}"

    def to_json(self) -> dict[str, Any]:
        return {"files": self.files, "seconds": self.seconds}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["files"], data["seconds"])
