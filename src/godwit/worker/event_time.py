"""Which records of an epoch come too late, and the greatest time that each input has shown."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.model.keys import Mask, flat
from godwit.model.time import Clocks
from godwit.operators.base import Operator
from godwit.operators.definition import INPUT, RECORDS
from godwit.operators.windows import START
from godwit.state.timed import moments


@dataclass(frozen=True, slots=True)
class OnTime:
    """The records that are not late, those that are, and the greatest time of each input.

    Of a record that is there once for each of its windows, `late` has one, or none: if it is late
    for some of them only.
    """

    records: pa.Table
    late: pa.Table
    clocks: Clocks


def on_time(operator: Operator, records: pa.Table, watermark: int | None) -> OnTime:
    """Sort out the records before a watermark, and those without a time, which are late always."""
    if operator.delay is None or operator.time is None:
        return OnTime(records, records.slice(0, 0), (None,) * operator.inputs)
    late = [records.slice(0, 0)]
    if records.column(operator.time).null_count:
        given = pc.is_valid(records.column(operator.time))
        late.append(records.filter(pc.invert(given)))
        records = records.filter(given)
    clocks = _clocks(records, moments(records.column(operator.time)), operator.inputs)
    if watermark is not None:
        horizon = operator.horizon
        punctual = moments(records.column(horizon.column)) + horizon.after > watermark
        if not punctual.all():
            passed = records.filter(pa.array(~punctual))
            late.append(passed.filter(pa.array(_last_windows(passed, operator))))
            records = records.filter(pa.array(punctual))
    return OnTime(records, pa.concat_tables(late), clocks)


def _last_windows(records: pa.Table, operator: Operator) -> Mask:
    """Which records are there for the last of their windows: the next one begins after them."""
    slide = operator.horizon.slide
    if slide is None:
        return np.ones(records.num_rows, np.bool_)
    last: Mask = moments(records.column(START)) + slide > moments(records.column(operator.time))
    return last


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
