"""Folding before the shuffle: whatever is seen of a query is the same without."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from godwit.api.stream import Stream
from godwit.driver.repetition import Repetition
from godwit.log.history import History
from godwit.spark.prefold import can_fold, fold
from godwit.spark.types import to_arrow
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

DDL = (
    "k string, part int, at timestamp, i1 tinyint, i4 int, i8 bigint, f4 float, f8 double, "
    "d1 decimal(7,2), d2 decimal(28,3), d3 decimal(36,10), s string, x binary, b boolean, day date"
)
FLOATS = (0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"))
LONGS = (-(1 << 63), (1 << 63) - 1, 7)


def record(rng: Random, epoch: int) -> dict[str, Any]:
    """Two keys and null, values of which most are at the ends of their types, many nulls; a time
    that may be missing or far behind."""
    moment = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(
        seconds=20 * epoch + rng.randrange(-40, 40)
    )
    values: dict[str, Any] = {
        "k": rng.choice(["a", "b"]),
        "part": 1,
        "at": moment,
        "i1": rng.choice([-128, 127]),
        "i4": rng.choice([-(1 << 31), (1 << 31) - 1]),
        "i8": rng.choice(LONGS),
        "f4": rng.choice(FLOATS),
        "f8": rng.choice(FLOATS),
        "d1": Decimal(rng.choice([-(10**7) + 1, 10**7 - 1])).scaleb(-2),
        "d2": Decimal(rng.choice(["-" + "9" * 25 + ".125", "9" * 25 + ".999"])),
        "d3": Decimal(rng.choice(["9" * 26 + ".5", "-1.0"])),
        "s": rng.choice(["", "a", "B", "é", "\U0001f600", "\uffff"]),
        "x": rng.choice([b"", b"\x80", b"\x7f\x00"]),
        "b": rng.random() < 0.5,
        "day": moment.date(),
    }
    return {name: value for name, value in values.items() if rng.random() < 0.7}


def all_functions() -> dict[str, Any]:
    names = [field.split()[0] for field in DDL.split(", ")][3:]
    found = {"n": gw.count()} | {f"count_{name}": gw.count(name) for name in names}
    for name in names:
        found |= {f"min_{name}": gw.min(name), f"max_{name}": gw.max(name)}
        found |= {f"near_{name}": gw.approx_count_distinct(name)}
    for name in ("i1", "i4", "i8", "d1", "d2"):
        found |= {f"sum_{name}": gw.sum(name), f"avg_{name}": gw.avg(name)}
    for name in ("i1", "i4", "i8", "d1"):
        found |= {f"var_{name}": gw.variance(name), f"dev_{name}": gw.stddev(name, sample=False)}
    return found | {"any": gw.any("b"), "every": gw.every("b")}


def by_key(rows: Stream) -> Stream:
    return rows.aggregate("a", key=["k", "part"], **all_functions())


def by_event_time(rows: Stream) -> Stream:
    return rows.aggregate("a", key="k", time="at", delay="10 s", n=gw.count(), most=gw.max("i8"))


def expiring(rows: Stream) -> Stream:
    return rows.aggregate("a", key="k", time="at", delay="5 s", ttl="20 s", n=gw.count())


def sliding(rows: Stream) -> Stream:
    window = gw.sliding("20 s", "10 s")
    return rows.aggregate(
        "a", key="k", window=window, time="at", delay="10 s", n=gw.count(), total=gw.sum("i8")
    )


class Seen:
    """All that can be seen of a query: outputs by epoch, its state, and what manifests say."""

    def __init__(self, spark: SparkSession, feed: Feed, make: Callable[[Stream], Stream]) -> None:
        self.outputs: dict[int, list[str]] = {}

        self._spark, self._feed, self._make = spark, feed, make

    def run(self, checkpoint: Path) -> tuple[Any, ...]:
        job = self._make(gw.stream(self._feed.stream(self._spark))).to(gw.foreach_batch(self._take))
        job.start(
            checkpoint, workers=3, options=gw.Options(bins=16), trigger=gw.available_now()
        ).await_termination()
        manifests = [History(checkpoint).manifest(epoch) for epoch in sorted(self.outputs)]
        told = [
            [(m.clocks, [(r.records, r.late, r.loads, r.rows) for r in group])]
            for m in manifests
            if m is not None
            for group in m.receipts.values()
        ]
        state = gw.read_state(self._spark, checkpoint, "a").collect()
        return self.outputs, sorted(map(repr, state)), told

    def _take(self, rows: Any, epoch: int) -> None:
        self.outputs[epoch] = sorted(map(repr, rows.collect()))


@pytest.mark.parametrize("make", [by_key, by_event_time, expiring, sliding])
def test_the_same_is_seen(
    spark: SparkSession, tmp_path: Path, make: Callable[[Stream], Stream]
) -> None:
    """Also of sums that outgrow a long, which in Spark's ANSI mode, the default, would fail."""
    feed, rng = Feed(tmp_path / "input", DDL), Random(7)
    for epoch in range(5):
        feed.add(record(rng, epoch) for _ in range(60))
    with patch.object(Repetition, "are_many", False):
        plain = Seen(spark, feed, make).run(tmp_path / "plain")
    folding = patch("godwit.spark.operator_job.fold", wraps=fold)
    with patch.object(Repetition, "are_many", True), folding as folds:
        early = Seen(spark, feed, make).run(tmp_path / "early")
    assert early == plain
    assert folds.call_count == len(plain[0])
    late = sum(receipt[1] for ((_, group),) in plain[2] for receipt in group)
    assert (late > 0) == (make is not by_key)


def test_the_shuffle_carries_folded_rows_once_keys_repeat(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "input", "k long")
    for _ in range(2):
        feed.put(pa.table({"k": np.arange(200_000) % 10}))
    epochs: list[int] = []

    def count(rows: Any, epoch: int) -> None:
        epochs.append(_shuffled(spark))

    job = gw.stream(feed.stream(spark)).aggregate("a", key="k", n=gw.count())
    before = _shuffled(spark)
    job.to(gw.foreach_batch(count)).start(
        tmp_path / "c", workers=2, trigger=gw.available_now()
    ).await_termination()
    first, second = np.diff([before, *epochs])
    assert first == 200_000
    assert second < 1_000


def _shuffled(spark: SparkSession) -> int:
    """The records that all stages so far have written to a shuffle."""
    store = spark.sparkContext._jsc.sc().statusStore()
    found = store.stageList(None, False, False, getattr(store, "stageList$default$4")(), None)
    return sum(found.apply(i).shuffleWriteRecords() for i in range(found.size()))


def test_what_spark_would_compare_otherwise_is_not_folded(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], "k string, c string collate UTF8_LCASE, n timestamp_ntz")
    schema = to_arrow(rows.schema)

    def foldable(rows: Any, key: str, **time: str) -> bool:
        functions = {"n": gw.count()}
        return can_fold(
            rows, gw.operators.AggregateOperator.of("a", key, functions, schema, **time)
        )

    assert foldable(rows, "k")
    assert not foldable(rows, "c")
    assert not foldable(rows, "k", time="n", delay="1 s")
    assert not foldable(rows.join(rows.select(sf.col("k").alias("j")), sf.col("j") == rows.k), "k")
