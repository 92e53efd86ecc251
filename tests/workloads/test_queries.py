"""NEXMark's queries give what batch SQL gives over all events, while all their operators move."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from godwit.model.schema import to_ddl
from godwit.model.time import micros
from godwit.workloads.nexmark import queries
from godwit.workloads.nexmark.events import Auctions
from godwit.workloads.rate import Rate
from tests.spark.feed import Feed
from tests.workloads.oracle import answer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

HOUSE = Auctions(rate=Rate.parse("1k"), out_of_order=70)
EPOCHS, EVENTS = 3, 2000  # an epoch
WORKERS = {0: 3, 1: 1}  # by the epoch after which all operators are to have so many
DELAY = "100 ms"
LENGTHS = {"length": "4 s", "slide": "1 s", "gap": "150 ms"}
QUERIES: dict[str, Callable[[DataFrame], gw.Stream]] = {
    "q3": queries.q3,
    "q4": partial(queries.q4, delay=DELAY),
    "q5": partial(queries.q5, length="4 s", slide="1 s", delay=DELAY),
    "q6": partial(queries.q6, delay=DELAY),
    "q7": partial(queries.q7, length="4 s", delay=DELAY),
    "q8": partial(queries.q8, length="4 s", delay=DELAY),
    "nbq5": partial(queries.hot_items, length="4 s", slide="1 s", delay=DELAY),
    "nbqx sessions": partial(queries.nbqx, window=gw.session("150 ms"), delay=DELAY),
    "nbqx tumbling": partial(queries.nbqx, window=gw.tumbling("4 s"), delay=DELAY),
}


def batch(epoch: int) -> pa.Table:
    return pa.table(HOUSE.events(epoch * EVENTS, (epoch + 1) * EVENTS))


@pytest.fixture(scope="module")
def events() -> pa.Table:
    return pa.concat_tables(batch(epoch) for epoch in range(EPOCHS))


def expected(query: str, events: pa.Table) -> pa.Table:
    return answer(query, events, **{name: micros(length) for name, length in LENGTHS.items()})


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("query", QUERIES)
def test_queries_with_state(
    query: str, spark: SparkSession, tmp_path: Path, events: pa.Table
) -> None:
    feed = Feed(tmp_path / "events", to_ddl(events.schema))
    for epoch in range(EPOCHS):
        feed.put(batch(epoch))
    stream = QUERIES[query](feed.stream(spark))
    running = stream.to(gw.files(tmp_path / "rows")).start(
        tmp_path / "checkpoint", workers=2, bins=16
    )
    for epoch, workers in WORKERS.items():
        assert running.await_epoch(epoch)
        for operator in running.operators:
            running.migrate(workers, operator, strategy="batched:8", supersede=True)
    if query == "q3":  # which has no event time
        running.process_all_available()
        running.stop()
    else:
        running.finish()
    assert {running.routing(operator).workers for operator in running.operators} == {1}
    wanted = expected(query, events)
    assert wanted.num_rows > 0
    found = spark.read.parquet(str(tmp_path / "rows")).toArrow()
    assert rows(found.select(wanted.column_names)) == rows(wanted)


@pytest.mark.parametrize("query", ["q1", "q2"])
def test_queries_without_state(query: str, spark: SparkSession, events: pa.Table) -> None:
    found, wanted = (
        getattr(queries, query)(spark.createDataFrame(events)).toArrow(),
        expected(query, events),
    )
    assert rows(found.select(wanted.column_names)) == rows(wanted)
