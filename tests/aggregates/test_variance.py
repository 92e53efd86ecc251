"""Variances: exact where that can be, stable where it cannot."""

import math
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from godwit.errors import ConfigError
from godwit.operators import AggregateOperator
from tests.support.tables import Worker

LONG = 1 << 63
BOTH = {"s": gw.variance("v"), "p": gw.variance("v", sample=False)}


def results(kind: pa.DataType, *epochs: list[Any]) -> Any:
    schema = pa.schema({"k": pa.int64(), "v": kind})
    worker = Worker(AggregateOperator.of("a", "k", BOTH, schema), schema)
    *_, ((_, sample, population),) = [worker.feed((1, v) for v in values) for values in epochs]
    return sample, population


@given(st.lists(st.integers(-LONG, LONG - 1) | st.sampled_from([-LONG, LONG - 1]), min_size=2))
def test_variances_of_all_longs_are_rounded_once(values: list[int]) -> None:
    """Also where the sum of squares has more digits than a decimal."""
    sample, population = results(pa.int64(), values[:1], values[1:])
    assert sample == pytest.approx(float(statistics.variance(map(Fraction, values))), rel=1e-15)
    assert population == pytest.approx(
        float(statistics.pvariance(map(Fraction, values))), rel=1e-15
    )


def test_numbers_that_are_large_and_near_each_other_have_their_variance() -> None:
    nanoseconds = [1_700_000_000_000_000_000 + n for n in (1, 2, 3)]
    assert results(pa.int64(), nanoseconds) == (1, pytest.approx(2 / 3, rel=1e-15))
    prices = [Decimal("9999999999999999.97"), Decimal("9999999999999999.99")]
    assert results(pa.decimal128(18, 2), prices)[1] == pytest.approx(1e-4, rel=1e-15)
    # The squares of such doubles have no digit left for the spread.
    assert results(pa.float64(), [1e9, 1e9 + 1], [1e9 + 2]) == (1, pytest.approx(2 / 3))


def test_a_sample_of_one_has_none_and_a_population_of_one_has_zero() -> None:
    for kind, value in ((pa.int64(), 5), (pa.float64(), 1e300), (pa.decimal128(30, 1), Decimal(7))):
        assert results(kind, [None]) == (None, None)
        assert results(kind, [value], [None]) == (None, 0)
        assert results(kind, [None], [value, value]) == (0, 0)


def test_nan_and_infinity_have_no_variance() -> None:
    for value in (math.nan, math.inf, -math.inf):
        assert all(map(math.isnan, results(pa.float64(), [1.0], [value], [2.0])))


def test_the_standard_deviation_is_the_root() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int32()})
    functions = {"s": gw.stddev("v"), "p": gw.stddev("v", sample=False)}
    worker = Worker(AggregateOperator.of("a", "k", functions, schema), schema)
    values = (2, 4, 4, 4, 5, 5, 7, 9)
    assert worker.feed((1, v) for v in values) == [(1, pytest.approx(math.sqrt(32 / 7)), 2.0)]


def test_only_numbers_vary() -> None:
    with pytest.raises(ConfigError, match="only numbers"):
        results(pa.string(), ["a"])
