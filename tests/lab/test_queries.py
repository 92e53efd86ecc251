"""NEXMark's queries give what batch SQL gives over all events, also while their operators move."""

import queue
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from godwit.model.schema import to_ddl
from godwit.model.time import micros
from lab.workloads.nexmark import queries, sql_suite
from lab.workloads.nexmark.events import SCHEMA
from lab.workloads.numbered import BEGIN, MOMENT
from tests.support.boundaries import KINDS, boundaries
from tests.support.feed import Feed
from tests.support.oracle import QUERIES as SQL
from tests.support.oracle import UPDATED, answer, newest

BATCHES, EVENTS = 3, 2000  # a batch
WORKERS = (3, 1)  # to which all operators move, each time before a batch
DELAY = "100 ms"
LENGTHS = {"length": "2 s", "slide": "500 ms", "gap": "60 ms", "batch": f"{EVENTS} ms"}
GAPS = ("60 ms", "120 ms", "180 ms", "240 ms")
STRETCH = 43_200  # with which 2 s are a day
STRETCHED = {"gap": f"{60 * STRETCH} ms", "delay": f"{100 * STRETCH} ms"}
KEYS = 1200  # of the side input: some auctions have none
Results = Mapping[str, gw.Stream]


def q5_nbq5(events: DataFrame) -> Results:
    counts = queries.hot_items(events, "2 s", "500 ms", DELAY)
    return {"q5": queries.hottest(counts, "500 ms"), "nbq5": counts}


def suite(events: DataFrame) -> Results:
    """Queries of the public suites, all in one over one source."""
    house = gw.stream(events)
    return {
        "q11": sql_suite.q11(house, **STRETCHED),
        "q16": sql_suite.q16(house, STRETCHED["delay"]),
        "q17": sql_suite.q17(house),
        "q18": sql_suite.q18(house),
        "q19": sql_suite.q19(house),
        "q20": sql_suite.q20(house),
    }


QUERIES: dict[str, Callable[[DataFrame], gw.Stream | Results]] = {
    "q3": queries.q3,
    "q4": partial(queries.q4, delay=DELAY),
    "q5-nbq5": q5_nbq5,
    "q4-q6-q9": partial(queries.q4_q6_q9, delay=DELAY),
    "q7": partial(queries.q7, length="2 s", delay=DELAY),
    "q8": partial(queries.q8, length="2 s", delay=DELAY),
    "nbqx": partial(queries.nbqx, gaps=GAPS, length="2000 ms", delay=DELAY),
    "nbqx-of-3": partial(queries.nbqx, gaps=GAPS[:2], length="2000 ms", delay=DELAY),
    "q15": partial(sql_suite.q15, delay=STRETCHED["delay"]),
    "q11-q20": suite,
}
STATELESS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "q1": queries.q1,
    "q2": queries.q2,
    "q13": partial(sql_suite.q13, keys=KEYS),
    "q14": sql_suite.q14,
    "q21": sql_suite.q21,
    "q22": sql_suite.q22,
}
# Each operator takes its time in each epoch. So these run one way only, and their operators the
# other way in another query.
STILL = ("q4", "q15", "nbqx")
MOVING = ("q4-q6-q9", "nbqx-of-3")
LARGE = ("nbqx", "nbqx-of-3", "q11-q20")  # and these in few epochs
CASES = [
    *(pytest.param(name, False, id=f"{name}-still") for name in QUERIES if name not in MOVING),
    *(pytest.param(name, True, id=f"{name}-moving") for name in QUERIES if name not in STILL),
]


@pytest.fixture(scope="module")
def events() -> pa.Table:
    return boundaries(BATCHES * EVENTS)


def stretched(events: pa.Table) -> pa.Table:
    """The same events over three days."""
    times = events["time"].cast(pa.int64())
    later = pc.add(BEGIN, pc.multiply(pc.subtract(times, BEGIN), STRETCH)).cast(MOMENT)
    return events.set_column(events.schema.get_field_index("time"), "time", later)


def wanted(result: str, events: pa.Table, stretch: int = 1) -> pa.Table:
    """What a result must be; NBQX has several, of several gaps."""
    if result.startswith("session-"):
        gap = GAPS[int(result.removeprefix("session-"))]
        return answer(SQL["nbqx session"], events, gap=micros(gap))
    return rows_of(SQL["nbqx tumbling" if result == "tumbling" else result], events, stretch)


def rows_of(sql: str, events: pa.Table, stretch: int = 1) -> pa.Table:
    lengths = {name: micros(length) * stretch for name, length in LENGTHS.items()}
    return answer(sql, events, keys=KEYS, **lengths)


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def test_there_are_events_on_all_boundaries(events: pa.Table) -> None:
    assert [kind for kind, sql in KINDS.items() if not rows_of(sql, events).num_rows] == []


