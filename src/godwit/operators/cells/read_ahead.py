"""Reading lists and maps of many keys with few scans."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from godwit.operators.base import TableView
from godwit.operators.cells.base import is_other
from godwit.operators.convert import elements, namer
from godwit.state.keys import Groups

_FIRST_KEYS = 16
_GROWTH = 4
_ROWS = 1 << 16


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


class ReadAhead:
    """The rows of one key at a time, in the order of keys, read for the keys behind it as well.

    A scan costs about the same for one key as for hundreds. How many keys are read ahead grows
    from scan to scan, as long as they have some ten thousand rows: one key may have more than that.
    """

    def __init__(self, groups: Groups, view: TableView) -> None:
        self._groups = groups
        self._view = view
        self.as_key = namer(view.spec.sub, "Key")
        self.as_row = namer(view.spec.value, "Row")
        self._mutable = any(pa.types.is_nested(field.type) for field in view.spec.value)
        self._keys = _FIRST_KEYS
        self._start = 0
        self._bounds = [0]
        self._rows = pa.table({})
        self._stored: Stored | None = None

    def count(self, group: int) -> int:
        """The number of rows of a key."""
        start, stop = self._span(group)
        return stop - start

    def read(self, group: int) -> Stored:
        """The rows of a key, in the order of their sub-keys."""
        start, stop = self._span(group)
        if self._stored is None:
            self._stored = self._convert()
        every = self._stored
        return Stored(every.subs[start:stop], every.values[start:stop], every.copies[start:stop])

    def _span(self, group: int) -> tuple[int, int]:
        at = group - self._start
        if not 0 <= at < len(self._bounds) - 1:
            self._scan(group)
            at = 0
        return self._bounds[at], self._bounds[at + 1]

    def _scan(self, start: int) -> None:
        stop = min(start + self._keys, len(self._groups.hashes))
        owners, self._rows = self._view.scan(
            self._groups.hashes[start:stop], self._groups.keys.slice(start, stop - start)
        )
        self._start = start
        self._bounds = np.searchsorted(owners, np.arange(stop - start + 1)).tolist()
        self._stored = None
        affordable = _ROWS * (stop - start) // max(len(owners), 1)
        self._keys = max(1, min(self._keys * _GROWTH, affordable))

    def _convert(self) -> Stored:
        spec = self._view.spec
        values = self._rows.select(spec.value.names)
        return Stored(
            list(elements(self._rows.select(spec.sub.names), "Key")),
            list(elements(values, "Row")),
            list(elements(values, "Row")) if self._mutable else (),
        )
