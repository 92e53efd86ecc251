"""Late records on Spark: once, as they were given, whatever dies; and sources that fall silent."""

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit import faults
from godwit.inspect.audit import verify
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

TIMED: dict[str, Any] = {"time": "at", "delay": "0 s"}


def row(second: int | None, x: int) -> dict[str, Any]:
    at = None if second is None else datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    return {"user": "ann", "at": at, "x": x}


def length(user: str, span: Any, records: Any) -> list[tuple[Any, ...]]:
    return [(user, len(records))]


def rows(spark: SparkSession, directory: Path, *columns: str) -> Counter[tuple[Any, ...]]:
    """With their epochs."""
    found = spark.read.parquet(str(directory)).select("epoch", *columns)
    return Counter(map(tuple, found.collect()))


def test_late_records_reach_their_sinks_once_though_the_driver_dies_before_delivery(
    spark: SparkSession, tmp_path: Path
) -> None:
    left, other = (Feed(tmp_path / name, "user string, at timestamp, x long") for name in "lr")

    def start() -> gw.Query:
        clicks, late = gw.stream(left.stream(spark)), tmp_path / "late"
        spans = clicks.windows(
            *("spans", gw.sliding("10 s", "5 s")),
            key="user",
            function=length,
            output="user string, n long",
            late=gw.files(late / "s"),
            **TIMED,
        )
        joined = clicks.join(
            *("joined", gw.stream(other.stream(spark))),
            on="user",
            within=("0 s", "1 s"),
            late=gw.files(late / "j"),
            **TIMED,
        )
        ends = {"s": spans, "j": joined}
        jobs = (stream.to(gw.files(tmp_path / "out" / name)) for name, stream in ends.items())
        return gw.query(*jobs).start(tmp_path / "checkpoint", workers=2)

    def die(point: str, side: faults.Side, epoch: int) -> None:
        if (point, side, epoch) == ("manifest", "after", 2):
            raise InterruptedError

    for feed in (left, other):
        feed.add([row(40, 0)])
        feed.add([row(41, 1)])
    left.add([row(34, 2), row(36, 3), row(None, 4), row(42, 5)])
    other.add([row(39, 6), row(43, 7)])
    with patch.object(faults, "handler", die), pytest.raises(InterruptedError):
        start().process_all_available()
    query = start()
    query.process_all_available()
    query.stop()
    late = tmp_path / "late"
    assert rows(spark, late / "s", "x") == Counter({(2, 2): 1, (2, 4): 1})
    sides = {("left", x, None): 1 for x in (2, 3, 4)} | {("right", None, 6): 1}
    expected = Counter({(2, *side): 1 for side in sides})
    assert rows(spark, late / "j", "side", "left_x", "right_x") == expected
    (record,) = spark.read.parquet(str(late / "s")).where("x = 2").collect()
    assert record.asDict() == row(34, 2) | {"at": datetime(2026, 1, 1, 0, 0, 34), "epoch": 2}
    assert verify(tmp_path / "checkpoint").findings == []


def test_on_a_silent_stream_what_an_idle_source_held_back_comes_by_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    left, right = (Feed(tmp_path / name, "user string, at timestamp, x long") for name in "lr")
    given, came = list[int](), threading.Event()

    def take(rows: Any, epoch: int) -> None:
        given.extend(row.x for row in rows.collect())
        if given:
            came.set()

    unmatched = gw.stream(left.stream(spark)).join(
        *("unmatched", gw.stream(right.stream(spark), idle_after="1 second")),
        on="user",
        how="anti",
        within=("0 s", "1 s"),
        **TIMED,
    )
    left.add([row(5, 1), row(10, 2)])
    right.add([row(0, 3)])
    query = unmatched.to(gw.foreach_batch(take)).start(tmp_path / "checkpoint", workers=2)
    try:
        assert came.wait(180)
    finally:
        query.stop()
    assert given == [1]
