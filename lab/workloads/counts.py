"""Counting: words and ids, over events that are nothing but a number.

State: a count for each key. Word count is Ding et al.'s application and everybody's first one; hash
count and key count are Megaphone's (section 5.2), whose ids are random, or the numbers from 0 on.
Megaphone's key count keeps the counts of a bin in an array; here both are the same aggregate, in
the order of the key's hash, and differ in their ids only.
"""

import time
from typing import Any, Final

from pyspark.sql import DataFrame

import godwit as gw

WORDS_A_LINE: Final = 8
ANSWER: Final = 0.001  # seconds that a look-up waits


def lines(events: DataFrame, words: int) -> DataFrame:
    """Each event as a line of text. Word k of `words` is about as frequent as 1/k."""
    fraction = "pmod(xxhash64(event, place), 1000000) / 1e6"
    word = f"concat('w', cast(pow({words}, {fraction}) AS int))"
    line = f"concat_ws(' ', transform(sequence(1, {WORDS_A_LINE}), place -> {word}))"
    return events.selectExpr(f"{line} AS line")


def word_count(events: DataFrame, words: int = 10_000) -> gw.Stream:
    """How often has each word come?"""
    return gw.stream(_split(events, words)).aggregate("words", key="word", n=gw.count())


def look_ups(events: DataFrame, words: int = 10_000) -> gw.Stream:
    """How often has each word come, if each waits for an answer from elsewhere?

    Workers wait at the same time, whatever the number of cores: the one with most records is what
    an epoch waits for.
    """
    return gw.stream(_split(events, words)).state_machine(
        "words", key="word", function=look_up, state="n long", output="word string, n long"
    )


def look_up(key: str, value: Any, state: Any) -> list[tuple[str, int]]:
    """For `state_machine`, keyed by word."""
    time.sleep(ANSWER)
    return count_record(key, value, state)


def count_record(key: Any, value: Any, state: Any) -> list[tuple[Any, int]]:
    """Counts the records of a key, one call a record, for `state_machine`."""
    state.n = (state.n or 0) + 1
    return [(key, state.n)]


def _split(events: DataFrame, words: int) -> DataFrame:
    return lines(events, words).selectExpr("explode(split(line, ' ')) AS word")


def random_ids(events: DataFrame, keys: int) -> DataFrame:
    """One of `keys` ids, from all over the hash space, for each event."""
    return events.selectExpr(f"xxhash64(pmod(xxhash64(event), {keys}), 1) AS id")


def hash_count(events: DataFrame, keys: int = 1_000_000) -> gw.Stream:
    """How often has each of `keys` random 64-bit ids come?"""
    return gw.stream(random_ids(events, keys)).aggregate("ids", key="id", n=gw.count())


def key_count(events: DataFrame, keys: int = 1_000_000) -> gw.Stream:
    """How often has each number below `keys` come? Counted as any other ids are."""
    rows = events.selectExpr(f"pmod(xxhash64(event), {keys}) AS id")
    return gw.stream(rows).aggregate("ids", key="id", n=gw.count())
