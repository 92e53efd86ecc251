"""Which whole columns a column takes: of Arrow, of numpy, or lists of Python values.

As of single values, none that Arrow would cut or reinterpret.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from godwit.model.keys import flat
from godwit.operators.conversion import MisfitError, to_arrow

_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (pa.types.is_boolean,),
    (pa.types.is_integer,),
    (pa.types.is_floating, pa.types.is_integer),
    (pa.types.is_decimal,),
    (pa.types.is_string, pa.types.is_large_string),
    (pa.types.is_binary, pa.types.is_large_binary),
    (pa.types.is_date,),
    (pa.types.is_timestamp,),
    (pa.types.is_duration,),
)


class UnfitColumnsError(ValueError):
    """Columns that are not those that were asked for."""


def table_of(given: Any, schema: pa.Schema, rows: int | None = None) -> pa.Table:
    """Columns by name as a table; they must be those of `schema`, and of as many rows.

    >>> schema = pa.schema({"n": pa.int64(), "mean": pa.float64()})
    >>> table_of({"mean": np.array([1, 2]), "n": [3, None]}, schema).to_pylist()
    [{'n': 3, 'mean': 1.0}, {'n': None, 'mean': 2.0}]
    >>> table_of({"mean": np.array([1, 2]), "n": np.array([0.5, 1])}, schema)
    Traceback (most recent call last):
    godwit.operators.column_types.UnfitColumnsError: column 'n': double is no int64
    """
    if isinstance(given, pa.Table | pa.RecordBatch):
        names = given.schema.names
        if len(set(names)) < len(names):
            raise UnfitColumnsError(f"of the columns {', '.join(names)} two have one name")
        given = dict(zip(names, given.columns, strict=True))
    if not isinstance(given, Mapping):
        raise UnfitColumnsError(
            f"a {type(given).__name__} is no Arrow table and no dict of columns"
        )
    for name in schema.names:
        if name not in given:
            raise UnfitColumnsError(f"column '{name}' is missing")
    for name in given:
        if name not in schema.names:
            wanted = ", ".join(schema.names)
            raise UnfitColumnsError(f"column {name!r} is not one of: {wanted}")
    arrays = [_column(given[field.name], field) for field in schema]
    for field, array in zip(schema, arrays, strict=True):
        rows = len(array) if rows is None else rows
        if len(array) != rows:
            raise UnfitColumnsError(f"column '{field.name}' has {len(array)} rows, not {rows}")
    return pa.table(arrays, schema=schema)


def _column(values: Any, field: pa.Field) -> pa.Array:
    where = f"column '{field.name}'"
    try:
        array = _array(values, field)
        if array.type != field.type:
            if not _takes(field.type, array.type):
                raise UnfitColumnsError(f"{where}: {array.type} is no {field.type}")
            array = array.cast(field.type)
    except MisfitError as error:
        raise UnfitColumnsError(str(error)) from None
    except pa.ArrowException as error:
        raise UnfitColumnsError(f"{where}: {error}") from None
    if not field.nullable and array.null_count:
        raise UnfitColumnsError(f"{where}: null in a column that is NOT NULL")
    return array


def _array(values: Any, field: pa.Field) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return flat(values)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, list | tuple):
        return to_arrow(values, field)
    if not isinstance(values, np.ndarray):
        kind = type(values).__name__
        raise UnfitColumnsError(
            f"column '{field.name}' is a {kind}, and must be an array of numpy or Arrow, or a list"
        )
    if values.dtype == object:
        return to_arrow(values.tolist(), field)
    array = pa.array(values)
    if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(field.type):
        return array.cast(pa.timestamp(array.type.unit, field.type.tz))  # numpy knows no zones
    return array


def _takes(kind: pa.DataType, given: pa.DataType) -> bool:
    """Does a cast keep what the values mean?"""
    if pa.types.is_null(given):
        return True
    if pa.types.is_list(kind):
        return pa.types.is_list(given) and _takes(kind.value_type, given.value_type)
    if pa.types.is_map(kind):
        both = pa.types.is_map(given) and _takes(kind.key_type, given.key_type)
        return both and _takes(kind.item_type, given.item_type)
    if pa.types.is_struct(kind):
        if not pa.types.is_struct(given) or [f.name for f in given] != [f.name for f in kind]:
            return False
        return all(_takes(to.type, of.type) for to, of in zip(kind, given, strict=True))
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(given):
        return (kind.tz is None) is (given.tz is None)
    return any(
        family[0](kind) and any(belongs(given) for belongs in family) for family in _FAMILIES
    )
