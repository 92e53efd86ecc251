"""How each aggregate function folds an epoch's records into its state, a column at a time.

A null in the state means that nothing was seen yet: so it is for a new key, and for a function
that was added to a query with state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.aggregates.columns import Mask, Values, column, numbers, valid
from godwit.aggregates.int128 import doubles, means, narrow, widen
from godwit.state.keys import Groups, flat

Columns = Sequence[pa.Array]

_LONG = pa.int64()


class Batch:
    """The records of an epoch laid out group after group, so that a group is a slice."""

    def __init__(self, records: pa.Table, groups: Groups) -> None:
        self._records = records
        self._order = None if groups.order is None else pa.array(groups.order)
        self._columns: dict[str, pa.Array] = {}
        self.starts = groups.starts
        self.sizes = np.diff(groups.starts, append=records.num_rows)

    def column(self, name: str) -> pa.Array:
        found = self._columns.get(name)
        if found is None:
            found = flat(self._records.column(name))
            if self._order is not None:
                found = pc.take(found, self._order, boundscheck=False)
            self._columns[name] = found
        return found


class Fold(Protocol):
    """A function bound to a column: the columns of its state by suffix, its output, the folding."""

    @property
    def state(self) -> Mapping[str, pa.DataType]: ...
    @property
    def output(self) -> pa.DataType: ...
    @property
    def ordered(self) -> bool:
        """Does the result depend on the order of a group's records?"""
        ...

    def fold(self, batch: Batch, state: Columns) -> Columns:
        """The new state of each group from its old one and its records."""
        ...

    def result(self, state: Columns) -> pa.Array:
        """What the state means, one value a group."""
        ...


@dataclass(frozen=True, slots=True)
class Count:
    """The number of records, or of those in which `column` is not null."""

    column: str | None
    suffix: str = ""
    output: pa.DataType = _LONG
    ordered: bool = False

    @property
    def state(self) -> Mapping[str, pa.DataType]:
        return {self.suffix: _LONG}

    def fold(self, batch: Batch, state: Columns) -> Columns:
        counts = batch.sizes
        given = None if self.column is None else valid(batch.column(self.column))
        if given is not None:
            counts = np.add.reduceat(given.view(np.int8), batch.starts, dtype=np.int64)
        old, had = numbers(state[0])
        return (column(counts + _filled(old, had, 0), None, _LONG),)

    def result(self, state: Columns) -> pa.Array:
        return state[0]


@dataclass(frozen=True, slots=True)
class Reduce:
    """Sum, minimum or maximum of numbers: a ufunc with a neutral value that stands in for nulls."""

    column: str
    ufunc: np.ufunc
    neutral: Any
    output: pa.DataType
    suffix: str = ""
    ordered: bool = False

    @property
    def state(self) -> Mapping[str, pa.DataType]:
        return {self.suffix: self.output}

    def fold(self, batch: Batch, state: Columns) -> Columns:
        old, had = numbers(state[0])
        values, given = numbers(batch.column(self.column))
        filled = _filled(values, given, self.neutral)
        new = self.ufunc.reduceat(filled, batch.starts, dtype=old.dtype)
        new = self.ufunc(new, _filled(old, had, self.neutral), out=new)
        if new.dtype.kind == "f":
            new += 0.0  # which of -0.0 and 0.0 is met first must not show
        return (column(new, _either(had, given, batch), self.output),)

    def result(self, state: Columns) -> pa.Array:
        return state[0]


@dataclass(frozen=True, slots=True)
class WideSum:
    """The exact sum of decimals or longs, kept as a decimal."""

    column: str
    output: pa.DataType
    suffix: str = ""
    ordered: bool = False

    @property
    def state(self) -> Mapping[str, pa.DataType]:
        return {self.suffix: self.output}

    def fold(self, batch: Batch, state: Columns) -> Columns:
        old, had = widen(state[0])
        values, given = widen(batch.column(self.column))
        total = np.add.reduceat(values, batch.starts, axis=1) + old
        return (narrow(total, _either(had, given, batch), self.output),)

    def result(self, state: Columns) -> pa.Array:
        return state[0]


@dataclass(frozen=True, slots=True)
class Average:
    """A sum and a count, divided when asked for."""

    total: Reduce | WideSum
    count: Count | Reduce
    output: pa.DataType

    @property
    def state(self) -> Mapping[str, pa.DataType]:
        return {**self.total.state, **self.count.state}

    @property
    def ordered(self) -> bool:
        return self.total.ordered

    def fold(self, batch: Batch, state: Columns) -> Columns:
        return *self.total.fold(batch, state[:1]), *self.count.fold(batch, state[1:])

    def result(self, state: Columns) -> pa.Array:
        total, (counts, _) = state[0], numbers(state[1])
        divisor = np.maximum(counts, 1)
        if pa.types.is_decimal(self.output):
            shift = self.output.scale - total.type.scale
            return narrow(means(widen(total)[0], divisor, shift), counts > 0, self.output)
        sums = doubles(widen(total)[0]) if pa.types.is_decimal(total.type) else numbers(total)[0]
        return column(sums / divisor, counts > 0, self.output)


