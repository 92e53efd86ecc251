"""Random histories of state tables, and the plain dictionaries that they should amount to."""

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import strategies as st

from godwit.state.run import SEGMENT_BITS, Run
from godwit.state.table import CLEAR, DELETE, UPSERT, TableSpec
from godwit.state.view import View

Key = tuple[Any, ...]
Sub = tuple[Any, ...]
Value = tuple[Any, ...]
Model = dict[Key, dict[Sub, Value]]

# So few hashes that most keys collide; they are at the borders of segments.
HASHES = (0, 1, 2**58 - 1, 2**58, 2**63, 2**64 - 1)


@dataclass(frozen=True)
class Kind:
    """A table, and all the keys and sub-keys that its histories use."""

    spec: TableSpec
    keys: tuple[Key, ...]
    subs: tuple[Sub, ...]


@dataclass(frozen=True)
class Change:
    """What an epoch does to one key: perhaps clear it, then write or (None) delete sub-keys."""

    clear: bool = False
    rows: dict[Sub, Value | None] = field(default_factory=dict)


Delta = dict[Key, Change]

VALUE = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string()))])
TIMES = (None, datetime(2024, 2, 29, tzinfo=UTC), datetime(1969, 7, 20, tzinfo=UTC))

KINDS = {
    "value": Kind(
        TableSpec("value", pa.schema([("k", pa.int64())]), pa.schema([]), VALUE),
        keys=tuple((k,) for k in (None, *range(9))),
        subs=((),),
    ),
    "composite": Kind(
        TableSpec(
            "composite",
            pa.schema([("name", pa.string()), ("price", pa.decimal128(9, 2)), ("b", pa.bool_())]),
            pa.schema([]),
            VALUE,
        ),
        keys=tuple(
            (name, price, flag)
            for name in (None, "", "a")
            for price in (None, Decimal("0.10"))
            for flag in (None, True)
        ),
        subs=((),),
    ),
    "list": Kind(
        TableSpec(
            "list", pa.schema([("k", pa.string())]), pa.schema([("_pos", pa.int64())]), VALUE
        ),
        keys=((None,), ("",), ("a",), ("b",), ("c",)),
        subs=tuple((pos,) for pos in range(6)),
    ),
    "map": Kind(
        TableSpec(
            "map", pa.schema([("k", pa.binary())]), pa.schema([("item", pa.string())]), VALUE
        ),
        keys=((None,), (b"",), (b"a",), (b"b",)),
        subs=((None,), ("",), ("x",), ("xy",)),
    ),
    "composite map": Kind(
        TableSpec(
            "composite map",
            pa.schema([("k", pa.int32())]),
            pa.schema([("at", pa.timestamp("us", tz="UTC")), ("b", pa.bool_())]),
            VALUE,
        ),
        keys=((None,), (1,), (2,)),
        subs=tuple((at, flag) for at in TIMES for flag in (None, False, True)),
    ),
}

kinds = st.sampled_from(sorted(KINDS)).map(KINDS.__getitem__)
values = st.tuples(
    st.none() | st.integers(0, 9), st.none() | st.lists(st.sampled_from("ab"), max_size=2)
)


def deltas(kind: Kind) -> st.SearchStrategy[Delta]:
    """What one epoch may do. A value is written, deleted or cleared: it has one row."""
    rows = st.dictionaries(st.sampled_from(kind.subs), st.none() | values, max_size=4)
    change = st.builds(Change, st.booleans(), rows)
    if not len(kind.spec.sub):
        change = st.builds(Change, st.just(True)) | st.builds(Change, st.just(False), rows)
    return st.dictionaries(st.sampled_from(kind.keys), change, max_size=6)


def hash_of(key: Key) -> int:
    return HASHES[zlib.crc32(repr(key).encode()) % len(HASHES)]


def apply(model: Model, delta: Delta) -> Model:
    """The model after one more epoch."""
    result = {key: dict(rows) for key, rows in model.items()}
    for key, change in delta.items():
        rows = {} if change.clear else result.get(key, {})
        rows |= {sub: value for sub, value in change.rows.items() if value is not None}
        for sub, value in change.rows.items():
            if value is None:
                rows.pop(sub, None)
        result[key] = rows
    return {key: rows for key, rows in result.items() if rows}


def run_of(kind: Kind, delta: Delta, seed: int = 0) -> Run:
    """The delta as a run; rows of equal hash come in any order, even those of several keys."""
    nothing = (None,) * len(kind.subs[0])
    rows = []
    for key, change in delta.items():
        if change.clear:
            rows.append((hash_of(key), CLEAR, *key, *nothing, None, None))
        for sub, value in change.rows.items():
            op = UPSERT if value is not None else DELETE
            rows.append((hash_of(key), op, *key, *sub, *(value or (None, None))))
    random.Random(seed).shuffle(rows)
    rows.sort(key=lambda row: row[0])
    schema = kind.spec.schema
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [
        pa.array(list(values), type) for values, type in zip(columns, schema.types, strict=True)
    ]
    return Run.of(pa.table(arrays, schema=schema))


def view_of(kind: Kind, runs: Sequence[Run]) -> View:
    """The view of runs, given newest first."""

    def segments(segment: int) -> list[Run]:
        width = 1 << (64 - SEGMENT_BITS)
        slices = [run.between(segment * width, (segment + 1) * width) for run in runs]
        return slices if any(map(len, slices)) else []

    return View(kind.spec, segments)


def needles(kind: Kind, keys: Sequence[Key]) -> tuple[npt.NDArray[np.uint64], pa.Table]:
    """Keys as `View` takes them: in hash order."""
    keys = sorted(keys, key=hash_of)
    columns = [
        pa.array([key[i] for key in keys], field.type) for i, field in enumerate(kind.spec.key)
    ]
    hashes = np.array([hash_of(key) for key in keys], np.uint64)
    return hashes, pa.table(columns, schema=kind.spec.key)


def read(kind: Kind, runs: Sequence[Run]) -> Model:
    """The model that runs, given newest first, amount to, read row by row."""
    model: Model = {}
    for run in reversed(runs):
        cleared = [row for row in tuples(run.rows) if row[1] == CLEAR]
        for row in cleared:
            model.pop(split(kind, row)[0], None)
        for row in tuples(run.rows):
            key, sub, value = split(kind, row)
            if row[1] == UPSERT:
                model.setdefault(key, {})[sub] = value
            elif row[1] == DELETE:
                model.get(key, {}).pop(sub, None)
    return {key: rows for key, rows in model.items() if rows}


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


def split(kind: Kind, row: tuple[Any, ...]) -> tuple[Key, Sub, Value]:
    """Key, sub-key and value of a row of a run."""
    keys, subs = len(kind.spec.key), len(kind.spec.sub)
    return row[2 : 2 + keys], row[2 + keys : 2 + keys + subs], row[2 + keys + subs :]


def order_of(sub: Sub) -> tuple[Any, ...]:
    """What sub-keys are sorted by: nulls come last."""
    return tuple((part is None, "" if part is None else part) for part in sub)
