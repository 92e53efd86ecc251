"""A map for each key, into which a put is one row."""

from collections.abc import ItemsView, Iterator, KeysView, MutableMapping, Sequence, ValuesView
from typing import Any

import numpy as np
import pyarrow as pa

from godwit.model.keys import Groups
from godwit.operators.cells.base import Delta
from godwit.operators.cells.read_ahead import ReadAhead, Stored
from godwit.state.table import CLEAR, DELETE, UPSERT

_DELETED = object()


class MapCell(MutableMapping[Any, Any]):
    """The map of one key: what was stored, unless it was cleared, with the changes upon it."""

    __slots__ = ("_ahead", "_changes", "_cleared", "_entries", "_group", "_stored")

    def __init__(self, ahead: ReadAhead, group: int) -> None:
        self._ahead = ahead
        self._group = group
        self._stored = Stored()
        self._entries: dict[Any, Any] | None = None  # with the changes; None if not read yet
        self._changes: dict[Any, Any] = {}
        self._cleared = False

    def __setitem__(self, key: Any, value: Any) -> None:
        key, value = self._ahead.as_key(key), self._ahead.as_row(value)
        self._changes[key] = value
        if self._entries is not None:
            self._entries[key] = value

    def __delitem__(self, key: Any) -> None:
        """Remove an entry, if it is there, without reading the map."""
        self._changes[key] = _DELETED
        if self._entries is not None:
            self._entries.pop(key, None)

    def clear(self) -> None:
        """Remove all entries."""
        self._cleared = True
        self._stored = Stored()
        self._entries = {}
        self._changes = {}

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, _DELETED)
        if value is _DELETED:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        """The value under `key`; one that was just put there is not read."""
        if self._entries is None:
            value = self._changes.get(key, _DELETED)
            if value is not _DELETED:
                return value
        return self._read().get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._read()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def keys(self) -> KeysView[Any]:
        return self._read().keys()

    def values(self) -> ValuesView[Any]:
        return self._read().values()

    def items(self) -> ItemsView[Any, Any]:
        return self._read().items()

    def _read(self) -> dict[Any, Any]:
        if self._entries is None:
            self._stored = self._ahead.read(self._group)
            self._entries = dict(zip(self._stored.subs, self._stored.values, strict=True))
            for key, value in self._changes.items():
                if value is _DELETED:
                    self._entries.pop(key, None)
                else:
                    self._entries[key] = value
        return self._entries


class MapCells:
    """The maps of all keys of an epoch."""

    def __init__(self, groups: Groups, ahead: ReadAhead) -> None:
        self._ahead = ahead
        self._delta = Delta(ahead.spec, groups)
        self._start = 0
        self._cells: list[MapCell] = []

    def open(self, start: int, stop: int) -> Sequence[MapCell]:
        self._start = start
        self._cells = [MapCell(self._ahead, group) for group in range(start, stop)]
        return self._cells

    def close(self) -> None:
        cleared: list[int] = []
        deleted: list[tuple[int, Any]] = []
        put: list[tuple[int, Any, Any]] = []
        for group, cell in enumerate(self._cells, self._start):
            if cell._cleared:
                cleared.append(group)
            for key, value in cell._changes.items():
                if value is _DELETED:
                    deleted.append((group, key))
                else:
                    put.append((group, key, value))
            for key, value in cell._stored.changed():
                if key not in cell._changes:
                    put.append((group, key, value))
        self._delta.add(CLEAR, np.array(cleared, np.int64))
        self._add(DELETE, deleted)
        self._add(UPSERT, put)

    def _add(self, op: int, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            owners, *columns = zip(*rows, strict=True)
            self._delta.add_rows(op, np.array(owners), *columns)

    def delta(self) -> pa.Table:
        return self._delta.table()
