"""Which records of an epoch come too late, and the greatest time that each input has shown."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.model.keys import flat
from godwit.model.time import Clocks
from godwit.operators.base import Operator
from godwit.operators.definition import INPUT, RECORDS
from godwit.state.timed import moments


@dataclass(frozen=True, slots=True)
class OnTime:
    """The records that are not late, how many are, and the greatest time of each input."""

    records: pa.Table
    late: int
    clocks: Clocks


def on_time(operator: Operator, records: pa.Table, watermark: int | None) -> OnTime:
    """Sort out the records before a watermark, and those without a time, which are late always."""
    if operator.delay is None or operator.time is None:
        return OnTime(records, 0, (None,) * operator.inputs)
    total = count(records)
    if records.column(operator.time).null_count:
        records = records.filter(pc.is_valid(records.column(operator.time)))
    clocks = _clocks(records, moments(records.column(operator.time)), operator.inputs)
    if watermark is not None:
        column, after = operator.horizon
        punctual = moments(records.column(column)) + after > watermark
        if not punctual.all():
            records = records.filter(pa.array(punctual))
    return OnTime(records, total - count(records), clocks)


def count(rows: pa.Table) -> int:
    """How many records there are; a folded row stands for several."""
    if RECORDS not in rows.column_names:
        return int(rows.num_rows)
    return int(flat(rows.column(RECORDS)).to_numpy().sum())


def _clocks(records: pa.Table, times: np.ndarray, inputs: int) -> Clocks:
    if inputs == 1:
        return (_greatest(times),)
    sides = flat(records.column(INPUT)).to_numpy()
    return tuple(_greatest(times[sides == side]) for side in range(inputs))


def _greatest(times: np.ndarray) -> int | None:
    return int(times.max()) if len(times) else None
