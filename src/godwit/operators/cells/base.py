"""What the forms of state have in common while an epoch runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.model.keys import Groups
from godwit.operators.conversion import MisfitError, to_arrow, tuples
from godwit.state.table import TableSpec

Owners = npt.NDArray[np.int64]


class Cells(Protocol):
    """One state of all keys of an epoch; a cell is that state of one key.

    The keys are opened and closed in their order, many at a time.
    """

    def open(self, start: int, stop: int) -> Sequence[Any]:
        """The cells of groups `start` to `stop`, for the function to read and change."""
        ...

    def close(self) -> None:
        """Take down what changed in the cells that were opened last.

        A value that does not fit its column raises `MisfitError` with the index of its group.
        """
        ...

    def delta(self) -> pa.Table:
        """All changed rows, in hash order."""
        ...


class Delta:
    """The rows of a delta while they are collected; an owner is the index of a row's group."""

    def __init__(self, spec: TableSpec, groups: Groups) -> None:
        self._spec = spec
        self._groups = groups
        # Null as a sub-key is what a row has that clears its key.
        self._fields = [*(field.with_nullable(False) for field in spec.sub), *spec.value]
        self._owners: list[Owners] = []
        self._ops: list[npt.NDArray[np.int8]] = []
        self._columns: list[list[pa.Array]] = [[] for _ in self._fields]

    def add_rows(
        self, op: int, owners: Owners, subs: Sequence[Any], values: Sequence[Any] | None = None
    ) -> None:
        """Add rows of one kind, given by a sub-key and a value for each: scalars or tuples."""
        with self._naming(owners):
            columns = _columns(subs, self._spec.sub)
            if values is not None:
                columns += _columns(values, self._spec.value)
        self.add(op, owners, columns)

    def add(self, op: int, owners: Owners, columns: Sequence[Sequence[Any]] = ()) -> None:
        """Add rows of one kind; columns that are left out at the end are null."""
        if not len(owners):
            return
        given = self._fields[: len(columns)]
        with self._naming(owners):
            arrays = [to_arrow(*pair) for pair in zip(columns, given, strict=True)]
        arrays += [pa.nulls(len(owners), field.type) for field in self._fields[len(columns) :]]
        for pieces, array in zip(self._columns, arrays, strict=True):
            pieces.append(array)
        self._owners.append(owners)
        self._ops.append(np.full(len(owners), op, np.int8))

    @contextmanager
    def _naming(self, owners: Owners) -> Iterator[None]:
        """Let a misfit name its group and state."""
        try:
            yield
        except MisfitError as error:
            where = f"{error.where} of state '{self._spec.name}'"
            raise MisfitError(int(owners[error.index]), where, error.reason) from None

    def table(self) -> pa.Table:
        """The rows in the order of their groups; those of one group in the order of adding."""
        if not self._owners:
            return self._spec.schema.empty_table()
        owners = np.concatenate(self._owners)
        table = pa.table(
            [
                pa.array(self._groups.hashes[owners]),
                pa.array(np.concatenate(self._ops)),
                *self._keys(owners).columns,
                *map(pa.concat_arrays, self._columns),
            ],
            schema=self._spec.schema,
        )
        if (owners[1:] < owners[:-1]).any():
            table = table.take(pa.array(np.argsort(owners, kind="stable")))
        return table

    def _keys(self, owners: Owners) -> pa.Table:
        keys = self._groups.keys
        if np.array_equal(owners, np.arange(keys.num_rows)):
            return keys
        return keys.take(pa.array(owners))


def _columns(rows: Sequence[Any], schema: pa.Schema) -> list[Sequence[Any]]:
    return [rows] if len(schema) == 1 else tuples(rows, schema)


def is_other(before: Any, after: Any) -> bool:
    """Do the values differ? Numpy's arrays do not say, so they count as changed."""
    try:
        return bool(before != after)
    except ValueError:
        return True
