"""Aggregates against Spark's own."""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import godwit.operators as ops
from godwit.model.schema import parse
from godwit.operators import AggregateOperator
from tests.support.tables import Row, Worker

COLUMNS = (
    "k int, i1 tinyint, i4 int, i8 bigint, f4 float, f8 double, d1 decimal(7,2), "
    "d2 decimal(36,10), s string, x binary, b boolean, day date, t timestamp, ntz timestamp_ntz"
)
SHARES = [0.0, 0.25, 0.5, 1.0]


def sample(rng: random.Random) -> Row:
    moment = datetime(1960, 1, 1) + timedelta(microseconds=rng.randrange(10**16))
    row = (
        rng.randrange(-128, 128),
        rng.randrange(-(1 << 31), 1 << 31),
        rng.randrange(-(1 << 50), 1 << 50),
        rng.choice([0.5, -0.0, 0.0, 3.25, float("nan"), float("-inf")]),
        rng.choice([0.5, -7.75, 1e300, float("nan"), float("inf")]),
        Decimal(rng.randrange(-(10**7) + 1, 10**7)).scaleb(-2),
        Decimal(rng.randrange(-(10**12), 10**12)).scaleb(-10),
        "".join(rng.choices("abé\U0001f600", k=rng.randrange(4))),
        rng.randbytes(rng.randrange(3)),
        rng.random() < 0.5,
        date(1960, 1, 1) + timedelta(days=rng.randrange(30_000)),
        moment.replace(tzinfo=UTC),
        moment,
    )
    return (rng.randrange(40), *(value if rng.random() < 0.7 else None for value in row))


@pytest.mark.spark
def test_results_and_types_are_sparks(spark: SparkSession) -> None:
    rng = random.Random(7)
    rows = [sample(rng) for _ in range(300)]
    schema = parse(COLUMNS)
    names = schema.names[1:]
    numbers = [n for n in names if n[0] in "ifd" and n != "day"]
    functions = {f"count_{name}": ops.count(name) for name in names}
    functions |= {f"min_{name}": ops.min(name) for name in names}
    functions |= {f"max_{name}": ops.max(name) for name in names}
    functions |= {f"sum_{name}": ops.sum(name) for name in numbers}
    functions |= {f"avg_{name}": ops.avg(name) for name in numbers}
    functions |= {f"var_{name}": ops.variance(name) for name in numbers}
    functions |= {f"pop_{name}": ops.stddev(name, sample=False) for name in numbers}
    functions |= {"any_b": ops.any("b"), "every_b": ops.every("b")}
    functions |= {f"near_{name}": ops.approx_count_distinct(name) for name in names}
    whole = [name for name in numbers if name[0] != "f"]  # Spark has no place for NaN there
    functions |= {f"mid_{name}": ops.approx_quantiles(name, SHARES) for name in whole}
    operator = AggregateOperator.of("a", "k", functions, schema)

    worker = Worker(operator, schema)
    found = {row[0]: row[1:] for epoch in range(3) for row in worker.feed(rows[epoch::3])}

    spark_rows = spark.createDataFrame(rows, COLUMNS)
    columns = [_column(name, function) for name, function in functions.items()]
    arrow = spark_rows.groupBy("k").agg(*columns).toArrow()
    types = {f.name: f.type for f in arrow.schema if not f.name.startswith("mid_")}
    assert types.items() <= {f.name: f.type for f in operator.output}.items()
    for row in arrow.to_pylist():
        for value, (name, wanted) in zip(found[row["k"]], list(row.items())[1:], strict=True):
            assert _same(name, value, wanted), (row["k"], name, value, wanted)


def _column(name: str, function: ops.Aggregate) -> Any:
    column = function.columns[0]
    match name.partition("_")[0]:
        case "pop":
            return F.stddev_pop(column).alias(name)
        case "mid":
            many = 10_000
            return F.percentile_approx(F.col(column).cast("double"), SHARES, many).alias(name)
    return F.expr(str(function)).alias(name)


def _same(name: str, value: Any, wanted: Any) -> bool:
    if name.startswith("near_") or wanted is None:  # another estimate from the same registers
        return value is None if wanted is None else abs(value - wanted) <= 1
    if name.startswith("mid_"):
        return bool(value == pytest.approx(wanted, rel=0.01, nan_ok=True))
    if isinstance(wanted, float):  # Spark's spread is that of rounded means
        rel = 1e-8 if name.startswith(("var_", "pop_")) else 1e-14
        return bool(value == pytest.approx(wanted, rel=rel, nan_ok=True))
    return bool(value == wanted)
