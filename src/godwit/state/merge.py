"""Merging runs of one table: which rows remain, and in which order."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.model.keys import (
    Rows,
    changes,
    flat,
    grouped,
    less,
    neighbours,
    sort_keys,
)
from godwit.state.run import Run
from godwit.state.table import CLEAR, OP, UPSERT, TableSpec


def merge(runs: Sequence[Run], spec: TableSpec, final: bool) -> Run:
    """One run that reads like `runs`, which are given newest first.

    Of each identity (key and sub-key) the newest row remains, and nothing of a key that is older
    than its newest CLEAR; rows of the CLEAR's own run are newer than it. `final` says that no older
    run exists below these, so that DELETE and CLEAR have nothing left to hide and are dropped too.
    Rows of a key are contiguous, a CLEAR first, the others in the order of their sub-key.
    """
    oldest_first = runs[::-1]
    hashes = np.concatenate([run.hash for run in oldest_first])
    rows = pa.concat_tables([run.rows for run in oldest_first]).combine_chunks()
    lengths = [len(run) for run in oldest_first] if len(spec.sub) else []
    ages = np.repeat(np.arange(len(lengths)), lengths)
    # A stable sort of presorted pieces is a merge: each key's rows stay oldest first.
    order = np.argsort(hashes, kind="stable")
    order, starts = grouped(order, hashes[order], rows.select(spec.key.names))
    kept = settle(order, starts, ages, rows, spec, final)
    return Run.of(rows.take(pa.array(kept)))


def settle(
    order: Rows, starts: Rows, ages: Rows, rows: pa.Table, spec: TableSpec, final: bool
) -> Rows:
    """The numbers of the rows that remain, in the order of (group, CLEAR, sub-key).

    Group g, all rows of one key, oldest first, is the rows `order[starts[g]]` up to
    `order[starts[g + 1]]`. With a sub-key, `ages` says for each row which run it is from, the
    oldest being 0.
    """
    ops = flat(rows.column(OP)).to_numpy()
    if len(spec.sub):
        kept = _settle_sub_keys(order, starts, ages, ops, rows.select(spec.sub.names))
    else:
        kept = order[np.append(starts, len(order))[1:] - 1]
    return kept[ops[kept] == UPSERT] if final and ops.any() else kept


def _settle_sub_keys(
    order: Rows, starts: Rows, ages: Rows, ops: npt.NDArray[np.int8], subs: pa.Table
) -> Rows:
    """`settle` for lists and maps, DELETE and CLEAR included."""
    groups = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    clears, places = np.empty(0, np.int64), np.arange(len(order))
    clear = ops[order] == CLEAR
    if clear.any():
        age = ages[order]
        visible = age >= np.maximum.reduceat(np.where(clear, age, -1), starts)[groups]
        clears, places = np.flatnonzero(visible & clear), np.flatnonzero(visible & ~clear)

    # A key whose rows ascend by sub-key, as in a list that was only appended to, is settled.
    group = groups[places]
    descents = (group[1:] == group[:-1]) & ~neighbours(less, subs.take(pa.array(order[places])))
    unsettled = np.zeros(len(starts), np.bool_)
    unsettled[group[1:][descents]] = True
    mixed = places[unsettled[group]]
    newest = mixed[_newest(groups[mixed], subs.take(pa.array(order[mixed])))]

    kept = np.concatenate((clears, places[~unsettled[group]], newest))
    return order[kept[np.argsort(groups[kept], kind="stable")]]


def _newest(groups: Rows, subs: pa.Table) -> Rows:
    """The last row of each (group, sub-key), in their order."""
    columns = (*sort_keys(subs), groups)
    order = np.lexsort(columns)
    last = np.ones(len(order), np.bool_)
    last[:-1] = np.logical_or.reduce([changes(column[order])[1:] for column in columns])
    return order[last]
