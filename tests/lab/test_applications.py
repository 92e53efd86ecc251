"""The papers' other applications give what plain Python gives over the same events."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from godwit.model.schema import to_ddl
from lab.workloads import counts, patterns, roads
from lab.workloads.numbered import Numbered
from lab.workloads.rate import Rate
from tests.support.feed import Feed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EVENTS = Numbered(rate=Rate.parse("100"))
SIZE = 1200  # events of a batch
Rows = list[dict[str, Any]]
WorkloadRun = Callable[[Callable[[DataFrame], gw.Stream]], Rows]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> WorkloadRun:
    """Runs a workload over two batches, between which all its operators move; returns what it
    delivers."""

    def run(workload: Callable[[DataFrame], gw.Stream]) -> Rows:
        feed = Feed(tmp_path / "events", to_ddl(Numbered.SCHEMA))
        feed.put(pa.table(EVENTS.events(0, SIZE)))
        job = workload(feed.stream(spark)).to(gw.files(tmp_path / "rows"))
        query = job.start(tmp_path / "checkpoint", workers=2, options=gw.Options(bins=16))
        assert query.await_epoch(0)
        moves = [query.migrate(3, one, strategy="all-at-once") for one in query.operators]
        assert [move.wait(120) for move in moves] == ["done"] * len(moves)
        feed.put(pa.table(EVENTS.events(SIZE, 2 * SIZE)))
        try:
            query.finish()
        except gw.RefusedError:  # it has no event time
            query.process_all_available()
            query.stop()
        return [row.asDict() for row in spark.read.parquet(str(tmp_path / "rows")).collect()]

    return run


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(pa.table(EVENTS.events(0, 2 * SIZE)))


def last(rows: Rows, key: str, value: str) -> dict[Any, Any]:
    """The last value of each key; an epoch tells of a key once."""
    return {row[key]: row[value] for row in sorted(rows, key=lambda row: row["epoch"])}


def test_word_count(run: WorkloadRun, events: DataFrame) -> None:
    lines = [row.line for row in counts.lines(events, 50).collect()]
    found = run(lambda events: counts.word_count(events, 50))
    assert last(found, "word", "n") == Counter(word for line in lines for word in line.split())


@pytest.mark.parametrize("count", [counts.hash_count, counts.key_count])
def test_ids(count: Callable[..., gw.Stream], run: WorkloadRun, events: DataFrame) -> None:
    dense = events.selectExpr("pmod(xxhash64(event), 100) AS id", "xxhash64(id, 1) AS hashed")
    column = "id" if count is counts.key_count else "hashed"
    found = last(run(lambda events: count(events, 100)), "id", "n")
    assert found == Counter(row[column] for row in dense.collect())


def test_traffic(run: WorkloadRun, events: DataFrame) -> None:
    speeds = defaultdict(list)
    for row in roads.reports(events, 40).orderBy("time").collect():
        speeds[row.car].append(row.speed)
    averages = {car: sum(seen) / len(seen) for car, seen in speeds.items()}
    limit = sorted(averages.values())[len(averages) // 2]
    found = run(lambda events: roads.traffic(events, 40, limit))
    assert all(row["average"] > limit for row in found)
    fast = {car: average for car, average in averages.items() if average > limit}
    assert {car: last(found, "car", "average")[car] for car in fast} == pytest.approx(fast)


def test_tolls(run: WorkloadRun, events: DataFrame) -> None:
    """Windows of 4 s that slide by 2 s, and more cars than a segment is good for."""
    length, slide = timedelta(seconds=4), timedelta(seconds=2)
    found = run(lambda events: roads.tolls(events, 20_000, 4, "4 s", "2 s"))
    speeds: dict[tuple[int, datetime], dict[int, list[int]]] = defaultdict(dict)
    for row in roads.reports(events, 20_000, segments=4).collect():
        since = timedelta(microseconds=row.time.microsecond, seconds=row.time.second % 2)
        for end in (row.time - since + slide, row.time - since + length):
            speeds[row.segment, end].setdefault(row.car, []).append(row.speed)
    expected = {}
    for window, cars in speeds.items():
        speed = sum(sum(seen) / len(seen) for seen in cars.values()) / len(cars)
        toll = 2 * (len(cars) - 50) ** 2 if len(cars) > 50 and speed < 40 else 0
        expected[window] = (len(cars), pytest.approx(speed), toll)
    told = {
        (row["segment"], row["window_end"]): (row["cars"], row["speed"], row["toll"])
        for row in found
    }
    assert {toll > 0 for _, _, toll in expected.values()} == {True, False}
    assert len(told) == len(found)
    assert told == expected


def test_accidents(run: WorkloadRun, events: DataFrame) -> None:
    cars = 24
    at: dict[int, int] = {}
    seen: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=roads.SAME))
    stood: set[int] = set()
    expected = Counter[tuple[int, int, int]]()
    for row in roads.reports(events, cars, 50).orderBy("time").collect():
        at[row.car] = row.segment
        seen[row.car].append(row.position)
        stands = len(seen[row.car]) == roads.SAME and len(set(seen[row.car])) == 1
        if stands and row.car not in stood:
            told = [car for car, segment in at.items() if segment == row.segment]
            expected.update((row.segment, row.car, car) for car in told)
        (stood.add if stands else stood.discard)(row.car)
    found = run(lambda events: roads.accidents(events, cars, 50))
    assert expected
    assert Counter((row["segment"], row["broken"], row["told"]) for row in found) == expected


def test_frequent_patterns(run: WorkloadRun, events: DataFrame) -> None:
    """At the end of each second: the patterns that are maximal among those that are frequent."""
    words, support, window = 12, 40, timedelta(seconds=3)
    tweets = [(row.time, row.words) for row in patterns.tweets(events, words).collect()]
    found = run(lambda events: patterns.frequent_patterns(events, words, "3 s", support))
    changes = sorted((row["time"], row["maximal"], row["pattern"]) for row in found)
    first, end = tweets[0][0], tweets[-1][0]
    seen = 0
    for second in range(1, int((end - first).total_seconds())):
        now = first + timedelta(seconds=second)
        counted = Counter[frozenset[str]]()
        for time, chosen in tweets:
            if now - window < time <= now:
                for size in range(1, len(chosen) + 1):
                    counted.update(frozenset(map(str, one)) for one in combinations(chosen, size))
        frequent = {pattern for pattern, n in counted.items() if n >= support}
        maximal = {one for one in frequent if not any(one < other for other in frequent)}
        told = Counter[frozenset[str]]()
        for time, begins, pattern in changes:
            if time <= now:
                told[frozenset(pattern.split())] += 1 if begins else -1
        assert {pattern for pattern, n in told.items() if n} == maximal
        seen += len(maximal)
    assert seen
