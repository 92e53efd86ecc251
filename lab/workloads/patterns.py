"""Maximal frequent patterns in a sliding window (Ding et al., section 6).

A tweet is a set of words, a pattern a set of words that a tweet contains. A tweet counts +1 for
each of its patterns when it comes, and -1 when it drops out of the window. A pattern is frequent
while it counts at least `support`, and reported while no frequent pattern contains it and one word
more. State: a count for each pattern, the tweets in the window as notices, and for each pattern how
many frequent ones have just one word more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

import godwit as gw
from godwit.model.time import Duration, micros

WORDS_A_TWEET = 4


def tweets(events: DataFrame, words: int = 1000) -> DataFrame:
    """Each event as a tweet: a sorted array of different words."""
    word = f"cast(pow({words}, pmod(xxhash64(event, place), 1000000) / 1e6) AS int)"
    drawn = f"transform(sequence(1, {WORDS_A_TWEET}), place -> {word})"
    return events.selectExpr("time", f"array_sort(array_distinct({drawn})) AS words")


def frequent_patterns(
    events: DataFrame,
    words: int = 1000,
    window: Duration = "90 s",
    support: int = 100,
    delay: Duration = "0 s",
) -> gw.Stream:
    """Patterns that begin to be maximal and frequent, or cease to be."""
    pattern = "pattern string, time timestamp"
    patterns = tweets(events, words).selectExpr("time", PATTERNS)
    counted = gw.stream(patterns).unary(
        "detector",
        key="pattern",
        function=Detect(timedelta(microseconds=micros(window)), support),
        state="n long",
        output=f"{pattern}, frequent boolean",
        time="time",
        delay=delay,
        notices="",
        strict=True,
    )
    return counted.transform(with_parts).unary(
        "maximal",
        key="pattern",
        function=suppress,
        state="frequent boolean, larger long, told boolean",
        output=f"{pattern}, maximal boolean",
        time="time",
        delay="0 s",
        strict=True,
    )


# All sets of the words of a tweet but the empty one, as texts: the bits of a number say which.
PATTERNS = (
    "explode(transform(sequence(1, shiftleft(1, size(words)) - 1), set -> "
    "concat_ws(' ', filter(words, (word, place) -> getbit(set, place) = 1)))) AS pattern"
)


@dataclass(frozen=True, slots=True)
class Detect:
    """For `unary`, keyed by pattern: says when it begins and ceases to be frequent."""

    window: timedelta
    support: int

    def __call__(self, events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
        for kind, time, key, _, state in events:
            if kind == "notice":
                state.n -= 1
                if state.n == self.support - 1:
                    yield key, time, False
                if not state.n:
                    state.clear()
                continue
            state.n = (state.n or 0) + 1
            notify(key, time + self.window)
            if state.n == self.support:
                yield key, time, True


def with_parts(rows: DataFrame) -> DataFrame:
    """What is said of a pattern, and to the patterns that lack one of its words."""
    words = "split(pattern, ' ')"
    parts = f"transform({words}, one -> concat_ws(' ', array_remove({words}, one)))"
    smaller = rows.selectExpr(f"explode({parts}) AS pattern", "time", "frequent")
    told = smaller.where("pattern != ''").selectExpr("*", "false AS own")
    return rows.selectExpr("*", "true AS own").unionByName(told)


def suppress(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    """For `unary`, keyed by pattern: it is maximal if it is frequent and no larger one is."""
    for _, time, key, value, state in events:
        if value.own:
            state.frequent = value.frequent
        else:
            state.larger = (state.larger or 0) + (1 if value.frequent else -1)
        maximal = bool(state.frequent) and not state.larger
        if maximal != bool(state.told):
            state.told = maximal
            yield key, time, maximal
        if not state.frequent and not state.larger:
            state.clear()
