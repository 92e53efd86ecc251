"""Rates: events take place in order, and as many in a stretch as it says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError
from lab.workloads.rate import SECOND, Rate

stretches = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), min_size=1, max_size=4)


@given(stretches, st.integers(0, 20_000))
def test_until_counts_the_events_up_to_a_moment(parts: list[tuple[int, int]], moment: int) -> None:
    rate = Rate(tuple(parts))
    count = rate.until(moment)
    times = rate.times(np.arange(count + 2))
    assert np.all(np.diff(times) >= 0)
    assert times[count] > moment
    assert count == 0 or times[count - 1] <= moment


def test_a_cycle_has_the_events_of_its_stretches() -> None:
    rate = Rate.parse("10 for 1 min, 2k for 500 ms")
    assert rate.stretches == ((600, 60 * SECOND), (1000, SECOND // 2))
    assert rate.until(10 * 60_500_000 - 1) == 10 * 1600
    assert Rate.parse("1.5M").stretches == ((1_500_000, SECOND),)


def test_long_stretches_do_not_overflow() -> None:
    rate = Rate.parse("1M for 12 h, 10k for 3 h")
    last = rate.until(15 * 3600 * SECOND - 1) - 1
    assert rate.times(np.array([last])).tolist() == [15 * 3600 * SECOND - 100]
    with pytest.raises(ConfigError, match="too long"):
        Rate.parse("333333.3 for 300 d")


@given(stretches)
def test_a_rate_can_be_read_as_it_is_told(parts: list[tuple[int, int]]) -> None:
    assert Rate.parse(str(Rate(tuple(parts)))) == Rate(tuple(parts))


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "10, 20", "10 for", "1 for 1 ms", "1..2"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no"):
        Rate.parse(text)
