"""A list for each key, to which appending is one row."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from godwit.model.keys import Groups
from godwit.operators.cells.base import Delta, Owners
from godwit.operators.cells.read_ahead import ReadAhead, Stored
from godwit.state.table import CLEAR, UPSERT

_ORDINAL_BITS = 32


class ListCell:
    """The list of one key: what was stored, unless it was cleared, then what was appended."""

    __slots__ = ("_ahead", "_appended", "_cleared", "_group", "_stored")

    def __init__(self, ahead: ReadAhead, group: int) -> None:
        self._ahead = ahead
        self._group = group
        self._stored: Stored | None = None  # None if not read yet
        self._appended: list[Any] = []
        self._cleared = False

    def append(self, element: Any) -> None:
        """Add an element at the end: a tuple, or a value if the list has one column."""
        self._appended.append(self._ahead.as_row(element))

    def clear(self) -> None:
        """Remove all elements."""
        self._cleared = True
        self._stored = Stored()
        self._appended = []

    def __iter__(self) -> Iterator[Any]:
        if self._stored is None:
            self._stored = self._ahead.read(self._group)
        return chain(self._stored.values, self._appended)

    def __len__(self) -> int:
        if self._stored is None:
            return self._ahead.count(self._group) + len(self._appended)
        return len(self._stored.values) + len(self._appended)


class ListCells:
    """A position is (epoch + 1, ordinal) in one number: it grows, and appending reads none.

    The positions of an initial state are ordinals alone.
    """

    def __init__(self, epoch: int, groups: Groups, ahead: ReadAhead) -> None:
        self._first = (epoch + 1) << _ORDINAL_BITS
        self._ahead = ahead
        self._delta = Delta(ahead.spec, groups)
        self._start = 0
        self._cells: list[ListCell] = []

    def open(self, start: int, stop: int) -> Sequence[ListCell]:
        self._start = start
        self._cells = [ListCell(self._ahead, group) for group in range(start, stop)]
        return self._cells

    def close(self) -> None:
        cleared = [i for i, cell in enumerate(self._cells) if cell._cleared]
        self._delta.add(CLEAR, self._start + np.array(cleared, np.int64))
        for i, cell in enumerate(self._cells):
            if cell._stored is not None and (changed := cell._stored.changed()):
                self._add(np.full(len(changed), i), *zip(*changed, strict=True))
        self._append()

    def _append(self) -> None:
        appended = [cell._appended for cell in self._cells]
        sizes = np.fromiter(map(len, appended), np.int64, len(appended))
        owners = np.repeat(np.arange(len(sizes)), sizes)
        ordinals = np.arange(len(owners)) - (np.cumsum(sizes) - sizes)[owners]
        self._add(owners, (self._first + ordinals).tolist(), list(chain.from_iterable(appended)))

    def _add(self, owners: Owners, positions: Sequence[int], values: Sequence[Any]) -> None:
        self._delta.add_rows(UPSERT, self._start + owners, positions, values)

    def delta(self) -> pa.Table:
        return self._delta.table()
