"""Aggregates that users write: what is refused, and what a checkpoint keeps of ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

import godwit as gw
from godwit.errors import ConfigError, OperatorError
from godwit.operators import Aggregate, AggregateOperator
from tests.support.own_aggregates import TopThree, variance
from tests.support.tables import Worker

SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64()})


@dataclass(frozen=True)
class Rows(Aggregate):
    """A count, of which subclasses get one thing wrong."""

    scale: float = 0.5

    @property
    def columns(self) -> Sequence[str]:
        return ()

    def state(self, input: gw.AggregateInput) -> Mapping[str, pa.DataType]:
        return {"": pa.int64()}

    def output(self, input: gw.AggregateInput) -> pa.DataType:
        return pa.int64()

    def fold(self, records: gw.GroupedRecords, state: Sequence[pa.Array]) -> Sequence[pa.Array]:
        return [pa.array(records.sizes)]


@dataclass(frozen=True)
class WithoutMerge(Rows):
    def partial(self, input: gw.AggregateInput) -> Mapping[str, str]:
        return {"": "count(1)"}


@dataclass(frozen=True)
class OtherColumns(Rows):
    def partial(self, input: gw.AggregateInput) -> Mapping[str, str]:
        return {"_n": "count(1)"}


@dataclass(frozen=True)
class OtherType(Rows):
    def fold(self, records: gw.GroupedRecords, state: Sequence[pa.Array]) -> Sequence[pa.Array]:
        return [pa.array(records.sizes, pa.int32())]


@dataclass(frozen=True)
class FewerRows(Rows):
    def result(self, state: Sequence[pa.Array], output: pa.DataType) -> pa.Array:
        return state[0].slice(1)


class Plain(Rows):
    """No dataclass, so nobody sees its argument."""

    def __init__(self, step: int) -> None:
        self.step = step


def operator(function: Aggregate) -> AggregateOperator:
    return AggregateOperator.of("a", "k", {"n": gw.count(), "f": function}, SCHEMA)


def test_it_is_described_by_its_name_and_arguments() -> None:
    described = operator(Rows()).describe().functions
    assert described == {"n": "count()", "f": "rows(0.5)"}
    assert str(TopThree("n")) == "topthree(n)"
    assert str(variance("n")) == "variance(n)"


def test_one_without_a_partial_is_not_folded_early_nor_are_its_neighbours() -> None:
    assert operator(gw.sum("n")).prefold is not None
    assert operator(Rows()).prefold is None


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (WithoutMerge(), r"f = withoutmerge\(0.5\): it has a partial, but no merge; define it"),
        (OtherColumns(), r"its state has the columns \[''\], and its partial has \['_n'\]"),
        (Plain(3), r"f = plain\(0.5\): put @dataclass\(frozen=True\) above its class"),
        (variance("k"), r"f = variance\(k\): column 'k' is no 32-bit integer"),
        (variance("x"), r"variance\(x\) column 'x' is not in the input: k, n"),
    ],
)
def test_refuses(function: Aggregate, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        operator(function)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (OtherType(), r"f = othertype\(0.5\) returned columns of types .*int32.*announced .*int64"),
        (FewerRows(), r"f = fewerrows\(0.5\) returned 1 rows for 2 groups"),
    ],
)
def test_one_that_returns_other_columns_than_it_said_is_named(
    function: Aggregate, message: str
) -> None:
    with pytest.raises(OperatorError, match=message):
        Worker(operator(function), SCHEMA).feed([("a", 1), ("b", 2)])


@pytest.mark.parametrize(
    ("time", "state", "functions"),
    [
        (None, "`f` string, `f_seen` boolean, `l` decimal(7,2)", ("first(s)", "last(d)")),
        (
            "t",
            "`f` string, `f_time` timestamp, `l` decimal(7,2), `l_time` timestamp",
            ("first(s) by t", "last(d) by t"),
        ),
    ],
)
def test_checkpoints_describe_ours_as_they_always_did(
    time: str | None, state: str, functions: tuple[str, str]
) -> None:
    """What version 0.1 wrote: a query must go on with it."""
    schema = pa.schema(
        {
            "k": pa.string(),
            "t": pa.timestamp("us", "UTC"),
            "n": pa.int64(),
            "i": pa.int32(),
            "x": pa.float64(),
            "d": pa.decimal128(7, 2),
            "s": pa.string(),
        }
    )
    named = {
        "c": gw.count(),
        "p": gw.count("s"),
        "sn": gw.sum("n"),
        "sx": gw.sum("x"),
        "sd": gw.sum("d"),
        "an": gw.avg("n"),
        "ai": gw.avg("i"),
        "ax": gw.avg("x"),
        "ad": gw.avg("d"),
        "lo": gw.min("s"),
        "hi": gw.max("t"),
        "f": gw.first("s"),
        "l": gw.last("d"),
    }
    described = AggregateOperator.of("a", "k", named, schema, time=time).describe().to_json()
    assert list(described) == ["kind", "key", "output", "tables", "functions"]
    assert described["output"] == (
        "`k` string, `c` bigint, `p` bigint, `sn` bigint, `sx` double, `sd` decimal(17,2), "
        "`an` double, `ai` double, `ax` double, `ad` decimal(11,6), `lo` string, `hi` timestamp, "
        "`f` string, `l` decimal(7,2)"
    )
    assert described["tables"]["value"]["value"] == (
        "`c` bigint, `p` bigint, `sn` bigint, `sx` double, `sd` decimal(17,2), "
        "`an_sum` decimal(38,0), `an_count` bigint, `ai_sum` bigint, `ai_count` bigint, "
        "`ax_sum` double, `ax_count` bigint, `ad_sum` decimal(17,2), `ad_count` bigint, "
        f"`lo` string, `hi` timestamp, {state}"
    )
    assert list(described["functions"].values()) == [
        *("count()", "count(s)", "sum(n)", "sum(x)", "sum(d)"),
        *("avg(n)", "avg(i)", "avg(x)", "avg(d)", "min(s)", "max(t)"),
        *functions,
    ]


def test_checkpoints_describe_structs_lists_and_sketches_as_they_always_did() -> None:
    schema = pa.schema(
        {
            "k": pa.string(),
            "t": pa.timestamp("us", "UTC"),
            "n": pa.int64(),
            "i": pa.int32(),
            "x": pa.float64(),
            "d": pa.decimal128(12, 2),
            "b": pa.bool_(),
        }
    )
    named = {
        "vn": gw.variance("n"),
        "vi": gw.variance("i", sample=False),
        "vx": gw.stddev("x"),
        "vd": gw.stddev("d", sample=False),
        "a": gw.any("b"),
        "e": gw.every("b"),
        "l": gw.collect_list("i"),
        "top": gw.top(2, by="x", of=["n", "d"]),
        "c": gw.approx_count_distinct("n"),
        "q": gw.approx_quantiles("n", [0.5, 1]),
    }
    described = AggregateOperator.of("a", "k", named, schema, time="t").describe().to_json()
    assert described["output"] == (
        "`k` string, `vn` double, `vi` double, `vx` double, `vd` double, `a` boolean, `e` boolean, "
        "`l` array<int>, `top` array<struct<`n`:bigint,`d`:decimal(12,2)>>, `c` bigint, "
        "`q` array<double>"
    )
    wide = "decimal(38,0)"
    assert described["tables"]["value"]["value"] == (
        f"`vn_count` bigint, `vn_sum` {wide}, `vn_squares` {wide}, `vn_upper` {wide}, "
        f"`vi_count` bigint, `vi_sum` {wide}, `vi_squares` {wide}, "
        "`vx_count` bigint, `vx_mean` double, `vx_spread` double, "
        f"`vd_count` bigint, `vd_sum` decimal(38,2), `vd_squares` {wide}, `vd_upper` {wide}, "
        "`a` boolean, `e` boolean, `l` array<int>, `l_time` array<timestamp>, "
        "`top` array<struct<`x`:double,`n`:bigint,`d`:decimal(12,2)>>, `c_registers` binary, "
        "`q_near` array<int>, `q_counts` array<bigint>"
    )
    assert list(described["functions"].values()) == [
        *("variance(n)", "variance(i, sample=False)", "stddev(x)", "stddev(d, sample=False)"),
        *("any(b)", "every(b)", "collect_list(i) by t", "top(2, by=x, of=n+d)"),
        *("approx_count_distinct(n, 0.05)", "approx_quantiles(n, [0.5, 1.0], 0.01)"),
    ]
