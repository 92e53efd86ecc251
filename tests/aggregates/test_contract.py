"""What every aggregate promises, ours and a user's alike."""

import inspect
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit.operators as ops
from godwit import aggregates
from godwit.aggregates.base import Columns, GroupedRecords
from godwit.aggregates.variance import Variance
from godwit.model.hashing import hash_rows
from godwit.model.keys import distinct
from godwit.model.schema import parse, to_ddl
from godwit.operators import Aggregate, AggregateOperator
from godwit.testing.prefold import folded
from tests.support.aggregate_oracle import KINDS, model, order
from tests.support.own_aggregates import TopThree, variance
from tests.support.tables import Row, Worker

WHOLE = ("int", "bigint", "decimal")  # sums of these do not depend on the order


@dataclass(frozen=True, slots=True)
class Case:
    """An aggregate over a column `v` of some type, with a time or without."""

    aggregate: Aggregate
    kind: str
    prefolds: bool
    timed: bool = False

    @property
    def schema(self) -> pa.Schema:
        return pa.schema({"k": pa.int64(), "v": KINDS[self.kind][0], "t": pa.int64()})

    @property
    def operator(self) -> AggregateOperator:
        time = "t" if self.timed else None
        return AggregateOperator.of("a", "k", {"f": self.aggregate}, self.schema, time=time)

    def __str__(self) -> str:
        return f"{self.aggregate} of {self.kind}{' by time' if self.timed else ''}"


def cases() -> Iterator[Case]:
    yield Case(ops.count(), "int", prefolds=True)
    yield Case(ops.count("v"), "string", prefolds=True)
    for kind in ("double", "string", "timestamp"):
        yield Case(ops.min("v"), kind, prefolds=True)
        yield Case(ops.max("v"), kind, prefolds=True)
    for timed in (False, True):
        yield Case(ops.first("v"), "string", prefolds=False, timed=timed)
        yield Case(ops.last("v"), "decimal", prefolds=False, timed=timed)
    for kind in ("int", "bigint", "double", "decimal", "wide decimal"):
        yield Case(ops.sum("v"), kind, prefolds=kind in WHOLE)
        yield Case(ops.avg("v"), kind, prefolds=kind in WHOLE)
    for kind in ("tinyint", "bigint", "double", "decimal"):
        yield Case(ops.variance("v"), kind, prefolds=kind != "double")
        yield Case(ops.stddev("v", sample=False), kind, prefolds=kind != "double")
    yield Case(ops.any("v"), "boolean", prefolds=True)
    yield Case(ops.every("v"), "boolean", prefolds=True)
    for timed in (False, True):
        yield Case(ops.collect_list("v"), "string", prefolds=False, timed=timed)
    for kind in ("bigint", "double", "string", "boolean", "wide decimal", "timestamp"):
        yield Case(ops.top(3, by="v", of="v"), kind, prefolds=False)
        yield Case(ops.top(2, by="v", of="v", smallest=True), kind, prefolds=False)
        yield Case(ops.approx_count_distinct("v"), kind, prefolds=True)
    yield Case(ops.approx_count_distinct("v", 0.4), "tinyint", prefolds=True)
    for kind in ("bigint", "double", "decimal"):
        yield Case(ops.approx_quantiles("v", [0, 0.5, 1]), kind, prefolds=False)
    yield Case(variance("v"), "int", prefolds=True)
    yield Case(TopThree("v"), "bigint", prefolds=False)


