"""The order in which `ordered` operators get their records: by hash, key, time and content."""

from typing import Any

import pyarrow as pa

from godwit.operators.base import Operator
from godwit.state.table import HASH


def in_order(records: pa.Table, operator: Operator) -> pa.Table:
    """The records of a worker in the order that Spark gives them, with nulls last."""
    first = [HASH, *operator.key.names, *([operator.time] if operator.time else [])]
    names = list(dict.fromkeys([*first, *records.column_names]))
    places = pa.array(range(records.num_rows), pa.int64())
    order = {name: _sortable(records.column(name)) for name in names} | {"_place": places}
    placed = pa.table(order).sort_by([(name, "ascending") for name in names])
    return records.take(placed.column("_place"))


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """The column, or if it is nested, which Arrow does not sort, numbers in its order."""
    if not pa.types.is_nested(column.type):
        return column
    keys = [_key(value) for value in column.to_pylist()]
    ranks = {key: rank for rank, key in enumerate(sorted({*keys} - {()}))}
    return pa.array([ranks.get(key) for key in keys], pa.int64())


def _key(value: Any) -> tuple[Any, ...]:
    """A value inside of which nulls come first, as in Spark."""
    if value is None:
        return ()
    if isinstance(value, dict):
        return (tuple(map(_key, value.values())),)
    if isinstance(value, list | tuple):
        return (tuple(map(_key, value)),)
    return (value,)
