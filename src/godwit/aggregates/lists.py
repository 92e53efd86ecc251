"""Columns of lists as their elements and back: state with several values a key."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.model.keys import Integers, Rows


def elements(lists: pa.Array) -> tuple[Rows, pa.Array]:
    """The row of each element, and all elements; null is a list without elements.

    >>> rows, values = elements(pa.array([[5, 7], None, [9]]))
    >>> rows.tolist(), values.to_pylist()
    ([0, 0, 2], [5, 7, 9])
    """
    sizes = pc.list_value_length(lists).fill_null(0).to_numpy()
    return np.repeat(np.arange(len(lists)), sizes), lists.flatten()


def lists_of(rows: Integers, values: pa.Array, count: int) -> pa.Array:
    """The lists of `count` rows, given the row of each element in ascending order.

    >>> lists_of(np.array([0, 0, 2]), pa.array([5, 7, 9]), 3).to_pylist()
    [[5, 7], [], [9]]
    """
    ends = np.searchsorted(rows, np.arange(count), side="right")
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    return pa.ListArray.from_arrays(offsets, values)


def places(rows: Integers) -> Rows:
    """The place of each element in its list.

    >>> places(np.array([0, 0, 2])).tolist()
    [0, 1, 0]
    """
    found: Rows = np.arange(len(rows)) - np.searchsorted(rows, rows)
    return found


def joined(first: Sequence[pa.Array], second: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns, and those of other rows below them."""
    return [pa.concat_arrays(pair) for pair in zip(first, second, strict=True)]
