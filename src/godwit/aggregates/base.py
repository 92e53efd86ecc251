"""What an aggregate is: the class to subclass, and the values that it is given."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.model.keys import Groups, Rows, flat

Columns = Sequence[pa.Array]


@dataclass(frozen=True, slots=True)
class AggregateInput:
    """The columns that an operator reads, and the one that orders a key's records, if any.

    >>> input = AggregateInput(pa.schema({"unit price": pa.int32()}))
    >>> input.type("unit price"), input.quoted("unit price")
    (DataType(int32), '`unit price`')
    """

    schema: pa.Schema
    time: str | None = None

    def type(self, column: str) -> pa.DataType:
        """The type of a column."""
        return self.schema.field(column).type

    def quoted(self, column: str) -> str:
        """A column as Spark's SQL names it."""
        return "`" + column.replace("`", "``") + "`"


class GroupedRecords:
    """The records of an epoch laid out group after group, one group a key.

    Group g is the records from `starts[g]` on, `sizes[g]` of them. No group is empty.

    >>> from godwit.model.hashing import hash_rows
    >>> from godwit.model.keys import distinct
    >>> table = pa.table({"k": ["a", "b", "a"], "x": [1, 2, 3]})
    >>> groups = distinct(hash_rows(table.select(["k"])), table.select(["k"]), ordered=False)
    >>> records = GroupedRecords(table, groups)
    >>> sorted(records.aggregate(records.column("x"), "sum").to_pylist())
    [2, 4]
    """

    def __init__(self, records: pa.Table, groups: Groups, time: str | None = None) -> None:
        self._records = records
        self._order = None if groups.order is None else pa.array(groups.order)
        self._time = time
        self._columns: dict[str, pa.Array] = {}
        self.starts: Rows = groups.starts
        self.sizes: Rows = np.diff(groups.starts, append=records.num_rows)

    @property
    def times(self) -> pa.Array | None:
        """The column that orders the records of a group, if the operator has one."""
        return None if self._time is None else self.column(self._time)

    def column(self, name: str) -> pa.Array:
        """A column of the records, in the order of the groups."""
        found = self._columns.get(name)
        if found is None:
            found = flat(self._records.column(name))
            if self._order is not None:
                found = pc.take(found, self._order, boundscheck=False)
            self._columns[name] = found
        return found

    def aggregate(self, values: pa.Array, function: str) -> pa.Array:
        """One value a group, by a grouped aggregation of Arrow: "sum", "count", "max", "list", ...

        `values` has a value for each record. Nulls are skipped where Arrow's function does so.
        """
        groups = np.repeat(np.arange(len(self.starts)), self.sizes)
        return grouped(groups, values, function)


def grouped(groups: Rows, values: pa.Array, function: str) -> pa.Array:
    """One value for each number in `groups`, in the order in which these first occur."""
    table = pa.table({"group": groups, "value": values})
    found = table.group_by("group", use_threads=False).aggregate([("value", function)])
    return flat(found.column(f"value_{function}"))


@dataclass(frozen=True)
class Aggregate(ABC):
    """What to compute from the records of each key: `gw.count()`, or one of your own.

    Subclass it as a frozen dataclass; its fields are the arguments. Its state is some columns with
    a row for each key. All values are columns of Arrow, with a row for each group, that is for each
    key that has records. A null in the state means that nothing was seen yet: so it is for a new
    key, and for an aggregate that was added to a query with state.

    Define `columns`, `state`, `output` and `fold`; the rest is optional. With `merge` it works in
    session and sliding windows, and with `partial`, too, Spark folds records before they travel.
    With `spark_buffer` a query goes on from Spark's state.

    >>> @dataclass(frozen=True)
    ... class Nulls(Aggregate):
    ...     column: str
    ...
    ...     @property
    ...     def columns(self):
    ...         return (self.column,)
    ...
    ...     def state(self, input):
    ...         return {"": pa.int64()}
    ...
    ...     def output(self, input):
    ...         return pa.int64()
    ...
    ...     def fold(self, records, state):
    ...         nulls = records.column(self.column).is_null().cast(pa.int64())
    ...         return [pc.add(state[0].fill_null(0), records.aggregate(nulls, "sum"))]
    >>> str(Nulls("price"))
    'nulls(price)'
    """

    spark_buffer: ClassVar[Mapping[str, str | None] | None] = None
    """What Spark's own function keeps, in its order, and the suffix of our column for each; None
    for what we do not need."""

    @property
    @abstractmethod
    def columns(self) -> Sequence[str]:
        """The input columns that it reads."""

    @abstractmethod
    def state(self, input: AggregateInput) -> Mapping[str, pa.DataType]:
        """The columns of its state by suffix: `mean=Of("x")` keeps "_sum" in `mean_sum`."""

    @abstractmethod
    def output(self, input: AggregateInput) -> pa.DataType:
        """The type of its result. Raise ConfigError for input that it cannot take."""

    @abstractmethod
    def fold(self, records: GroupedRecords, state: Columns) -> Columns:
        """The new state of each group from its old one and its records."""

    def result(self, state: Columns, output: pa.DataType) -> pa.Array:
        """What the state means; by default its first column is the result."""
        return state[0]

    def ordered(self, input: AggregateInput) -> bool:
        """Does the result depend on the order of a group's records? Then they come in order."""
        return False

    def partial(self, input: AggregateInput) -> Mapping[str, str] | None:
        """What records leave on an empty state: for each of its columns an expression of Spark's
        SQL. None: it has to see the records themselves.

        Offer it only if neither the order of records nor their split into parts can show: not for
        sums of floats.
        """
        return None

    def merge(self, state: Columns, other: Columns) -> Columns:
        """The state of records of which some left `state`, and others left `other`.

        `other` has seen records. Session and sliding windows need it: there the records of `other`
        are later than those of `state`. With `partial` they come in any order.
        """
        raise NotImplementedError(f"{type(self).__name__} has no merge")

    def describe(self, input: AggregateInput) -> str:
        """What a checkpoint says of it: a query goes on only with the same."""
        return str(self)

    def __str__(self) -> str:
        arguments = (getattr(self, field.name) for field in fields(self))
        return f"{type(self).__name__.lower()}({', '.join(map(str, arguments))})"


@dataclass(frozen=True, slots=True)
class OfColumn(Aggregate):
    """An aggregate of one column."""

    column: str

    @property
    def columns(self) -> Sequence[str]:
        return (self.column,)
