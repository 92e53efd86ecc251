"""A value for each key: an object with an attribute for each column."""

from collections.abc import Sequence
from dataclasses import make_dataclass
from functools import lru_cache
from itertools import compress
from operator import attrgetter, ne
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.model.keys import Groups
from godwit.operators.base import TableView
from godwit.operators.cells.base import Delta, is_other
from godwit.operators.conversion import to_python
from godwit.state.table import DELETE, UPSERT

Mask = npt.NDArray[np.bool_]


class ValueCell:
    """The base of the classes that `cell_class` makes.

    A row exists if it was stored before or a column of it is not None.
    """

    __slots__ = ("_stored",)
    _columns: ClassVar[tuple[str, ...]]
    _stored: bool

    @property
    def exists(self) -> bool:
        return self._stored or any(getattr(self, name) is not None for name in self._columns)

    def clear(self) -> None:
        self._stored = False
        for name in self._columns:
            setattr(self, name, None)


@lru_cache
def cell_class(columns: tuple[str, ...]) -> Any:
    """A class with slots for `columns`; its constructor takes `_stored` and their values.

    Its name has the columns, for Python says it to whoever mistypes one.
    """
    fields = [("_stored", bool), *((name, Any) for name in columns)]
    body = {"_columns": columns}
    made = make_dataclass("State", fields, bases=(ValueCell,), namespace=body, slots=True, eq=False)
    made.__name__ = f"State({', '.join(columns)})"
    return made


class ValueCells:
    """The values of all keys; changes are found by comparing, so that assigning costs nothing."""

    def __init__(self, groups: Groups, view: TableView) -> None:
        self._stored, self._values = view.get(groups.hashes, groups.keys)
        self._fields = list(view.spec.value)
        self._make = cell_class(tuple(view.spec.value.names))
        self._delta = Delta(view.spec, groups)
        self._start = 0
        self._cells: list[Any] = []
        self._before: list[list[Any]] = []

    def open(self, start: int, stop: int) -> Sequence[Any]:
        window = self._values.slice(start, stop - start).columns
        columns = [to_python(column) for column in window]
        self._start = start
        self._cells = list(map(self._make, self._stored[start:stop].tolist(), *columns))
        # The function may change an array in place, so such columns are compared with a copy.
        self._before = [
            to_python(window[i]) if pa.types.is_nested(field.type) else columns[i]
            for i, field in enumerate(self._fields)
        ]
        return self._cells

    def close(self) -> None:
        size = len(self._cells)
        after = [list(map(attrgetter(field.name), self._cells)) for field in self._fields]
        stored = self._stored[self._start : self._start + size]
        exists = np.fromiter(map(attrgetter("_stored"), self._cells), np.bool_, size)
        changed = np.zeros(size, np.bool_)
        for old, new in zip(self._before, after, strict=True):
            changed |= _differ(old, new)
            if not exists.all():
                exists |= [value is not None for value in new]
        changed |= stored & ~exists
        self._add(UPSERT, changed & exists, after)
        self._add(DELETE, changed & ~exists, [])

    def _add(self, op: int, rows: Mask, columns: Sequence[list[Any]]) -> None:
        owners = self._start + np.flatnonzero(rows)
        if len(owners) < len(rows):
            columns = [list(compress(column, rows)) for column in columns]
        self._delta.add(op, owners, columns)

    def delta(self) -> pa.Table:
        return self._delta.table()


def _differ(before: Sequence[Any], after: Sequence[Any]) -> Mask:
    try:
        return np.fromiter(map(ne, before, after), np.bool_, len(before))
    except ValueError:  # an array of numpy's was assigned: it compares element by element
        return np.array([is_other(*pair) for pair in zip(before, after, strict=True)])
