"""Histograms: a percentile is at most a sixteenth above the true one, and the greatest is exact."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lab.workloads.latency import PARTS, Histogram

LATENCIES = st.lists(st.integers(0, 2**50), min_size=1)


@given(LATENCIES, st.floats(0.1, 100))
def test_percentiles_are_true_to_a_sixteenth(latencies: list[int], percent: float) -> None:
    histogram = Histogram()
    histogram.add(np.array(latencies))
    exact = sorted(latencies)[max(1, int(np.ceil(len(latencies) * percent / 100))) - 1]
    assert exact <= histogram.percentile(percent) <= exact * (1 + 1 / PARTS)
    assert histogram.percentile(100) == max(latencies)


@given(LATENCIES)
def test_the_ccdf_falls_to_nothing(latencies: list[int]) -> None:
    histogram = Histogram()
    histogram.add(np.array(latencies))
    ends, shares = zip(*histogram.ccdf(), strict=True)
    assert list(ends) == sorted(ends)
    assert list(shares) == sorted(shares, reverse=True)
    assert shares[-1] == 0
    for end, share in zip(ends, shares, strict=True):
        assert abs(np.mean(np.array(latencies) > end) - share) < 1e-9
