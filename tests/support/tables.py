"""State tables for tests, and epochs of one worker over them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from godwit.model.hashing import hash_rows
from godwit.operators.base import Hashes, Operator, TableView
from godwit.state.run import Run, segment_offsets
from godwit.state.table import CLEAR, HASH, OP, UPSERT, TableSpec
from godwit.state.view import View

Row = tuple[Any, ...]
Hasher = Callable[[pa.Table], Hashes]


def colliding(keys: pa.Table) -> Hashes:
    """One of two hashes for every key, in two segments."""
    return hash_rows(keys) & np.uint64(1 << 63)


class Table(TableView, Protocol):
    """A table that takes deltas."""

    def apply(self, delta: pa.Table) -> None: ...


class DictTable:
    """A table as nested dicts: what the engine's files should mean."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.rows: dict[Row, dict[Row, Row]] = {}
        self.hashes: dict[Row, int] = {}  # by key and sub-key
        self.scans = 0

    def apply(self, delta: pa.Table) -> None:
        rows = delta.to_pylist()
        for row in rows:
            if row[OP] == CLEAR:
                assert all(row[name] is None for name in self.spec.sub.names)
                self.rows.pop(_tuple(row, self.spec.key), None)
        for row in rows:
            entries = self.rows.setdefault(_tuple(row, self.spec.key), {})
            self.hashes[_tuple(row, self.spec.key) + _tuple(row, self.spec.sub)] = row[HASH]
            if row[OP] == UPSERT:
                entries[_tuple(row, self.spec.sub)] = _tuple(row, self.spec.value)
            elif row[OP] != CLEAR:
                entries.pop(_tuple(row, self.spec.sub), None)

    def get(self, hashes: Hashes, keys: pa.Table) -> tuple[npt.NDArray[np.bool_], pa.Table]:
        width = len(self.spec.key)
        found = [self.rows.get(key[:width], {}).get(key[width:]) for key in _tuples(keys)]
        values = [self._value(row) for row in found]
        mask = np.array([row is not None for row in found], np.bool_)
        return mask, pa.Table.from_pylist(values, schema=self.spec.value)

    def _value(self, row: Row | None) -> dict[str, Any]:
        return dict(zip(self.spec.value.names, row or [None] * len(self.spec.value), strict=True))

    def scan(self, hashes: Hashes, keys: pa.Table) -> tuple[npt.NDArray[np.int64], pa.Table]:
        self.scans += 1
        schema = pa.schema([*self.spec.sub, *self.spec.value])
        owners: list[int] = []
        rows: list[dict[str, Any]] = []
        for i, key in enumerate(_tuples(keys)):
            for sub, value in sorted(self.rows.get(key, {}).items()):
                owners.append(i)
                rows.append(dict(zip(schema.names, (*sub, *value), strict=True)))
        return np.array(owners, np.int64), pa.Table.from_pylist(rows, schema=schema)

    def between(self, lows: Hashes, highs: Hashes) -> pa.Table:
        rows = [
            (self.hashes[key + sub], UPSERT, *key, *sub, *value)
            for key, entries in self.rows.items()
            for sub, value in entries.items()
        ]
        spans = list(zip(lows.tolist(), highs.tolist(), strict=True))
        found = [row for row in rows if any(low <= row[0] <= high for low, high in spans)]
        found.sort(key=lambda row: row[0])
        names = self.spec.schema.names
        return pa.Table.from_pylist(
            [dict(zip(names, row, strict=True)) for row in found], schema=self.spec.schema
        )


class RunTable:
    """A table as the engine reads it, with a run for each delta."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self._runs: list[Run] = []
        self._view = View(spec, self._segment)

    def apply(self, delta: pa.Table) -> None:
        if delta.num_rows:
            self._runs.insert(0, Run.of(delta))

    def _segment(self, segment: int) -> Sequence[Run]:
        runs = []
        for run in self._runs:
            offsets = segment_offsets(run.hash)
            if offsets[segment] < offsets[segment + 1]:
                runs.append(run.slice(int(offsets[segment]), int(offsets[segment + 1])))
        return runs

    def get(self, hashes: Hashes, keys: pa.Table) -> tuple[npt.NDArray[np.bool_], pa.Table]:
        return self._view.get(hashes, keys)

    def scan(self, hashes: Hashes, keys: pa.Table) -> tuple[npt.NDArray[np.int64], pa.Table]:
        return self._view.scan(hashes, keys)

    def between(self, lows: Hashes, highs: Hashes) -> pa.Table:
        return self._view.between(lows, highs)


# What operators are tested on: the model with Spark's hash, the real thing with collisions.
STORES = pytest.mark.parametrize(
    ("table", "hasher"), [(DictTable, hash_rows), (RunTable, colliding)], ids=["dicts", "runs"]
)


class Worker:
    """Runs epochs of one operator, as the engine's only worker would."""

    def __init__(
        self,
        operator: Operator,
        input: pa.Schema,
        *,
        table: Callable[[TableSpec], Table] = DictTable,
        hasher: Hasher = hash_rows,
        tables: Mapping[str, Table] | None = None,
    ) -> None:
        self.operator = operator
        self.input = input
        self.hasher = hasher
        self.tables = tables or {spec.name: table(spec) for spec in operator.tables}
        self.deltas: dict[str, pa.Table] = {}
        self.epoch = 0

    def feed(self, rows: Iterable[Row]) -> list[Row]:
        """Run an epoch over `rows` and return its outputs."""
        return self.feed_table(
            pa.Table.from_pylist(
                [dict(zip(self.input.names, row, strict=True)) for row in rows], schema=self.input
            )
        )

    def feed_table(self, records: pa.Table) -> list[Row]:
        """`feed`, for many rows."""
        hashes = self.hasher(records.select(self.operator.key.names))
        if self.operator.ordered:
            order = self._total_order(records, hashes)
            hashes, records = hashes[order], records.take(pa.array(order))
        changes = self.operator.process(self.epoch, hashes, records, self.tables)
        for spec in self.operator.tables:
            delta = changes.deltas.get(spec.name, spec.schema.empty_table())
            assert delta.schema == spec.schema
            delta.validate(full=True)
            written = delta.column(HASH).to_numpy()
            assert (written[1:] >= written[:-1]).all()
            self.deltas[spec.name] = delta
            self.tables[spec.name].apply(delta)
        self.epoch += 1
        if changes.outputs is None:
            return []
        assert changes.outputs.schema == self.operator.output
        changes.outputs.validate(full=True)
        return _tuples(changes.outputs)

    def _total_order(self, records: pa.Table, hashes: Hashes) -> npt.NDArray[np.int64]:
        rest = [name for name in records.column_names if name not in self.operator.key.names]
        time = [self.operator.time] if self.operator.time else []
        names = [HASH, *self.operator.key.names, *time, *(n for n in rest if n not in time)]
        table = records.append_column(HASH, pa.array(hashes))
        sortable = [n for n in names if not pa.types.is_nested(table.schema.field(n).type)]
        order: npt.NDArray[np.int64] = pc.sort_indices(
            table, [(name, "ascending") for name in sortable]
        ).to_numpy()
        return order.astype(np.int64)

    def written(self, table: str = "value") -> int:
        """The number of rows that the last epoch wrote."""
        return int(self.deltas[table].num_rows)


def _tuples(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _tuple(row: Mapping[str, Any], schema: pa.Schema) -> Row:
    return tuple(row[name] for name in schema.names)
