"""Reading lists and maps of many keys with few scans."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from godwit.model.keys import Groups
from godwit.operators.base import TableView
from godwit.operators.cells.base import is_other
from godwit.operators.conversion import elements, namer

_FIRST_KEYS = 16
_GROWTH = 4
_ROWS = 1 << 16
_MOST_KEYS = 1 << 14


@dataclass(frozen=True, slots=True)
class Stored:
    """The rows of one key: sub-keys and values, and copies of those values that are mutable."""

    subs: Sequence[Any] = ()
    values: Sequence[Any] = ()
    copies: Sequence[Any] = ()

    def changed(self) -> list[tuple[Any, Any]]:
        """Sub-keys and values of the rows whose value was changed in place."""
        if not self.copies:
            return []
        rows = zip(self.subs, self.values, self.copies, strict=True)
        return [(sub, value) for sub, value, copy in rows if is_other(copy, value)]


@dataclass(slots=True)
class _Block:
    """The rows of some keys, converted when the first of them is read."""

    start: int
    bounds: list[int]
    rows: pa.Table
    stored: Stored | None = None


class ReadAhead:
    """The rows of one key at a time, read for the keys behind it as well.

    A scan costs about the same for one key as for hundreds. How many keys are read ahead grows
    from scan to scan, as long as they have some ten thousand rows: one key may have more than that.
    Keys that come `in_order` leave what was read for earlier ones; else everything read is kept.
    """

    def __init__(self, groups: Groups, view: TableView, in_order: bool = True) -> None:
        self.spec = view.spec
        self.as_key = namer(view.spec.sub, "Key")
        self.as_row = namer(view.spec.value, "Row")
        self._groups = groups
        self._view = view
        self._in_order = in_order
        self._mutable = any(pa.types.is_nested(field.type) for field in view.spec.value)
        self._keys = _FIRST_KEYS
        self._blocks: dict[int, _Block] = {}  # by group

    def count(self, group: int) -> int:
        """The number of rows of a key."""
        _, start, stop = self._find(group)
        return stop - start

    def read(self, group: int) -> Stored:
        """The rows of a key, in the order of their sub-keys."""
        block, start, stop = self._find(group)
        if block.stored is None:
            block.stored = self._convert(block.rows)
        every = block.stored
        return Stored(every.subs[start:stop], every.values[start:stop], every.copies[start:stop])

    def _find(self, group: int) -> tuple[_Block, int, int]:
        if group not in self._blocks:
            self._scan(group)
        block = self._blocks[group]
        at = group - block.start
        return block, block.bounds[at], block.bounds[at + 1]

    def _scan(self, group: int) -> None:
        """Read a block of keys; out of order, blocks of one size do not overlap."""
        start = group if self._in_order else group // self._keys * self._keys
        stop = min(start + self._keys, len(self._groups.hashes))
        owners, rows = self._view.scan(
            self._groups.hashes[start:stop], self._groups.keys.slice(start, stop - start)
        )
        bounds = np.searchsorted(owners, np.arange(stop - start + 1)).tolist()
        if self._in_order:
            self._blocks.clear()
        self._blocks |= dict.fromkeys(range(start, stop), _Block(start, bounds, rows))
        affordable = _ROWS * (stop - start) // max(len(owners), 1)
        self._keys = max(1, min(self._keys * _GROWTH, affordable, _MOST_KEYS))

    def _convert(self, rows: pa.Table) -> Stored:
        values = rows.select(self.spec.value.names)
        return Stored(
            list(elements(rows.select(self.spec.sub.names), "Key")),
            list(elements(values, "Row")),
            list(elements(values, "Row")) if self._mutable else (),
        )
