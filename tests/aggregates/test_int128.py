"""128-bit integers against Python's."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.aggregates.int128 import TooWideError, doubles, means, narrow, widen

LIMIT = 10**38 - 1
DIGITS = pa.decimal128(38, 0)
wide_integers = st.integers(-LIMIT, LIMIT) | st.integers(-(1 << 70), 1 << 70)


def decimals(values: list[int | None]) -> pa.Array:
    return pa.array([value if value is None else Decimal(value) for value in values], DIGITS)


@given(st.lists(st.none() | wide_integers), st.integers(0, 3))
def test_widening_and_narrowing_is_the_identity(values: list[int | None], cut: int) -> None:
    array = decimals(values).slice(cut)
    wide, present = widen(array)
    assert narrow(wide, present, DIGITS).equals(array)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1))
def test_sums_of_longs_are_exact(values: list[int]) -> None:
    total = widen(pa.array(values, pa.int64()))[0].sum(axis=1, keepdims=True)
    assert narrow(total, None, DIGITS).to_pylist() == [sum(values)]
    assert doubles(total)[0] == pytest.approx(float(sum(values)), rel=1e-15)


@given(st.lists(wide_integers, min_size=1))
def test_sums_that_do_not_fit_are_found(values: list[int]) -> None:
    total = widen(decimals([*values]))[0].sum(axis=1, keepdims=True)
    wide = np.hstack([np.zeros((4, 2), np.int64), total])
    if abs(sum(values)) <= LIMIT:
        assert narrow(wide, None, DIGITS).to_pylist()[2] == sum(values)
    else:
        with pytest.raises(TooWideError) as error:
            narrow(wide, None, DIGITS)
        assert error.value.index == 2


@given(wide_integers, st.integers(1, 1 << 46), st.integers(0, 4))
def test_means_are_rounded_half_away_from_zero(total: int, count: int, shift: int) -> None:
    exact = Fraction(total) * 10**shift / count
    rounded = int(abs(exact) + Fraction(1, 2)) * (1 if total >= 0 else -1)
    mean = means(widen(decimals([total]))[0], np.array([count]), shift)
    if abs(rounded) <= LIMIT:
        with localcontext(prec=50):
            assert narrow(mean, None, DIGITS).to_pylist() == [rounded]
    else:
        with pytest.raises(TooWideError):
            narrow(mean, None, DIGITS)
