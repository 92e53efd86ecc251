"""Keys that leave the state when their moment has come: windows that close, keys that expire."""

import numpy as np
import pyarrow as pa

from godwit.model.keys import Groups, Mask, Rows, contained, distinct, flat
from godwit.model.time import END
from godwit.operators.base import Hashes, TimedView
from godwit.state.table import CLEAR, DELETE, HASH, TableSpec
from godwit.state.timed import KEY_HASH, Moments, waiting


def due_keys(view: TimedView) -> Groups:
    """The keys whose moment has come, once each."""
    rows = view.due()
    hashes = flat(rows.column(KEY_HASH)).to_numpy().view(np.uint64)
    return distinct(hashes, rows.select(view.spec.key.names), ordered=False)


def keys_not_among(groups: Groups, hashes: Hashes, keys: pa.Table) -> tuple[Hashes, pa.Table]:
    """The keys of `groups` that are not among others, in hash order."""
    rest = ~contained(groups.hashes, groups.keys, hashes, keys)
    return groups.hashes[rest], groups.keys.filter(pa.array(rest))


def deletions(spec: TableSpec, hashes: Hashes, keys: pa.Table) -> pa.Table:
    """Rows that remove all that a table has of some keys, or if these have its sub-key, one row."""
    rest = [field for field in (*spec.sub, *spec.value) if field.name not in keys.column_names]
    op = CLEAR if len(rest) > len(spec.value) else DELETE
    columns = [pa.array(hashes), pa.array(np.full(len(hashes), op, np.int8)), *keys.columns]
    columns += [pa.nulls(len(hashes), field.type) for field in rest]
    return pa.table(columns, schema=spec.schema)


def first_timers(
    view: TimedView, epoch: int, groups: Groups, of_row: Rows, at: Moments
) -> pa.Table:
    """One timer for each key that rows are of, at the first of their moments."""
    first = np.full(len(groups.starts), END)
    np.minimum.at(first, of_row, at)
    waits = np.zeros(len(first), np.bool_)
    waits[of_row] = True
    keys = rows_where(groups.keys, waits)
    return waiting(view.spec, epoch, groups.hashes[waits], first[waits], keys, pa.table({}))


def in_order(*rows: pa.Table) -> pa.Table:
    """Rows of one table in hash order; those of one hash keep theirs."""
    both = pa.concat_tables(rows).combine_chunks()
    return both.take(pa.array(np.argsort(both.column(HASH).to_numpy(), kind="stable")))


def rows_where(rows: pa.Table, mask: Mask) -> pa.Table:
    return rows.filter(pa.array(mask))
