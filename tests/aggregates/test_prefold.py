"""Folded rows in place of records."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit.operators as ops
from godwit.operators import Aggregate, AggregateOperator
from godwit.testing.prefold import folded
from tests.support.aggregate_oracle import KINDS
from tests.support.tables import Row, Worker

FLOATS = st.sampled_from([0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf])
SUMMED = ("tinyint", "int", "bigint", "decimal")


def functions(kind: str) -> dict[str, Aggregate]:
    """All that can be folded early over a column of some type."""
    found = {"rows": ops.count(), "present": ops.count("v"), "low": ops.min("v")}
    found |= {"high": ops.max("v")}
    return found | ({"total": ops.sum("v"), "mean": ops.avg("v")} if kind in SUMMED else {})


@given(data=st.data())
def test_a_folded_row_leaves_what_its_records_leave(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(KINDS)))
    type_, values = KINDS[kind]
    values = FLOATS if kind in ("float", "double") else values
    schema = pa.schema({"k": pa.int64(), "v": type_})
    operator = AggregateOperator.of("a", "k", functions(kind), schema)
    assert operator.prefold is not None
    row = st.tuples(st.sampled_from([None, 1, 2]), st.none() | values)
    plain = Worker(operator, schema)
    early = Worker(operator.prefold.operator, operator.prefold.operator.input)
    for rows in data.draw(st.lists(st.lists(row, max_size=12), max_size=4)):
        assert repr(plain.feed(rows)) == repr(early.feed(_folded(operator, schema, rows)))
        assert repr(plain.deltas) == repr(early.deltas)


def _folded(operator: AggregateOperator, schema: pa.Schema, rows: list[Row]) -> list[Row]:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], []]
    arrays = [pa.array(*pair) for pair in zip(columns, schema.types, strict=True)]
    table = folded(pa.table(arrays, schema=schema), operator, None)
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize(
    "function", [ops.first("x"), ops.last("n"), ops.sum("x"), ops.avg("x"), ops.sum("d")]
)
def test_one_function_that_needs_the_records_needs_them_for_all(function: Aggregate) -> None:
    schema = pa.schema(
        {"k": pa.int64(), "n": pa.int64(), "x": pa.float64(), "d": pa.decimal128(29, 0)}
    )
    assert AggregateOperator.of("a", "k", {"rows": ops.count()}, schema).prefold is not None
    assert (
        AggregateOperator.of("a", "k", {"rows": ops.count(), "f": function}, schema).prefold is None
    )


def test_what_a_folded_row_has() -> None:
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", tz="UTC"), "n": pa.int64()})
    functions = {"records": ops.count(), "mean": ops.avg("n"), "t": ops.max("t")}
    operator = AggregateOperator.of("a", "k", functions, schema, time="t", delay="1 s")
    assert operator.prefold is not None
    assert operator.prefold.operator.input.names == [
        "k",
        "t",
        "_partial_records",
        "_partial_mean_sum",
        "_partial_mean_count",
        "_partial_t",
        "_records",
    ]
    assert operator.prefold.operator.describe() == operator.describe()