@dataclass(frozen=True, slots=True)
class Extreme:
    """Minimum or maximum of strings, binary, booleans and large decimals."""

    column: str
    kind: Literal["min", "max"]
    output: pa.DataType
    ordered: bool = False

    @property
    def state(self) -> Mapping[str, pa.DataType]:
        return {"": self.output}

    def fold(self, batch: Batch, state: Columns) -> Columns:
        # The old states come first, so that the groups come out in their order.
        ids = np.arange(len(batch.starts))
        table = pa.table(
            {
                "group": np.concatenate([ids, np.repeat(ids, batch.sizes)]),
                "value": pa.concat_arrays([state[0], batch.column(self.column)]),
            }
        )
        grouped = table.group_by("group", use_threads=False).aggregate([("value", self.kind)])
        return (flat(grouped.column(f"value_{self.kind}")),)

    def result(self, state: Columns) -> pa.Array:
        return state[0]


@dataclass(frozen=True, slots=True)
class First:
    """The value of the record that came first; it may be null, so that it was seen is kept too."""

    column: str
    output: pa.DataType
    ordered: bool = True

    @property
    def state(self) -> Mapping[str, pa.DataType]:
        return {"": self.output, "_seen": pa.bool_()}

    def fold(self, batch: Batch, state: Columns) -> Columns:
        new = pc.take(batch.column(self.column), pa.array(batch.starts))
        seen = pa.repeat(pa.scalar(True), len(new))
        return pc.if_else(state[1].fill_null(False), state[0], new), seen

    def result(self, state: Columns) -> pa.Array:
        return state[0]


@dataclass(frozen=True, slots=True)
class Last:
    """The value of the record that came last; it may be null."""

    column: str
    output: pa.DataType
    ordered: bool = True

    @property
    def state(self) -> Mapping[str, pa.DataType]:
        return {"": self.output}

    def fold(self, batch: Batch, state: Columns) -> Columns:
        ends = batch.starts + batch.sizes - 1
        return (pc.take(batch.column(self.column), pa.array(ends)),)

    def result(self, state: Columns) -> pa.Array:
        return state[0]


@dataclass(frozen=True, slots=True)
class TimedFold:
    """The value of the record with the earliest or latest time; records without a time are skipped.

    Of equal times in two epochs, the first is the earlier epoch's and the last the later epoch's.
    """

    column: str
    kind: Literal["first", "last"]
    output: pa.DataType
    time: pa.Field
    ordered: bool = True

    @property
    def state(self) -> Mapping[str, pa.DataType]:
        return {"": self.output, "_time": self.time.type}

    def fold(self, batch: Batch, state: Columns) -> Columns:
        times = batch.column(self.time.name)
        at = pa.array(self._places(batch, valid(times)))
        value, time = pc.take(batch.column(self.column), at), pc.take(times, at)
        (new, given), (old, had) = numbers(time), numbers(state[1])
        replace = new < old if self.kind == "first" else new >= old
        if had is not None:
            replace |= ~had
        if given is not None:
            replace &= given
        chosen = pa.array(replace)
        return pc.if_else(chosen, value, state[0]), pc.if_else(chosen, time, state[1])

    def _places(self, batch: Batch, given: Mask | None) -> Values:
        """The first or last record of each group that has a time; any one if none has."""
        if given is None:
            return batch.starts if self.kind == "first" else batch.starts + batch.sizes - 1
        numbered = np.arange(len(given))
        if self.kind == "first":
            first = np.minimum.reduceat(np.where(given, numbered, len(given)), batch.starts)
            return np.where(first < len(given), first, batch.starts)
        last = np.maximum.reduceat(np.where(given, numbered, -1), batch.starts)
        return np.where(last >= 0, last, batch.starts)

    def result(self, state: Columns) -> pa.Array:
        return state[0]


def _filled(values: Values, given: Mask | None, neutral: Any) -> Values:
    return values if given is None else np.where(given, values, values.dtype.type(neutral))


def _either(had: Mask | None, given: Mask | None, batch: Batch) -> Mask | None:
    """The groups with a value: they had one, or one of their records has (None: all)."""
    if had is None or given is None:
        return None
    return had | np.logical_or.reduceat(given, batch.starts)
