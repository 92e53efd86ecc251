"""A query of Spark's own goes on as Godwit's: no record is lost, and none counts twice."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from godwit import faults
from godwit.inspect.audit import verify
from godwit.spark.spark_checkpoint import AGGREGATION, with_state
from tests.support.counting import counting, run_to_end, state, words
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

PROVIDERS = "org.apache.spark.sql.execution.streaming.state.{}StateStoreProvider"


def run_spark(rows: DataFrame, checkpoint: Path, sink: Any = None, mode: str = "update") -> None:
    """Let Spark's own operators work off what is there."""
    writer = rows.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint))
    writer = writer.foreachBatch(sink) if sink else writer.format("noop")
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture(params=["HDFSBacked", "RocksDB"])
def provider(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    name = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(name, PROVIDERS.format(request.param))
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("provider")
def test_counts_go_on(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    """Also behind a batch that the old query did not finish: it is run again."""
    old, new = tmp_path / "old", tmp_path / "new"

    def fail(rows: DataFrame, batch: int) -> None:
        rows.collect()  # so that the stores are ahead of what is committed
        if batch == 2:
            raise RuntimeError("killed")

    for text in ("a b a", "c", "d a d"):
        feed.add(words(text))
    with pytest.raises(Exception, match="killed"):
        run_spark(feed.stream(spark).groupBy("word").count(), old, fail)
    feed.add(words("e a"))
    before = gw.spark_checkpoint(spark, old)
    assert (before.batch, sorted(before.offsets)) == (1, [0, 1, 2])
    job = counting(spark, feed, gw.memory("after"))
    initial = {"counts": before.state(n=gw.count())}
    query = run_to_end(job, new, workers=2, after=before, initial=initial)
    assert query.epoch == 3
    assert state(spark, new, epoch=1) == {"a": 2, "b": 1, "c": 1}
    feed.add(words("b f"))
    run_to_end(job, new, workers=2, after=before, initial=initial)
    assert state(spark, new) == {"a": 4, "b": 2, "c": 1, "d": 2, "e": 1, "f": 1}
    assert not verify(new).findings


def test_the_example_of_the_docs(
    spark: SparkSession, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    text = (pytestconfig.rootpath / "docs" / "guide" / "from-spark.md").read_text()
    paths = "clicks|(old-|visits-)?checkpoint|(visits-)?output|old-visits"
    text = re.sub(f'"({paths})"', rf'"{tmp_path}/\1"', text)
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    count, counting_on, apply, applying_on, *_ = programs
    clicks = tmp_path / "clicks"
    clicks.mkdir()
    names: dict[str, Any] = {"spark": spark, "__name__": "example"}

    def click(number: int, *times: tuple[str, int]) -> None:
        lines = (json.dumps({"user": user, "ms": ms}) for user, ms in times)
        (clicks / f"{number}.json").write_text("\n".join(lines))

    def run_old(program: str, checkpoint: str) -> None:
        exec(program, names)
        try:
            names["old"].processAllAvailable()
            with pytest.raises(gw.CheckpointError, match="its query is running; stop it first"):
                gw.spark_checkpoint(spark, tmp_path / checkpoint)
        finally:
            names["old"].stop()

    def run_new(program: str) -> None:
        exec(program, names)
        try:
            names["query"].process_all_available()
        finally:
            names["query"].stop()

    click(0, ("ann", 5), ("bob", 30), ("ann", 7))
    run_old(count, "old-checkpoint")
    run_old(apply, "old-visits")
    click(1, ("bob", 10), ("eve", 4))
    run_new(counting_on)
    run_new(applying_on)
    users = gw.read_state(spark, tmp_path / "checkpoint", "users").collect()
    assert {(r.user, r.n, r.mean_sum, r.mean_count) for r in users} == {
        ("ann", 2, 12, 2),
        ("bob", 2, 40, 2),
        ("eve", 1, 4, 1),
    }
    visits = gw.read_state(spark, tmp_path / "visits-checkpoint", "visits").collect()
    assert {(r.user, r.n, r.longest) for r in visits} == {
        ("ann", 2, 7),
        ("bob", 2, 30),
        ("eve", 1, 4),
    }
    output = spark.read.parquet(str(tmp_path / "output"))
    assert {(r.epoch, r.user, r.mean) for r in output.collect()} == {
        (1, "bob", 20.0),
        (1, "eve", 4.0),
    }


def test_timeouts_are_told(spark: SparkSession) -> None:
    rows = [(("a",), ((1,), 1_500)), (("b",), ((2,), -1)), (("c",), (None, 2_000))]
    kept = "key struct<k string>, value struct<groupState struct<n long>, timeoutTimestamp long>"
    told = with_state(spark.createDataFrame(rows, kept), [sf.col("key.k")]).collect()
    timeouts = {row.k: (row.n, row.timeout and row.timeout.isoformat()) for row in told}
    assert timeouts == {"a": (1, "1970-01-01T00:00:01.500000"), "b": (2, None)}


def test_a_source_of_spark_s_second_generation_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    rows = rows.selectExpr("value % 3 AS key", "value")
    for _ in range(2):
        run_spark(rows.groupBy("key").agg(sf.sum("value")), tmp_path / "old")
    before = gw.spark_checkpoint(spark, tmp_path / "old")
    initial = {"sums": before.state(total=gw.sum("value"))}
    job = gw.stream(rows).aggregate("sums", key="key", total=gw.sum("value")).to(gw.memory("rate"))
    query = run_to_end(job, tmp_path / "new", workers=2, after=before, initial=initial)
    assert query.epoch is not None
    assert query.epoch > before.batch
    read = 10 * (query.epoch + 1)
    totals = gw.read_state(spark, tmp_path / "new", "sums").collect()
    assert {row.key: row.total for row in totals} == {k: sum(range(k, read, 3)) for k in range(3)}


FUNCTIONS: dict[str, Any] = {
    "n": gw.count(),
    "given": gw.count("x"),
    "total": gw.sum("x"),
    "mean": gw.avg("x"),
    "least": gw.min("x"),
    "greatest": gw.max("text"),
    "worth": gw.sum("worth"),
    "price": gw.avg("price"),
    "one": gw.first("x"),
    "newest": gw.last("text"),
    "ever": gw.any("flag"),
    "always": gw.every("flag"),
}
DDL = "key string, x long, text string, worth decimal(10,2), price decimal(20,2), flag boolean"


def test_every_function_goes_on_over_the_same_sources(spark: SparkSession, tmp_path: Path) -> None:
    """As if Godwit had run from the start, with nulls and with two sources."""

    def row(key: str | None, *values: Any) -> dict[str, Any]:
        return dict(
            zip(("key", "x", "text", "worth", "price", "flag"), (key, *values), strict=False)
        )

    feeds = [Feed(tmp_path / name, DDL) for name in ("left", "right")]
    source = feeds[0].stream(spark).union(feeds[1].stream(spark))
    feeds[0].add(
        [row("a", 5, "m", Decimal("1.25"), Decimal("3.50"), True), row(None), row("b", -2)]
    )
    feeds[1].add([row("c", 2**40, "z")])
    run_spark(
        source.groupBy("key").agg(
            *(sf.expr("count(*)" if f.column is None else str(f)) for f in FUNCTIONS.values())
        ),
        tmp_path / "old",
    )
    before = gw.spark_checkpoint(spark, tmp_path / "old")
    feeds[1].add(
        [row("a", -7, "q", Decimal("0.05"), Decimal("1.00"), False), row(None, 1), row("d", 3)]
    )
    job = gw.stream(source).aggregate("all", key="key", **FUNCTIONS).to(gw.memory("all"))
    states = []
    for name, options in (
        ("new", {"after": before, "initial": {"all": before.state(**FUNCTIONS)}}),
        ("whole", {}),
    ):
        run_to_end(job, tmp_path / name, workers=2, **options)
        rows = gw.read_state(spark, tmp_path / name, "all").drop("_bin", "_worker").collect()
        # A mean of nothing has a sum of 0 in Spark's state, and none in ours.
        states.append({r.key: r.asDict() | {"price_sum": r.price_sum or 0} for r in rows})
    assert states[0] == states[1]

    def die(point: str, side: faults.Side, epoch: int) -> None:
        if (point, side) == ("manifest", "before"):
            raise InterruptedError

    with patch.object(faults, "handler", die), pytest.raises(InterruptedError):
        job.start(tmp_path / "cut", workers=2, after=before, initial={})
    with pytest.raises(gw.CheckpointError, match=r"ends at epoch -1.* or delete this one"):
        job.start(tmp_path / "cut", workers=2, after=before)
    with pytest.raises(gw.ConfigError, match="read 2 sources, and this one reads 1"):
        counting(spark, Feed(tmp_path / "one", "word string"), gw.memory("one")).start(
            tmp_path / "other", after=before
        )
    with pytest.raises(gw.ConfigError, match=r"keeps count, count, sum, .* given keep count; name"):
        before.state(n=gw.count())
    with pytest.raises(gw.ConfigError, match="'n' must be a function"):
        before.state(n="count")  # type: ignore[arg-type]


def test_state_that_cannot_be_imported(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "input", "key string, at timestamp, small decimal(8,2)")
    feed.add([{"key": "a", "small": Decimal("2.50")}])
    rows = feed.stream(spark)
    run_spark(rows.groupBy("key").agg(sf.sum("small")), tmp_path / "small")
    run_spark(rows.groupBy(sf.window("at", "1 minute")).count(), tmp_path / "windows")
    with pytest.raises(gw.ConfigError, match="its state by 'window', a struct"):
        gw.spark_checkpoint(spark, tmp_path / "windows").state(n=gw.count())
    before = gw.spark_checkpoint(spark, tmp_path / "small")
    job = gw.stream(rows).aggregate("sums", key="key", s=gw.sum("small")).to(gw.memory("sums"))
    initial = {"sums": before.state(s=gw.sum("small"))}
    with pytest.raises(gw.ConfigError, match=r"'s' of type int64, .* decimal128\(18, 2\); cast"):
        job.start(tmp_path / "new", initial=initial, after=before)
    (tmp_path / "used" / "spark" / "offsets").mkdir(parents=True)
    with pytest.raises(gw.CheckpointError, match="it is not new"):
        job.start(tmp_path / "used", after=before)
    with pytest.raises(gw.ConfigError, match=r"has state; give it as initial"):
        job.start(tmp_path / "new", after=before)
    with pytest.raises(gw.ConfigError, match=r"`after` must be what godwit.spark_checkpoint"):
        job.start(tmp_path / "new", after=str(tmp_path / "small"))  # type: ignore[arg-type]
    with pytest.raises(gw.ConfigError, match=r"must be a DataFrame, .* not SparkCh"):
        job.start(tmp_path / "new", after=before, initial={"sums": before})  # type: ignore[dict-item]
    several = gw.SparkCheckpoint(spark, "old", 0, {}, {0: "dedupe", 1: AGGREGATION})
    with pytest.raises(gw.ConfigError, match=r"name one of .*: 0 \(dedupe\), 1 \(stateStoreSave\)"):
        several.state()
    with pytest.raises(gw.ConfigError, match="operator 0 is of kind dedupe; only"):
        several.state(0)
    with pytest.raises(gw.ConfigError, match="name one of its stateful operators: it has none"):
        gw.SparkCheckpoint(spark, "old", 0, {}, {}).state()


def test_what_is_no_checkpoint_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    def refuse(reason: str, path: str | Path = tmp_path) -> None:
        with pytest.raises(gw.CheckpointError, match=reason) as refused:
            gw.spark_checkpoint(spark, path)
        assert "\n" not in str(refused.value)

    refuse("there is no checkpoint of a Spark query here: metadata is missing")
    refuse("it cannot be read: .*nowhere", "nowhere://bucket/old")
    (tmp_path / "metadata").write_text("{}")
    for name in ("offsets", "commits"):
        refuse(f"{name} is missing")
        (tmp_path / name).mkdir()
    refuse("its file metadata does not hold the id of a Spark query")
    (tmp_path / "metadata").write_text('{"id":"1"}')
    refuse("it has committed no batch")
    (tmp_path / "commits" / "0").touch()
    refuse("its offsets of batch 0 are missing")
    (tmp_path / "godwit").mkdir()
    (tmp_path / "godwit" / "format.json").touch()
    refuse("it is Godwit's; start the query on it")
