"""How many events there are a second, and so when each event takes place."""

import itertools
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError
from godwit.model.time import micros
from lab.tools import units

Numbers = npt.NDArray[np.int64]

SECOND: Final = 1_000_000  # in microseconds

_STRETCH: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(k|M)?\s*(?:for\s+(.+))?")
_FACTORS: Final = {None: 1, "k": 1_000, "M": 1_000_000}


@dataclass(frozen=True)
class Rate:
    """Stretches of a constant rate, each `(events, microseconds)`, which are repeated for ever.

    Events are numbered from 0; times are microseconds since the start.

    >>> rate = Rate.parse("1k for 1 s, 3k for 500 ms")
    >>> rate.times(np.array([0, 999, 1000, 1001, 2500])).tolist()
    [0, 999000, 1000000, 1000333, 1500000]
    >>> rate.until(1_000_000), rate.until(999_999)
    (1001, 1000)
    """

    stretches: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """`50k` events a second, or `10k for 1 min, 80k for 30 s`, over and over again."""
        parts = [_STRETCH.fullmatch(part) for part in text.split(",")]
        stretches = [_stretch(part) for part in parts if part and (part[3] or len(parts) == 1)]
        if any(events * _reduced(events, length)[1] >= 1 << 63 for events, length in stretches):
            raise ConfigError(f"a stretch of '{text}' is too long; write it as several")
        if len(stretches) < len(parts) or any(events < 1 for events, _ in stretches):
            raise ConfigError(
                f"'{text}' is no rate; write it like '50000' or '10k for 1 min, 80k for 30 s', "
                "with at least one event a stretch"
            )
        return cls(tuple(stretches))

    def __str__(self) -> str:
        stretches = [f"{n * SECOND / length:.17g} for {length} us" for n, length in self.stretches]
        return ", ".join(stretches)

    def in_words(self) -> str:
        """
        >>> Rate.parse("5k").in_words(), Rate.parse("1k for 1 min, 80k for 500 ms").in_words()
        ('5 k events/s', '1 k events/s for 60.0 s, 80 k events/s for 500 ms')
        """
        told = [(units.rate(n * SECOND / length), length) for n, length in self.stretches]
        if len(told) == 1:
            return told[0][0]
        return ", ".join(f"{rate} for {units.seconds(length / SECOND)}" for rate, length in told)

    def times(self, numbers: Numbers) -> Numbers:
        """When these events take place."""
        first, start = self._borders
        events, lengths = np.array([_reduced(*one) for one in self.stretches], np.int64).T
        cycles, place = np.divmod(numbers, first[-1])
        stretch = np.searchsorted(first, place, side="right") - 1
        within = (place - first[stretch]) * lengths[stretch] // events[stretch]
        times: Numbers = cycles * start[-1] + start[stretch] + within
        return times

    def until(self, moment: int) -> int:
        """How many events take place up to a moment, which is included."""
        first, start = (border.tolist() for border in self._borders)
        cycles, rest = divmod(moment, start[-1])
        stretch = int(np.searchsorted(start, rest, side="right")) - 1
        events, length = self.stretches[stretch]
        within = -(-(rest - start[stretch] + 1) * events // length)  # rounded up
        return int(cycles * first[-1] + first[stretch] + min(within, events))

    @cached_property
    def _borders(self) -> tuple[Numbers, Numbers]:
        """The first event and the start of each stretch, and of the next cycle."""
        totals = itertools.accumulate(
            self.stretches, lambda sum, one: (sum[0] + one[0], sum[1] + one[1]), initial=(0, 0)
        )
        first, start = np.array(list(totals), np.int64).T
        return first, start


def _reduced(events: int, length: int) -> tuple[int, int]:
    """The same rate in small numbers."""
    common = math.gcd(events, length) or 1
    return events // common, length // common


def _stretch(part: re.Match[str]) -> tuple[int, int]:
    length = micros(part[3]) if part[3] else SECOND
    return round(float(part[1]) * _FACTORS[part[2]] * length / SECOND), length
