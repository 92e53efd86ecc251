"""Operators under test, each with a model of it in plain Python."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

import godwit.operators as ops
from godwit.model.hashing import Hashes, hash_rows
from godwit.operators import AggregateOperator, Form, List, Map, Operator, StateMachine
from godwit.operators.definition import POSITION
from tests.support.aggregate_oracle import estimate, registers

Row = dict[str, Any]
Key = tuple[str | None, int | None]

KEY = ("name", "part")
KEYS: tuple[Key, ...] = (("a", 1), (None, 1), ("a", None), (None, None), ("", 0))


def few_hashes(keys: pa.Table) -> Hashes:
    """One of four hashes for every key: at the ends of the hash space, and near its start, in the
    same slice of a segment and in another one of it."""
    some = np.array([0, 1 << 51, 1 << 57, (1 << 64) - 1], np.uint64)
    chosen: Hashes = some[hash_rows(keys) % np.uint64(4)]
    return chosen


class Model(Protocol):
    """What an operator should do, without files, workers, or epochs that are run twice."""

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        """Apply the records of an epoch and return its outputs."""
        ...

    def state(self) -> dict[str, list[Row]]:
        """The rows of each table; those of a list are numbered in the column `place`."""
        ...


@runtime_checkable
class Finite(Protocol):
    """A model with event time."""

    def finish(self) -> None:
        """End the stream with the next epoch."""
        ...


@runtime_checkable
class Beginning(Protocol):
    """A model of inputs that can be idle."""

    def begin(self, now: float, decided_by: int, published_by: int) -> None:
        """When the next epoch began, and the processes that decided and published it."""
        ...


@dataclass(frozen=True, slots=True)
class Workload:
    """An operator, its model, and the records that the batches of a history are made of.

    There may be operators `before` it, which the model then includes: a chain, if the `edges` do
    not say what each takes, and which end in sinks; outputs then say their `sink`.
    """

    name: str
    schema: pa.Schema
    operator: Operator
    model: Callable[[], Model]
    records: tuple[Row, ...]
    before: tuple[Operator, ...] = ()
    edges: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return self.name


def tabulate(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows of a snapshot as a model gives them, without their bin and worker.

    The positions in a list must differ; what they are is the engine's own business.
    """
    positions: dict[Any, list[int]] = defaultdict(list)
    for row in rows:
        if POSITION in row:
            positions[_list_of(row)].append(row[POSITION])
    assert all(len(set(taken)) == len(taken) for taken in positions.values())
    places = {key: sorted(taken) for key, taken in positions.items()}
    return in_order(
        {name: value for name, value in row.items() if not name.startswith("_")}
        | ({"place": places[_list_of(row)].index(row[POSITION])} if POSITION in row else {})
        for row in rows
    )