class Moving:
    """Runs a query whose operators all move to 3 workers before the second batch, and to 1 before
    the third: a batch is there for the epoch after that in which the last of them has begun to."""

    def __init__(self, feed: Feed, batches: list[pa.Table], strategy: str) -> None:
        self._feed = feed
        self._waiting = batches
        self._strategy = strategy
        self._came: queue.SimpleQueue[pa.Table] = queue.SimpleQueue()
        self._resting: set[str] = set()  # operators of which no bin has moved yet
        self.reports: list[gw.EpochReport] = []

    def run(self, query: gw.Query) -> None:
        query.process_all_available()
        for workers in WORKERS:
            self._resting.update(query.operators)
            names = query.operators
            moves = [query.migrate(workers, name, strategy=self._strategy) for name in names]
            self._came.get(timeout=120)
            query.process_all_available()
            assert [move.outcome for move in moves] == ["done"] * len(moves)
            assert {query.routing(name).workers for name in query.operators} == {workers}

    def listen(self, report: gw.EpochReport) -> None:
        """Called between two epochs."""
        self.reports.append(report)
        moved = {name for name, one in report.operators.items() if one.moved}
        if self._resting and self._resting <= moved:
            self._feed.put(self._waiting[0])
            self._came.put(self._waiting.pop(0))
        self._resting.difference_update(moved)

    def check(self) -> None:
        """All operators have moved bins before each batch but the first."""
        came = [report.epoch for report in self.reports if report.records]
        assert len(came) == BATCHES
        for before, after in pairwise(came):
            between = [one.operators for one in self.reports if before < one.epoch < after]
            for name in self.reports[0].operators:
                assert sum(operators[name].moved for operators in between) > 0


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("query", "moves"), CASES)
def test_queries_with_state(
    query: str, moves: bool, spark: SparkSession, tmp_path: Path, events: pa.Table
) -> None:
    days = query in ("q15", "q11-q20")
    events = stretched(events) if days else events
    at_once = len(events) if query in LARGE and not moves else EVENTS
    feed = Feed(tmp_path / "events", to_ddl(events.schema))
    first, *others = [events.slice(start, at_once) for start in range(0, len(events), at_once)]
    feed.put(first)
    moving = Moving(feed, others, "all-at-once" if query in LARGE else "batched:4")
    made = QUERIES[query](feed.stream(spark))
    results = {query: made} if isinstance(made, gw.Stream) else made
    ends = [stream.to(gw.files(tmp_path / "rows" / name)) for name, stream in results.items()]
    running = gw.query(*ends).start(
        tmp_path / "checkpoint", workers=2, options=gw.Options(bins=16), listener=moving.listen
    )
    if moves:
        moving.run(running)
        moving.check()
    else:
        for batch in others:
            feed.put(batch)
    if query == "q3":  # which has no event time
        running.process_all_available()
        running.stop()
    else:
        running.finish()
    for name in results:
        expected = wanted(name, events, STRETCH if days else 1)
        assert expected.num_rows > 0
        found = spark.read.parquet(str(tmp_path / "rows" / name)).toArrow()
        if name in UPDATED:
            found = newest(found, UPDATED[name])
        assert rows(found.select(expected.column_names)) == rows(expected), name


@pytest.mark.spark
def test_queries_that_share_operators_have_the_same_ones_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = Feed(tmp_path, to_ddl(SCHEMA)).stream(spark)
    for together, alone in (
        (q5_nbq5(events)["q5"], queries.q5(events)),
        (queries.q4_q6_q9(events)["q4"], queries.q4(events)),
        (queries.q4_q6_q9(events)["q6"], queries.q6(events)),
        (queries.q4_q6_q9(events)["q9"], queries.q9(events)),
    ):
        assert repr(together) == repr(alone)


@pytest.mark.spark
@pytest.mark.parametrize("query", STATELESS)
def test_queries_without_state(query: str, spark: SparkSession, events: pa.Table) -> None:
    events = stretched(events)
    expected = wanted(query, events)
    assert expected.num_rows > 0
    found = STATELESS[query](spark.createDataFrame(events)).toArrow()
    assert rows(found.select(expected.column_names)) == rows(expected)


@pytest.mark.spark
def test_queries_without_state_are_the_same_over_a_stream(
    spark: SparkSession, tmp_path: Path, events: pa.Table
) -> None:
    def told(events: DataFrame) -> DataFrame:
        each = [query(events) for query in STATELESS.values()]
        texts = [rows.select(sf.to_json(sf.struct("*"))) for rows in each]
        return reduce(DataFrame.union, texts)

    events = stretched(events)
    feed = Feed(tmp_path, to_ddl(events.schema))
    feed.put(events)
    writer = told(feed.stream(spark)).writeStream.format("memory").queryName("stateless")
    writer.trigger(availableNow=True).start().awaitTermination()
    found = Counter(spark.table("stateless").collect())
    assert found == Counter(told(spark.createDataFrame(events)).collect())


@pytest.mark.spark
def test_query_8_keeps_the_persons_and_auctions_of_a_window(
    spark: SparkSession, tmp_path: Path, events: pa.Table
) -> None:
    """Each for as long as a window is, as in the papers; what is older has left the state."""
    feed = Feed(tmp_path / "events", to_ddl(events.schema))
    feed.put(events)
    sink = gw.foreach_batch(lambda rows, epoch: None)
    query = queries.q8(feed.stream(spark), length="2 s").to(sink).start(tmp_path / "checkpoint")
    try:
        query.process_all_available()
        kept = {
            side: gw.read_state(spark, tmp_path / "checkpoint", "new-sellers", table=side).count()
            for side in ("left", "right")
        }
    finally:
        query.stop()
    times = {
        side: events.filter(pc.is_valid(events[kind]))["time"].cast(pa.int64()).to_numpy()
        for side, kind in (("left", "person"), ("right", "auction"))
    }
    watermark = min(of_side.max() for of_side in times.values())
    since = watermark - micros("2 s")
    assert kept == {side: int((of_side >= since).sum()) for side, of_side in times.items()}
    assert all(0 < kept[side] < len(of_side) for side, of_side in times.items())
