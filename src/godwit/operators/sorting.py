"""Records grouped by key, those of a key in the order of time and content, without Spark.

Numpy sorts columns of fixed width faster than Spark sorts rows, and only where a key has several
records is there anything to sort.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates.columns import is_number, numbers
from godwit.model.keys import Groups, Hashes, Rows, changes, distinct, flat


def can_sort(schema: pa.Schema) -> bool:
    """Is there an order of all values of these columns in which only equal ones are equal?"""
    return not any(
        pa.types.is_nested(field.type) or pa.types.is_null(field.type) for field in schema
    )


def in_order(
    hashes: Hashes, records: pa.Table, key: pa.Schema, time: str | None, *, ordered: bool
) -> tuple[Groups, pa.Table]:
    """Groups of records, and the records group by group, each in the order of (time, content).

    Nulls come last. `ordered` says that all is sorted already.

    >>> records = pa.table({"k": ["b", "a", "a"], "at": [0, 2, 1], "x": [0.5, -0.0, 0.0]})
    >>> key, hashes = pa.schema({"k": pa.string()}), np.array([7, 3, 3], np.uint64)
    >>> groups, sorted = in_order(hashes, records, key, None, ordered=False)
    >>> groups.starts.tolist(), sorted["at"].to_pylist(), sorted["x"].to_pylist()
    ([0, 2], [1, 2, 0], [0.0, -0.0, 0.5])
    """
    groups = distinct(hashes, records.select(key.names), ordered)
    if groups.order is None:
        return groups, records
    names = [name for name in records.column_names if name not in key.names and name != time]
    names = [time, *names] if time and time not in key.names else names
    order = _refined(groups, records.select(names))
    return Groups(None, groups.starts, groups.hashes, groups.keys), records.take(pa.array(order))


def _refined(groups: Groups, columns: pa.Table) -> Rows:
    """The order of groups, with the records of each in the order of some columns."""
    assert groups.order is not None
    order = groups.order.copy()
    sizes = np.diff(groups.starts, append=len(order))
    several = np.repeat(sizes > 1, sizes)
    # Records that no column yet tells apart: their places, and what they have in common.
    places, alike = np.flatnonzero(several), np.repeat(np.arange(len(sizes)), sizes)[several]
    for column in columns.columns:
        if not len(places):
            break
        rows = order[places]
        rank = alike * (len(rows) + 1) + _ranks(flat(column).take(pa.array(rows)))
        found = np.argsort(rank)
        order[places], rank = rows[found], rank[found]
        first = changes(rank)
        tied = ~(first & np.append(first[1:], True))
        places, alike = places[tied], (np.cumsum(first) - 1)[tied]
    return order


def _ranks(array: pa.Array) -> Rows:
    """Numbers below or at the length of a column, in the order of its values; nulls are last."""
    if not is_number(array.type):
        ranks: Rows = pc.rank(array, tiebreaker="dense").to_numpy().astype(np.int64)
        return ranks
    values, given = numbers(array)
    if pa.types.is_floating(array.type):
        values = _in_order_of_bits(values)
    order = np.argsort(values)
    found = np.empty(len(values), np.int64)
    found[order] = np.cumsum(changes(values[order])) - 1
    return found if given is None else np.where(given, found, len(values))


def _in_order_of_bits(values: Any) -> Any:
    """Floats as integers in the same order, in which -0.0 is less than 0.0, and NaNs differ."""
    width = values.dtype.itemsize * 8
    bits = values.view(f"i{width // 8}")
    return bits ^ ((bits >> (width - 1)) & np.array((1 << (width - 1)) - 1, bits.dtype))
