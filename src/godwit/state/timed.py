"""Tables in the order of time: rows that wait for a moment of event time, and go once it passed.

Where other tables have the hash of a key, these have its segment in the top bits and the moment in
the others. So the rows of a segment that are due are one range, rows whose moment the watermark has
passed are dead without being deleted, and files, trees and merges are those of any table. Which bin
a row belongs to says the hash of its key, which is a column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.model.keys import Hashes, flat
from godwit.state.run import SEGMENT_BITS, Run
from godwit.state.table import HASH, OP, UPSERT, TableSpec

AT: Final = "_at"
KEY_HASH: Final = "_key_hash"

_MOMENT: Final = pa.timestamp("us", tz="UTC")
_SUB: Final = pa.schema([(AT, _MOMENT), ("_epoch", pa.int64()), ("_number", pa.int64())])
OWN: Final = frozenset((*_SUB.names, KEY_HASH))  # columns that the user does not give
_BITS: Final = 64 - SEGMENT_BITS
_HALF: Final = 1 << (_BITS - 1)  # moments from about -2600 to 6500 have places of their own
_SEGMENT: Final = ~np.uint64((1 << _BITS) - 1)

Moments = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WatermarkSpan:
    """The moments of an epoch: those up to `passed` were dealt with before, those up to `until` are
    due now; None is before all moments."""

    passed: int | None
    until: int | None


NEVER: Final = WatermarkSpan(None, None)


def timed_spec(name: str, key: pa.Schema, payload: pa.Schema) -> TableSpec:
    """A table whose rows wait for a moment; epoch and number say which of a moment comes first."""
    return TableSpec(name, key, _SUB, pa.schema([pa.field(KEY_HASH, pa.int64()), *payload]))


def is_timed(spec: TableSpec) -> bool:
    return AT in spec.sub.names


def payload(spec: TableSpec) -> pa.Schema:
    """The columns of a row that are the user's."""
    return pa.schema(list(spec.value)[1:])


def key_hashes(spec: TableSpec, run: Run) -> Hashes:
    """The hash of each row's key."""
    if not is_timed(spec):
        return run.hash
    hashes: Hashes = flat(run.rows.column(KEY_HASH)).to_numpy().view(np.uint64)
    return hashes


def moments(column: pa.ChunkedArray) -> Moments:
    """A column of timestamps without nulls as microseconds."""
    values: Moments = flat(column).cast(pa.timestamp("us")).view(pa.int64()).to_numpy()
    return values


def waiting(
    spec: TableSpec, epoch: int, hashes: Hashes, at: Moments, keys: pa.Table, payload: pa.Table
) -> pa.Table:
    """The delta of rows that begin to wait, numbered in the order given."""
    ats = pa.array(at).view(pa.timestamp("us")).cast(_MOMENT)
    count = len(at)
    columns = [
        pa.array((hashes & _SEGMENT) | _place(at)),
        pa.array(np.full(count, UPSERT, np.int8)),
        *keys.columns,
        ats,
        pa.array(np.full(count, epoch)),
        pa.array(np.arange(count)),
        pa.array(hashes.view(np.int64)),
        *payload.columns,
    ]
    rows = pa.table(columns, schema=spec.schema)
    return rows.take(pa.array(np.argsort(rows.column(HASH).to_numpy(), kind="stable")))


def pending(runs: Sequence[Run], segment: int, passed: int | None) -> list[Run]:
    """What still waits of a segment's runs."""
    if passed is None:
        return list(runs)
    if not _shares_its_place(passed):
        return [run.between(_first(segment, passed) + 1, 1 << 64) for run in runs]
    found = (run.between(_first(segment, passed), 1 << 64).rows for run in runs)
    return [Run.of(rows.filter(pa.array(moments(rows.column(AT)) > passed))) for rows in found]


def due(
    segments: Iterator[tuple[int, Sequence[Run]]], spec: TableSpec, span: WatermarkSpan
) -> pa.Table:
    """The rows that are due, of segments with what is pending of them, in the order of moment, key
    hash, epoch and number."""
    found = [spec.schema.empty_table()]
    if span.until is not None and span.until != span.passed:
        for segment, runs in segments:
            last = _first(segment, span.until) + 1
            found += [run.between(0, last).rows for run in runs]
    rows = pa.concat_tables(found).combine_chunks()
    if span.until is not None and _shares_its_place(span.until):
        rows = rows.filter(pa.array(moments(rows.column(AT)) <= span.until))
    order = [(name, "ascending") for name in (AT, KEY_HASH, "_epoch", "_number")]
    return rows.sort_by(order).drop_columns([HASH, OP])


def _first(segment: int, moment: int) -> int:
    """The place of a moment in a segment."""
    return (segment << _BITS) | int(_place(np.array([moment]))[0])


def _shares_its_place(moment: int) -> bool:
    """Has a later moment the same place?"""
    return not -_HALF <= moment < _HALF - 1


def _place(at: Moments) -> Hashes:
    return (np.clip(at, -_HALF, _HALF - 1) + _HALF).astype(np.uint64)
