"""Event time: which records come too late, and how far the watermark of each operator is.

The clock of an input is the greatest time that it has shown in the epochs before. The watermark of
an operator is the least of its inputs' clocks, or the watermark of the operator before it that has
one, less the operator's delay; it never goes back. In epoch t an operator applies the records of t,
then the timers up to the watermark of t. So a record is late, and dropped, if its time is before
the watermark of t - 1: the timers that should have come after it have fired.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.model.time import END, earlier
from godwit.operators.base import Operator
from godwit.operators.definition import INPUT
from godwit.state.keys import flat
from godwit.state.timed import moments

Clocks = tuple[int | None, ...]  # one for each input; None: it has shown no record yet
UNKNOWN: Final[Clocks] = (None,)


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
    total = records.num_rows
    if records.column(operator.time).null_count:
        records = records.filter(pc.is_valid(records.column(operator.time)))
    clocks = _clocks(records, moments(records.column(operator.time)), operator.inputs)
    if watermark is not None:
        column, after = operator.horizon
        punctual = moments(records.column(column)) + after > watermark
        if not punctual.all():
            records = records.filter(pa.array(punctual))
    return OnTime(records, total - records.num_rows, clocks)


def latest(clocks: Sequence[Clocks]) -> Clocks:
    """The clocks of all workers and epochs in one."""
    seen = [[clock for clock in input if clock is not None] for input in zip(*clocks, strict=True)]
    return tuple(max(input, default=None) for input in seen)


def watermarks(
    operators: Mapping[str, Operator],
    clocks: Mapping[str, Clocks],
    before: Mapping[str, int],
    finished: Set[str],
) -> dict[str, int]:
    """The watermarks of the next epoch, given those of the last; an operator may have none yet."""
    found: dict[str, int] = {}
    upstream: str | None = None
    for name, operator in operators.items():
        if operator.delay is None:
            continue
        inputs = (found.get(upstream),) if upstream else clocks.get(name, UNKNOWN)
        known = [clock for clock in inputs if clock is not None]
        candidates = [before[name]] if name in before else []
        if len(known) == len(inputs):
            candidates.append(earlier(min(known), operator.delay))
        if name in finished:
            candidates.append(END)
        if candidates:
            found[name] = max(candidates)
        upstream = name
    return found


def _clocks(records: pa.Table, times: np.ndarray, inputs: int) -> Clocks:
    if inputs == 1:
        return (_greatest(times),)
    sides = flat(records.column(INPUT)).to_numpy()
    return tuple(_greatest(times[sides == side]) for side in range(inputs))


def _greatest(times: np.ndarray) -> int | None:
    return int(times.max()) if len(times) else None
