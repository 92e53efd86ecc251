"""Event time: moments and durations in microseconds, as integers.

A *watermark* of W says that no more records with a time before W are expected.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from godwit.errors import ConfigError
from godwit.model.text import plural

END: Final = (1 << 63) - 1  # the watermark after `finish`: nothing more is expected at all

_UNITS: Final = {
    unit: micros
    for names, micros in (
        (("us", "microsecond"), 1),
        (("ms", "millisecond"), 1_000),
        (("s", "sec", "second"), 1_000_000),
        (("m", "min", "minute"), 60_000_000),
        (("h", "hour"), 3_600_000_000),
        (("d", "day"), 86_400_000_000),
    )
    for unit in names
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")

Duration = str | timedelta

Clocks = tuple[int | None, ...]
"""The greatest time that each input of an operator has shown; None: it has shown no record yet."""


def micros(duration: Duration) -> int:
    """A duration in microseconds.

    >>> micros("1 hour 30 min"), micros("1.5 seconds"), micros(timedelta(days=1))
    (5400000000, 1500000, 86400000000)
    """
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    text = str(duration).lower()
    if isinstance(duration, str) and text.lstrip().startswith("-"):
        raise ConfigError(f"'{duration}' is negative, as only the bounds of a join may be")
    total, place = 0.0, 0
    while part := _PART.match(text, place):
        unit = part[2] if part[2] in _UNITS else part[2].removesuffix("s")
        if unit not in _UNITS:
            break
        total, place = total + float(part[1]) * _UNITS[unit], part.end()
    if not text.strip() or place < len(text):
        raise ConfigError(f"'{duration}' is no duration; write it like '10 seconds' or '1 h 30 m'")
    return round(total)


def show(moment: int | None) -> str:
    """A moment for people.

    >>> show(1_500_000), show(END), show(None)
    ('1970-01-01 00:00:01.500000', 'the end', '-')
    """
    if moment is None:
        return "-"
    if moment == END:
        return "the end"
    try:
        then = datetime(1970, 1, 1) + timedelta(microseconds=moment)
    except OverflowError:
        return f"{moment} us after 1970"
    return then.isoformat(sep=" ")


def span(duration: int) -> str:
    """A duration for people, in the largest unit that it is a multiple of.

    >>> span(60_000_000), span(5_400_000_000), span(1_500_000)
    ('1 minute', '90 minutes', '1,500 ms')
    """
    for unit in ("day", "hour", "minute", "second"):
        if duration and duration % _UNITS[unit] == 0:
            return plural(duration // _UNITS[unit], unit)
    return f"{duration // 1000:,} ms" if duration % 1000 == 0 else f"{duration:,} us"


def earlier(moment: int, duration: int) -> int:
    """So much earlier; but the end stays the end.

    >>> earlier(5, 3), earlier(END, 3) == END
    (2, True)
    """
    return moment if moment == END else moment - duration


def latest(clocks: Sequence[Clocks]) -> Clocks:
    """The clocks of all workers and epochs in one.

    >>> latest([(3, None), (5, None)])
    (5, None)
    """
    seen = [[clock for clock in input if clock is not None] for input in zip(*clocks, strict=True)]
    return tuple(max(input, default=None) for input in seen)
