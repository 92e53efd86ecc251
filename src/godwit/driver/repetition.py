"""Whether folding records before the shuffle pays, judged by the epochs before."""

from collections import deque
from typing import Final

_EPOCHS: Final = 5  # that are remembered
_REPEATS: Final = 6  # records for each row that they change, from which on it pays
_STAGE: Final = 50_000  # records that take as long as the additional stage


class Repetition:
    """How many records the last epochs had that had any, and how many rows of state they changed.

    >>> repeats = Repetition()
    >>> repeats.add(records=4_000_000, rows=1_000_000)
    >>> repeats.are_many
    False
    >>> repeats.add(records=4_000_000, rows=100)
    >>> repeats.add(records=4_000_000, rows=100)
    >>> repeats.are_many
    True
    """

    def __init__(self) -> None:
        self._epochs: deque[tuple[int, int]] = deque(maxlen=_EPOCHS)

    def add(self, records: int, rows: int) -> None:
        if records:
            self._epochs.append((records, rows))

    @property
    def are_many(self) -> bool:
        """Does it pay to fold them early?"""
        records = sum(records for records, _ in self._epochs)
        rows = sum(rows for _, rows in self._epochs)
        return records > _REPEATS * rows + _STAGE * len(self._epochs)
