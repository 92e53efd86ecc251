"""Keys as columns: comparing them row by row and grouping records by them.

Nulls are ordinary values here: null equals null and comes after every other value. Equal hashes do
not make equal keys, but they nearly always do, so hashes are compared first and keys verify them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer[Any]]
Compare = Callable[[pa.Table, pa.Table], Mask]


@dataclass(frozen=True, slots=True)
class Groups:
    """Records grouped by key; groups are in hash order and those of one hash are in key order.

    Group g is the records `order[starts[g]]` up to `order[starts[g + 1]]`, where `order` is None if
    the records came in order; `hashes[g]` and row g of `keys` are what its records share.
    """

    order: Rows | None
    starts: Rows
    hashes: Hashes
    keys: pa.Table

    def of_records(self, count: int) -> Rows:
        """The group of each of the `count` records."""
        sizes = np.diff(self.starts, append=count)
        groups = np.repeat(np.arange(len(sizes)), sizes)
        if self.order is None:
            return groups
        found = np.empty(count, np.int64)
        found[self.order] = groups
        return found


def distinct(hashes: Hashes, keys: pa.Table, ordered: bool) -> Groups:
    """Group records by key; `hashes[i]` and row i of `keys` belong to record i.

    The records of a group keep their order. `ordered` says that the records are already sorted by
    hash and, where hashes are equal, by key.

    >>> hashes = np.array([7, 3, 7, 7], np.uint64)
    >>> groups = distinct(hashes, pa.table({"k": ["a", "c", "b", "a"]}), ordered=False)
    >>> groups.order.tolist(), groups.starts.tolist(), groups.keys["k"].to_pylist()
    ([1, 0, 3, 2], [0, 1, 3], ['c', 'a', 'b'])
    """
    if ordered:
        first = changes(hashes)
        first[1:] |= ~neighbours(equal, keys)
        starts = np.flatnonzero(first)
        return Groups(None, starts, hashes[starts], keys.take(pa.array(starts)))
    order, found = by_hash(hashes)
    order, starts = grouped(order, found, keys)
    if len(starts) < len(found):
        return Groups(order, starts, found[starts], keys.take(pa.array(order[starts])))
    return Groups(order, starts, found, keys.take(pa.array(order)))


def contained(hashes: Hashes, keys: pa.Table, among: Hashes, among_keys: pa.Table) -> Mask:
    """Which of some keys are among others?

    >>> hashes = np.array([7, 3, 7], np.uint64)
    >>> contained(hashes, pa.table({"k": ["a", "c", "b"]}), hashes[:1], pa.table({"k": ["a"]}))
    array([ True, False, False])
    """
    found = np.zeros(len(hashes), np.bool_)
    if not len(among):
        return found
    known = np.sort(among)
    places = np.searchsorted(known, hashes)
    maybe = np.flatnonzero(known.take(places, mode="clip") == hashes)
    if len(maybe):
        both = np.concatenate((hashes[maybe], among))
        same = pa.concat_tables([keys.take(pa.array(maybe)), among_keys])
        groups = distinct(both, same, ordered=False)
        group = groups.of_records(len(both))
        marked = np.zeros(len(groups.starts), np.bool_)
        marked[group[len(maybe) :]] = True
        found[maybe] = marked[group[: len(maybe)]]
    return found


def by_hash(hashes: Hashes) -> tuple[Rows, Hashes]:
    """`np.argsort(hashes, kind="stable")` in half the time of the unstable one; and the sorted.

    Record numbers replace the low bits of the hashes, and values sort faster than indices to them.
    Hashes that differ in those bits only, a pair in millions of records, are put right afterwards.
    """
    low = np.uint64((1 << len(hashes).bit_length()) - 1)
    packed = hashes & ~low
    packed |= np.arange(len(hashes), dtype=np.uint64)
    packed.sort()
    packed &= low
    order = packed.view(np.int64)
    found = hashes[order]
    if (found[1:] < found[:-1]).any():
        right = np.argsort(found, kind="stable")
        order, found = order[right], found[right]
    return order, found


def grouped(order: Rows, found: Hashes, keys: pa.Table) -> tuple[Rows, Rows]:
    """Refine a stable hash order so that records of one key are contiguous; and the groups' starts.

    `found` is the hashes in that order. Records of one key stay in the order in which they are.
    """
    first = changes(found)
    starts = np.flatnonzero(first)
    later = np.flatnonzero(~first)
    if not len(later):
        return order, starts
    before = order[later - 1]  # the record of the same hash that comes before
    same = equal(keys.take(pa.array(order[later])), keys.take(pa.array(before)))
    if same.all():
        return order, starts
    return _separated(order, found, keys, clashes=np.unique(found[later[~same]]))


def _separated(order: Rows, found: Hashes, keys: pa.Table, clashes: Hashes) -> tuple[Rows, Rows]:
    """`grouped`, given the hashes that several keys share."""
    places = np.flatnonzero(np.isin(found, clashes))
    mixed = order[places]
    ranks = sort_keys(keys.take(pa.array(mixed)))
    mixed = mixed[np.lexsort((*ranks, found[places]))]
    order = order.copy()
    order[places] = mixed
    first = changes(found)
    first[places[1:]] |= ~neighbours(equal, keys.take(pa.array(mixed)))
    return order, np.flatnonzero(first)


def changes(values: Integers) -> Mask:
    """True where a value differs from the one before it, and for the first value."""
    first = np.ones(len(values), np.bool_)
    first[1:] = values[1:] != values[:-1]
    return first


def equal(left: pa.Table, right: pa.Table) -> Mask:
    """Row by row: are all columns equal?

    >>> equal(pa.table({"k": [1, None, 3]}), pa.table({"k": [1, None, None]})).tolist()
    [True, True, False]
    """
    result = np.ones(left.num_rows, np.bool_)
    for a, b in zip(left.columns, right.columns, strict=True):
        result &= _equal(flat(a), flat(b))
    return result


def less(left: pa.Table, right: pa.Table) -> Mask:
    """Row by row: does the left row come before the right one, by the first column that differs?

    >>> less(pa.table({"k": [1, 3, None]}), pa.table({"k": [1, None, 3]})).tolist()
    [False, True, False]
    """
    *leading, last = zip(map(flat, left.columns), map(flat, right.columns), strict=True)
    result = _less(*last)
    for a, b in reversed(leading):
        result = _less(a, b) | (_equal(a, b) & result)
    return result


def neighbours(compare: Compare, table: pa.Table) -> Mask:
    """`compare` each row with the next one: one value less than there are rows."""
    pairs = max(table.num_rows - 1, 0)
    return compare(table.slice(0, pairs), table.slice(1))


def sort_keys(table: pa.Table) -> list[Integers]:
    """The columns as numbers of the same order, last column first: what `np.lexsort` takes."""
    return [_ranks(flat(column)) for column in reversed(table.columns)]


def flat(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array, without a copy if it is one already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _equal(a: pa.Array, b: pa.Array) -> Mask:
    x, y = _integers(a), _integers(b)
    if x is not None and y is not None:
        return np.equal(x, y)
    same = _mask(pc.equal(a, b))
    if not (a.null_count and b.null_count):
        return same
    return same | (_mask(pc.is_null(a)) & _mask(pc.is_null(b)))


def _less(a: pa.Array, b: pa.Array) -> Mask:
    x, y = _integers(a), _integers(b)
    if x is not None and y is not None:
        return np.less(x, y)
    return _mask(pc.less(a, b)) | (_mask(pc.is_valid(a)) & _mask(pc.is_null(b)))


def _ranks(array: pa.Array) -> Integers:
    ranks = _integers(array)
    return pc.rank(array, tiebreaker="dense").to_numpy() if ranks is None else ranks


def _integers(array: pa.Array) -> Integers | None:
    """The values of a column of integers, dates or timestamps that has no null, without a copy."""
    kind = array.type
    whole = pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    if array.null_count or not whole:
        return None
    if not pa.types.is_integer(kind):
        array = array.view(f"int{kind.bit_width}")
    values: Integers = array.to_numpy()
    return values


def _mask(array: pa.Array) -> Mask:
    """True where the array is, False where it is false or null."""
    known = array.fill_null(False) if array.null_count else array
    mask: Mask = known.to_numpy(zero_copy_only=False)
    return mask
