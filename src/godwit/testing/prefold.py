"""Records folded before their workers get them, as Spark folds them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates.bound import partial_column
from godwit.model.hashing import hash_rows
from godwit.model.keys import distinct
from godwit.operators.aggregate import AggregateOperator
from godwit.operators.base import Operator
from godwit.operators.definition import RECORDS
from godwit.operators.wrapper import Wrapper
from godwit.state.view import View
from godwit.worker.event_time import on_time

_TASKS = 2  # each folds its share of the records


def folded(records: pa.Table, operator: Operator, passed: int | None) -> pa.Table:
    """The rows that records become; `passed` is the watermark that tells which are late."""
    assert operator.prefold is not None
    rows = [
        _folded(part, operator)
        for task in range(_TASKS)
        for part in _by_lateness(_share(records, task), operator, passed)
        if part.num_rows
    ]
    schema = operator.prefold.operator.input
    return pa.concat_tables(rows).combine_chunks() if rows else schema.empty_table()


def _share(records: pa.Table, task: int) -> pa.Table:
    return records.filter(pa.array(np.arange(records.num_rows) % _TASKS == task))


def _by_lateness(records: pa.Table, operator: Operator, passed: int | None) -> Iterator[pa.Table]:
    """Those that are on time, and the others."""
    places = pa.array(np.arange(records.num_rows))
    numbered = records.append_column("_place", places)
    punctual = on_time(operator, numbered, passed).records.column("_place")
    mask = pc.is_in(places, value_set=punctual.combine_chunks())
    yield records.filter(mask)
    yield records.filter(pc.invert(mask))


def _folded(records: pa.Table, operator: Operator) -> pa.Table:
    """What the records leave on an empty state, one row a key."""
    inner = operator
    while isinstance(inner, Wrapper):
        inner = inner.of
    assert isinstance(inner, AggregateOperator)
    assert operator.prefold is not None
    schema, keys = operator.prefold.operator.input, operator.prefold.by
    hashes = hash_rows(records.select(keys))
    _, state = inner.fold(0, hashes, records, View(inner.tables[0], lambda segment: ()))
    groups = distinct(hashes, records.select(keys), ordered=False)
    columns = {name: state.column(name) for name in keys}
    columns |= {partial_column(name): state.column(name) for name in inner.tables[0].value.names}
    columns[RECORDS] = pa.array(np.diff(groups.starts, append=records.num_rows))
    time = operator.prefold.operator.time
    if time is not None and time not in keys:
        numbered = pa.table(
            {"group": groups.of_records(records.num_rows), "time": records.column(time)}
        )
        newest = numbered.group_by("group", use_threads=False).aggregate([("time", "max")])
        columns[time] = newest.sort_by("group").column("time_max")
    return pa.table([columns[name] for name in schema.names], schema=schema)