def _list_of(row: Mapping[str, Any]) -> tuple[Key, Any]:
    """What tells a list from others: the key, of which the window may be a part."""
    return key_of(row), row.get("window_start")


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order that does not depend on the one in which they came."""
    return sorted(rows, key=repr)


def key_of(row: Mapping[str, Any]) -> Key:
    return row["name"], row["part"]


def row_of(key: Key, **columns: Any) -> Row:
    return {**dict(zip(KEY, key, strict=True)), **columns}


def in_total_order(rows: Sequence[Row], *columns: str) -> list[Row]:
    """Records in the order that operators are promised, as far as it matters: nulls are last."""
    return sorted(rows, key=lambda row: [(row[c] is None, row[c] or 0) for c in columns])


def combine(**columns: Sequence[Any]) -> tuple[Row, ...]:
    """Every combination of a key and the values of the other columns."""
    values = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return tuple(row_of(key, **value) for key, value in product(KEYS, values))


# -- aggregates ------------------------------------------------------------------------------------

KEY_FIELDS = [pa.field("name", pa.string()), pa.field("part", pa.int32())]
REGISTERS = 8  # of `approx_count_distinct` with an rsd of 0.4
_SALES = pa.schema([*KEY_FIELDS, ("n", pa.int64()), ("word", pa.string())])
_PRICES = pa.schema([*KEY_FIELDS, ("at", pa.int64()), ("price", pa.decimal128(6, 2))])


class Totals:
    """count, sum, min, max, avg and approx_count_distinct over all records of a key."""

    def __init__(self) -> None:
        self._seen: dict[Key, list[Row]] = defaultdict(list)

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        for row in rows:
            self._seen[key_of(row)].append(row)
        return [self._result(key) for key in set(map(key_of, rows))]

    def _result(self, key: Key) -> Row:
        row = self._folded(key)
        total, count = row.pop("mean_sum"), row.pop("mean_count")
        row["mean"] = float(total) / count if count else None
        del row["words_registers"]
        return row | {"words": estimate(self._registers(key), REGISTERS)}

    def _registers(self, key: Key) -> dict[int, int]:
        words = [row["word"] for row in self._seen[key] if row["word"] is not None]
        return registers(words, pa.string(), REGISTERS.bit_length() - 1)

    def _folded(self, key: Key) -> Row:
        numbers = [row["n"] for row in self._seen[key] if row["n"] is not None]
        words = [row["word"] for row in self._seen[key] if row["word"] is not None]
        return row_of(
            key,
            rows=len(self._seen[key]),
            present=len(numbers),
            total=sum(numbers) if numbers else None,
            low=min(words, default=None),
            high=max(numbers, default=None),
            mean_sum=Decimal(sum(numbers)) if numbers else None,
            mean_count=len(numbers),
            words_registers=packed(self._registers(key)),
        )

    def state(self) -> dict[str, list[Row]]:
        return {"value": [self._folded(key) for key in self._seen]}


def packed(registers: Mapping[int, int]) -> bytes:
    """As `approx_count_distinct` keeps them: from two of eight on there is a byte for each."""
    if len(registers) > 1:
        return bytes([registers.get(i, 0) for i in range(REGISTERS)]) + b"\0"
    return b"".join((i << 6 | rank).to_bytes(4, "big") for i, rank in registers.items())


class Ends:
    """The first and the last price by time, all, their sum and variance, and the two highest."""

    def __init__(self) -> None:
        self._rows: dict[Key, Row] = {}

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        for row in in_total_order(rows, "at", "price"):
            self._fold(row)
        changed = [self._rows[key] for key in set(map(key_of, rows))]
        shown = (*KEY, "head", "tail", "total", "all")
        return [
            {column: row[column] for column in shown}
            | {"spread": self._spread(row), "best": [{"at": one["at"]} for one in row["best"]]}
            for row in changed
        ]

    def _spread(self, row: Row) -> float | None:
        n, cents, squares = row["spread_count"], row["spread_sum"] or 0, row["spread_squares"] or 0
        exact = n * squares - (100 * cents) ** 2
        return float(exact) / 1e4 / n / (n - 1) if n > 1 else None

    def _fold(self, record: Row) -> None:
        new: Row = dict.fromkeys(("head", "head_time", "tail", "tail_time", "total"))
        new |= {"spread_count": 0, "spread_sum": None, "spread_squares": None}
        new |= {"all": [], "all_time": [], "best": []}
        row = self._rows.setdefault(key_of(record), row_of(key_of(record), **new))
        time, price = record["at"], record["price"]
        if time is not None:
            if row["head_time"] is None or time < row["head_time"]:
                row["head_time"], row["head"] = time, price
            if row["tail_time"] is None or time >= row["tail_time"]:
                row["tail_time"], row["tail"] = time, price
        if price is not None:
            row["total"] = price + (row["total"] or Decimal("0.00"))
            best = [*row["best"], {"price": price, "at": time}]
            best.sort(key=lambda one: (one["price"], one["at"] is not None, one["at"] or 0))
            row["best"] = best[:-3:-1]
            row["spread_count"] += 1
            row["spread_sum"] = row["total"]
            row["spread_squares"] = (100 * price) ** 2 + (row["spread_squares"] or 0)
            if time is not None:
                at = bisect_right(row["all_time"], time)
                row["all"] = [*row["all"][:at], price, *row["all"][at:]]
                row["all_time"] = [*row["all_time"][:at], time, *row["all_time"][at:]]

    def state(self) -> dict[str, list[Row]]:
        return {"value": [dict(row) for row in self._rows.values()]}


TOTALS = Workload(
    "totals",
    _SALES,
    AggregateOperator.of(
        "totals",
        KEY,
        {
            "rows": ops.count(),
            "present": ops.count("n"),
            "total": ops.sum("n"),
            "low": ops.min("word"),
            "high": ops.max("n"),
            "mean": ops.avg("n"),
            "words": ops.approx_count_distinct("word", rsd=0.4),
        },
        _SALES,
    ),
    Totals,
    combine(n=(1, -7, 1 << 40, None), word=("b", None, "a", "")),
)

ENDS = Workload(
    "ends",
    _PRICES,
    AggregateOperator.of(
        "ends",
        KEY,
        {
            "head": ops.first("price"),
            "tail": ops.last("price"),
            "total": ops.sum("price"),
            "all": ops.collect_list("price"),
            "spread": ops.variance("price"),
            "best": ops.top(2, by="price", of="at"),
        },
        _PRICES,
        time="at",
    ),
    Ends,
    combine(at=(1, 1, 2, 0, None), price=(Decimal("0.50"), None, Decimal("-2.00"), None, None)),
)


# -- state machines --------------------------------------------------------------------------------

COMMANDS = pa.schema([*KEY_FIELDS, ("op", pa.string()), ("x", pa.int64())])
FORMS: dict[str, Form] = {"log": List("x long"), "seen": Map("item long", "n long")}


def tally(key: Any, value: Any, state: Any) -> list[tuple[Any, ...]]:
    """Commands to a value: count, keep an array, set to null, remove."""
    match value.op:
        case "add":
            state.count = (state.count or 0) + value.x
        case "push" if state.tags is None:
            state.tags = [value.x]
        case "push":
            state.tags.append(value.x)
        case "null":
            state.count = None
        case "clear":
            state.clear()
    return [(*key, value.op, state.exists, state.count, state.tags)]


def collect(key: Any, value: Any, state: Any) -> list[tuple[Any, ...]] | None:
    """Commands to a list and a map; only some of them read, and only those return something."""
    match value.op:
        case "append":
            state.log.append(value.x)
        case "wipe":
            state.log.clear()
        case "put":
            state.seen[value.x] = 7
        case "drop":
            del state.seen[value.x]
        case "empty":
            state.seen.clear()
        case "bump":
            state.seen[value.x] = state.seen.get(value.x, 0) + 1
        case "length":
            return [(*key, len(state.log), len(state.seen))]
        case "read":
            return [(*key, x, None) for x in state.log] + [(*key, *e) for e in state.seen.items()]
    return None


class PlainValue:
    """A row exists at the end of an epoch if it existed before or has a value that is not None."""

    def __init__(self) -> None:
        self._row = False
        self.clear()

    @property
    def exists(self) -> bool:
        return self._row or self.count is not None or self.tags is not None

    def clear(self) -> None:
        self._row = False
        self.count: int | None = None
        self.tags: list[int | None] | None = None

    def settle(self) -> None:
        self._row = self.exists


class PlainMap(dict[Any, Any]):
    def __delitem__(self, item: Any) -> None:
        self.pop(item, None)


class PlainTally:
    def __init__(self) -> None:
        self._values: dict[Key, PlainValue] = defaultdict(PlainValue)

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        outputs = []
        for row in in_total_order(rows, "op", "x"):
            value = SimpleNamespace(op=row["op"], x=row["x"])
            for *_, op, exists, count, tags in tally(key_of(row), value, self._values[key_of(row)]):
                tags = None if tags is None else list(tags)
                outputs.append(row_of(key_of(row), op=op, there=exists, count=count, tags=tags))
        for kept in self._values.values():
            kept.settle()
        return outputs

    def state(self) -> dict[str, list[Row]]:
        rows = [
            row_of(key, count=value.count, tags=None if value.tags is None else list(value.tags))
            for key, value in self._values.items()
            if value.exists
        ]
        return {"value": rows}


class PlainCollect:
    def __init__(self) -> None:
        self._logs: dict[Key, list[int | None]] = defaultdict(list)
        self._maps: dict[Key, PlainMap] = defaultdict(PlainMap)

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        outputs = []
        for row in in_total_order(rows, "op", "x"):
            state = SimpleNamespace(log=self._logs[key_of(row)], seen=self._maps[key_of(row)])
            value = SimpleNamespace(op=row["op"], x=row["x"])
            for *_, one, other in collect(key_of(row), value, state) or ():
                outputs.append(row_of(key_of(row), one=one, other=other))
        return outputs

    def state(self) -> dict[str, list[Row]]:
        return {
            "log": [
                row_of(key, x=x, place=place)
                for key, log in self._logs.items()
                for place, x in enumerate(log)
            ],
            "seen": [
                row_of(key, item=item, n=n)
                for key, seen in self._maps.items()
                for item, n in seen.items()
            ],
        }


TALLY = Workload(
    "tally",
    COMMANDS,
    StateMachine.of(
        "tally",
        KEY,
        tally,
        "count long, tags array<long>",
        "name string, part int, op string, there boolean, count long, tags array<long>",
        COMMANDS,
    ),
    PlainTally,
    combine(op=("add", "push", "clear", "null", "push", "add"), x=(1, 2, None, None, None, -1)),
)

COLLECT = Workload(
    "collect",
    COMMANDS,
    StateMachine.of(
        "collect", KEY, collect, FORMS, "name string, part int, one long, other long", COMMANDS
    ),
    PlainCollect,
    combine(
        op=("append", "put", "wipe", "drop", "empty", "bump", "read", "length", "append", "bump"),
        x=(1, 1, None, 1, None, 1, None, None, None, 2),
    ),
)
