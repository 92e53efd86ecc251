"""Reducing columns of numbers with a ufunc, whose neutral value stands in for nulls."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from godwit.aggregates.base import GroupedRecords
from godwit.aggregates.columns import Mask, Values, column, numbers


@dataclass(frozen=True, slots=True)
class Reduction:
    """A ufunc and its neutral value."""

    ufunc: np.ufunc
    neutral: Any

    def fold(self, records: GroupedRecords, values: pa.Array, old: pa.Array) -> pa.Array:
        """One value a group, from its old one and those of its records."""
        (before, had), (filled, given) = self._filled(old), self._filled(values)
        new = self.ufunc.reduceat(filled, records.starts, dtype=before.dtype)
        new = self.ufunc(new, before, out=new)
        return column(_unsigned(new), where_present(had, given, records), old.type)

    def merge(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """One value a row, from both columns."""
        (left, had), (right, given) = self._filled(old), self._filled(new)
        return column(_unsigned(self.ufunc(left, right)), where_present(had, given), old.type)

    def _filled(self, array: pa.Array) -> tuple[Values, Mask | None]:
        values, given = numbers(array)
        if given is None:
            return values, None
        return np.where(given, values, values.dtype.type(self.neutral)), given


def where_present(
    had: Mask | None, given: Mask | None, records: GroupedRecords | None = None
) -> Mask | None:
    """Where there is a value (None: everywhere): there was one, or one is `given`, with records by
    one of a group's."""
    if had is None or given is None:
        return None
    return had | (given if records is None else np.logical_or.reduceat(given, records.starts))


def _unsigned(values: Values) -> Values:
    """Which of -0.0 and 0.0 is met first must not show."""
    if values.dtype.kind == "f":
        values += 0.0
    return values


ADD = Reduction(np.add, 0)