CASES = list(cases())
FEWER = settings(max_examples=settings().max_examples // 4)  # for there are many cases
EVERY = pytest.mark.parametrize("case", CASES, ids=str)
PREFOLDING = pytest.mark.parametrize("case", [c for c in CASES if c.prefolds], ids=str)

MERGED = [c for c in CASES if c.operator.aggregates[0].merges]
MERGING = pytest.mark.parametrize("case", MERGED, ids=str)


@st.composite
def records(draw: st.DrawFn, case: Case, keys: Sequence[int | None] = (None, 1, 2)) -> list[Row]:
    """Records with distinct times, in the order that an operator is promised within a key."""
    pair = st.tuples(st.sampled_from(keys), st.none() | KINDS[case.kind][1])
    pairs = draw(st.lists(pair, max_size=10))
    times = draw(st.permutations(range(len(pairs))))
    rows = [(*pair, time) for pair, time in zip(pairs, times, strict=True)]
    return sorted(rows, key=_by_time if case.timed else _by_content)


def _by_time(row: Row) -> Any:
    return row[2]


def _by_content(row: Row) -> Any:
    return row[1] is None, order(row[1]), row[2]


@EVERY
@FEWER
@given(data=st.data())
def test_the_result_is_that_of_plain_python_and_epochs_do_not_show(
    case: Case, data: st.DataObject
) -> None:
    """Where the order of records matters, epochs split them in order."""
    rows = data.draw(records(case))
    split = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    if case.operator.ordered and not case.timed:
        split.sort()
    epochs = [[row for row, own in zip(rows, split, strict=True) if own == n] for n in range(3)]
    worker = Worker(case.operator, case.schema)
    found = {row[0]: row[1] for epoch in epochs for row in worker.feed(epoch)}
    values: dict[Any, list[Any]] = {}
    for key, value, _ in rows:
        values.setdefault(key, []).append(value)
    kind = KINDS[case.kind][0]
    assert found == {key: model(case.aggregate, kind, v) for key, v in values.items()}


@EVERY
def test_it_prefolds_where_it_should(case: Case) -> None:
    assert (case.operator.prefold is not None) == case.prefolds


@PREFOLDING
@FEWER
@given(data=st.data())
def test_prefolded_or_not_does_not_show(case: Case, data: st.DataObject) -> None:
    operator, schema = case.operator, case.schema
    assert operator.prefold is not None
    merging = operator.prefold.operator
    plain, early = Worker(operator, schema), Worker(merging, merging.input)
    for _ in range(2):
        rows = data.draw(records(case))
        table = pa.Table.from_pylist([dict(zip("kvt", row, strict=True)) for row in rows], schema)
        few = folded(table.select(operator.input.names), operator, None)
        assert repr(plain.feed(rows)) == repr(
            early.feed(tuple(r.values()) for r in few.to_pylist())
        )
        assert repr(plain.deltas) == repr(early.deltas)


@PREFOLDING
@FEWER
@given(data=st.data())
def test_merging_is_associative_and_knows_no_order(case: Case, data: st.DataObject) -> None:
    merge = case.aggregate.merge
    nothing = [pa.nulls(2, kind) for kind in case.operator.tables[0].value.types]
    a, b, c = (_left_on(nothing, case, data.draw(records(case, keys=(1, 2)))) for _ in range(3))
    assert _plain(merge(merge(a, b), c)) == _plain(merge(a, merge(b, c)))
    assert _plain(merge(a, b)) == _plain(merge(b, a))
    assert _plain(merge(nothing, a)) == _plain(a)


@MERGING
@FEWER
@given(data=st.data())
def test_merging_in_the_order_of_time_is_folding_in_that_order(
    case: Case, data: st.DataObject
) -> None:
    """So windows are merged of panes, and sessions of those that a record bridges."""
    operator = AggregateOperator.of("a", "k", {"f": case.aggregate}, case.schema, time="t")
    rows = sorted(data.draw(records(case, keys=(1, 2))), key=_by_time)
    rows = [(1, None, -2), (2, None, -1), *rows]
    cut = data.draw(st.integers(2, len(rows)))
    both = [(key, None, cut) for key in (1, 2)]  # each part has a record of each key
    parts = rows[:cut], [*both, *((key, value, time + 99) for key, value, time in rows[cut:])]
    one, halves = _state(operator, case, [*parts[0], *parts[1]]), []
    for part in parts:
        halves.append(_state(operator, case, part))
    keys = pa.table({"k": [1, 2]})
    merged = operator.merged(0, keys, np.arange(2), halves[0], halves[1])
    if case.kind == "double" and isinstance(case.aggregate, Variance):  # means are rounded
        for found, expected in zip(merged.columns, one.columns, strict=True):
            assert found.to_pylist() == pytest.approx(expected.to_pylist())
    else:
        assert _plain(merged.columns) == _plain(one.columns)
    nothing = merged.schema.empty_table().take(pa.array([None, None], pa.int64()))
    assert operator.merged(0, keys, np.arange(2), merged, nothing).equals(merged)
    assert operator.merged(0, keys, np.arange(2), nothing, merged).equals(merged)


def _state(operator: AggregateOperator, case: Case, rows: list[Row]) -> pa.Table:
    """What records leave on nothing, of key 1 and of key 2."""
    worker = Worker(operator, case.schema)
    worker.feed(rows)
    delta = worker.deltas["value"].sort_by("k")
    return delta.select(operator.tables[0].value.names).combine_chunks()


def _left_on(state: Columns, case: Case, rows: list[Row]) -> Columns:
    """What records of two keys leave; each has one at least."""
    both = [(1, None, 0), (2, None, 0), *rows]
    table = pa.Table.from_pylist([dict(zip("kvt", r, strict=True)) for r in both], case.schema)
    keys = table.select(["k"])
    return case.aggregate.fold(
        GroupedRecords(table, distinct(hash_rows(keys), keys, ordered=False)), state
    )


def _plain(columns: Columns) -> str:
    return repr([column.to_pylist() for column in columns])


@EVERY
def test_state_and_output_are_known_to_spark(case: Case) -> None:
    for schema in (case.operator.tables[0].value, case.operator.output):
        assert parse(to_ddl(schema)) == schema


@EVERY
def test_it_pickles_and_describes_itself_as_before(case: Case) -> None:
    operator = case.operator
    copy = pickle.loads(pickle.dumps(operator))
    assert copy == operator
    assert copy.describe() == operator.describe()
    (described,) = operator.describe().functions.values()
    assert described == str(case.aggregate) + (" by t" if case.timed else "")


def test_all_of_ours_merge() -> None:
    assert {type(case.aggregate) for case in CASES} - {type(c.aggregate) for c in MERGED} == {
        TopThree
    }


def test_no_aggregate_of_ours_is_left_out() -> None:
    package = [
        import_module(found.name)
        for found in iter_modules(aggregates.__path__, "godwit.aggregates.")
    ]
    ours = {
        value
        for module in package
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Aggregate)
        if not (inspect.isabstract(value) or name.startswith("_"))
    }
    assert ours
    assert ours <= {type(case.aggregate) for case in CASES}
