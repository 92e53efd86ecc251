"""How large a measurement is: in full, or small, to try it out."""

from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scale:
    """
    >>> Scale(full=True).pick(1_000_000, 100), Scale(full=False).pick(1_000_000, 100)
    (1000000, 100)
    """

    full: bool

    def pick(self, full: T, small: T) -> T:
        """A size: the one for serious measuring, or the one to try it out."""
        return full if self.full else small
