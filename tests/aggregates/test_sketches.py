"""Sketches: how good the estimates are, how much they keep, and on what they do not depend."""

import math
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import godwit as gw
from godwit.errors import ConfigError
from godwit.operators import AggregateOperator
from tests.support.tables import Row, Worker

SCHEMA = pa.schema({"k": pa.int64(), "v": pa.float64()})
FLOATS = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -3.0, 1e308, 5e-324])


def worker(function: gw.Aggregate, schema: pa.Schema = SCHEMA) -> Worker:
    return Worker(AggregateOperator.of("a", "k", {"f": function}, schema), schema)


@pytest.mark.parametrize(("rsd", "bytes_"), [(0.2, 33), (0.05, 513), (0.01, 16385)])
def test_estimates_are_as_good_as_asked_for_and_no_larger(rsd: float, bytes_: int) -> None:
    """A hundred keys with 30 values, and as many with 20,000: the same each time."""
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    for count in (30, 20_000):
        one = worker(gw.approx_count_distinct("v", rsd), schema)
        keys = np.repeat(np.arange(100), count)
        values = 1_000_000 * keys + np.tile(np.arange(count), 100)
        records = pa.table([keys, values], schema=schema)
        found = np.array([estimate for _, estimate in one.feed_table(records)])
        assert abs(found.mean() / count - 1) < rsd
        assert np.sqrt(np.mean((found / count - 1) ** 2)) < 1.1 * rsd
        (kept,) = {len(state) for state in one.deltas["value"]["f_registers"].to_pylist()[:1]}
        assert kept <= bytes_


def test_few_values_are_counted_exactly_and_take_four_bytes_each() -> None:
    one = worker(gw.approx_count_distinct("v"))
    assert one.feed([(1, None)]) == [(1, 0)]
    assert one.feed([(1, n / 2) for n in (1, 2, 3, 2, 1)] * 50) == [(1, 3)]
    assert len(one.deltas["value"]["f_registers"][0].as_py()) == 12


def test_zero_has_no_sign_and_nan_is_one_value() -> None:
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    for kind in (pa.float64(), pa.float32()):
        one = worker(gw.approx_count_distinct("v"), pa.schema({"k": pa.int64(), "v": kind}))
        assert one.feed([(1, 0.0), (1, -0.0)]) == [(1, 1)]
        assert one.feed([(1, math.nan), (1, other_nan)]) == [(1, 2)]


@pytest.mark.parametrize(
    "function", [gw.approx_count_distinct("v", 0.4), gw.approx_quantiles("v", [0.5])], ids=str
)
@given(
    rows=st.lists(st.tuples(st.integers(1, 2), st.none() | FLOATS | st.floats()), max_size=20),
    seed=st.randoms(use_true_random=False),
    data=st.data(),
)
def test_order_and_epochs_do_not_show_in_the_state(
    function: gw.Aggregate, rows: list[Row], seed: Random, data: st.DataObject
) -> None:
    rows += [(1, None), (2, None)]  # so that the last epoch writes both keys
    shuffled = rows[:-2]
    seed.shuffle(shuffled)
    cut = data.draw(st.integers(0, len(shuffled)))
    whole, parts = worker(function), worker(function)
    found = whole.feed(rows)
    parts.feed(shuffled[:cut])
    again = parts.feed(shuffled[cut:] + rows[-2:])
    assert repr(sorted(again, key=_key)) == repr(sorted(found, key=_key))
    assert repr(parts.deltas) == repr(whole.deltas)


def _key(row: Row) -> Any:
    return row[0]


@example([sys.float_info.max], 0.01)
@given(st.lists(st.floats(allow_nan=False), min_size=1), st.sampled_from([0.25, 0.01, 0.0001]))
def test_quantiles_are_near_a_value_of_their_rank(values: list[float], error: float) -> None:
    shares = [0, 0.1, 0.5, 0.9, 1]
    ((_, found),) = worker(gw.approx_quantiles("v", shares, error)).feed((1, v) for v in values)
    ranks = [max(math.ceil(share * len(values)), 1) for share in shares]
    wanted = [sorted(values)[rank - 1] for rank in ranks]
    # Doubles below 1e-300 are rounded to the least of those, the largest not to infinity.
    assert found == pytest.approx(wanted, rel=error, abs=1e-300)
    assert [math.isinf(v) for v in found] == [math.isinf(v) for v in wanted]


def test_small_integers_are_exact_and_nan_is_the_largest() -> None:
    one = worker(gw.approx_quantiles("v", [0, 0.5, 0.99, 1]))
    assert one.feed([(1, None)]) == [(1, None)]
    assert one.feed((1, float(n)) for n in range(-100, 101)) == [(1, [-100.0, 0.0, 98.0, 100.0])]
    ((_, found),) = one.feed([(1, math.nan)])
    assert math.isnan(found[3])
    assert found[:2] == [-100.0, 0.0]


def test_quantiles_of_more_values_do_not_need_more_room() -> None:
    one = worker(gw.approx_quantiles("v", [0.5]))
    values = np.random.default_rng(0).lognormal(3, 1, 20_000)
    sizes = []
    for cut in (values[:2_000], values):
        one.feed((1, v) for v in cut.tolist())
        sizes.append(len(one.deltas["value"]["f_near"][0]))
    assert sizes[1] < 1.6 * sizes[0] < 1_000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gw.approx_count_distinct("v", 0.001), "from 0.005 to 0.4, not 0.001"),
        (lambda: gw.approx_quantiles("v", []), "shares from 0 to 1"),
        (lambda: gw.approx_quantiles("v", [50]), r"shares from 0 to 1, .* not \[50\]"),
        (lambda: gw.approx_quantiles("v", [math.nan]), "shares from 0 to 1"),
        (lambda: gw.approx_quantiles("v", [0.5], error=0), "from 0.0001 to 0.25, not 0"),
        (lambda: gw.approx_count_distinct("l"), "type list.*, which cannot be hashed"),
        (lambda: gw.approx_quantiles("l", [0.5]), "only numbers"),
        (lambda: gw.any("v"), "column 'v' is of type double, not boolean"),
    ],
)
def test_refuses(make: Callable[[], gw.Aggregate], message: str) -> None:
    schema = SCHEMA.append(pa.field("l", pa.list_(pa.int64())))
    with pytest.raises(ConfigError, match=message):
        worker(make(), schema)
