"""Arrow columns as lists of Python values and back, strictly and in bulk.

Timestamps are aware datetimes in UTC, timestamps without a zone naive ones, decimals `Decimal`,
arrays lists, structs dicts, maps lists of pairs.
"""

import datetime
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from godwit.aggregates.columns import numbers
from godwit.model.keys import flat
from godwit.operators.python_types import WrongTypeError, check_types

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.UTC)
_SLICE = 1 << 16
_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)


class MisfitError(ValueError):
    """The value at `index` does not fit `where` it should go."""

    def __init__(self, index: int, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.index = index
        self.where = where
        self.reason = reason


def to_python(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column.

    >>> to_python(pa.chunked_array([pa.array([0, None], pa.timestamp("us", tz="UTC"))]))
    [datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), None]
    """
    array = flat(column)
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _datetimes(array)
    if pa.types.is_date32(kind) or pa.types.is_decimal(kind):
        return list(array.to_numpy(zero_copy_only=False).tolist())
    return list(array.to_pylist())


def _datetimes(array: pa.Array) -> list[Any]:
    values, given = numbers(array)
    if given is not None:
        values = np.where(given, values, 0)
    epoch = _EPOCH if array.type.tz is None else _EPOCH_UTC
    moments: list[Any] = list(map(epoch.__add__, values.view("m8[us]").tolist()))
    if given is not None:
        for i in np.flatnonzero(~given).tolist():
            moments[i] = None
    return moments


@lru_cache
def row_class(kind: str, names: tuple[str, ...]) -> Any:
    """A class of named tuples; it is made in the process that needs it and never pickled."""
    return namedtuple(kind, names)


def rows(table: pa.Table, kind: str) -> Iterator[Any]:
    """The rows of a table as named tuples, converted some ten thousand at a time."""
    make = row_class(kind, tuple(table.column_names))._make
    return chain.from_iterable(map(make, piece) for piece in _pieces(table))


def elements(table: pa.Table, kind: str) -> Iterator[Any]:
    """The rows of a table: values if it has one column, else named tuples.

    >>> list(elements(pa.table({"n": [1, 2]}), "Row"))
    [1, 2]
    >>> list(elements(pa.table({"n": [1], "m": [2]}), "Row"))
    [Row(n=1, m=2)]
    """
    if table.num_columns > 1:
        return rows(table, kind)
    return iter(to_python(table.column(0)))


def namer(schema: pa.Schema, kind: str) -> Callable[[Any], Any]:
    """Makes of a row as a user gives it what `elements` gives: of a tuple a named one."""
    if len(schema) == 1:
        return lambda row: row
    make = row_class(kind, tuple(schema.names))._make
    return lambda row: make(row) if isinstance(row, tuple) else row


def _pieces(table: pa.Table) -> Iterator[Iterable[tuple[Any, ...]]]:
    for start in range(0, table.num_rows, _SLICE):
        piece = table.slice(start, _SLICE)
        columns = [to_python(column) for column in piece.columns]
        yield zip(*columns, strict=True) if columns else [()] * piece.num_rows


def tuples(rows: Sequence[Any], schema: pa.Schema) -> list[Sequence[Any]]:
    """The columns of rows, each of which must be a tuple with one value a field."""
    width = len(schema)
    all_tuples = all(issubclass(kind, tuple) for kind in set(map(type, rows)))
    if not all_tuples or set(map(len, rows)) - {width}:
        wrong = next(i for i, row in enumerate(rows) if not _is_tuple(row, width))
        names = ", ".join(schema.names)
        raise MisfitError(wrong, f"columns {names}", f"{rows[wrong]!r} is no tuple of {width}")
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _is_tuple(row: Any, width: int) -> bool:
    return isinstance(row, tuple) and len(row) == width


def to_arrow(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """A column of the given values; what Arrow would round, cut or reinterpret is refused.

    >>> to_arrow([1, 2.5], pa.field("n", pa.int64()))
    Traceback (most recent call last):
    godwit.operators.conversion.MisfitError: column 'n': 2.5 (float) is no int64
    """
    try:
        return _convert(values, field)
    except _REFUSALS as refusal:
        raise _misfit(values, field, refusal) from None


def _convert(values: Sequence[Any], field: pa.Field) -> pa.Array:
    check_types(values, field.type)
    array = pa.array(values, field.type)
    if not field.nullable and array.null_count:
        raise WrongTypeError("null in a column that is NOT NULL")
    return array


def _misfit(values: Sequence[Any], field: pa.Field, refusal: Exception) -> MisfitError:
    """Find the value that was refused, one by one."""
    where = f"column '{field.name}'"
    for i, value in enumerate(values):
        try:
            _convert([value], field)
        except WrongTypeError as error:
            return MisfitError(i, where, str(error))
        except _REFUSALS as error:
            return MisfitError(i, where, f"{value!r} is no {field.type}: {error}")
    return MisfitError(0, where, str(refusal))
