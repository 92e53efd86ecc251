"""Each sink holds what it guarantees, also when an epoch is delivered again."""

import json
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from godwit.errors import ConfigError
from godwit.model.schema import parse
from godwit.spark.sinks.files import FORMATS, FilesSink
from godwit.spark.sinks.sink import Sink
from godwit.spark.types import to_spark
from godwit.state.output import OutputFiles
from godwit.storage.local import LocalStore
from tests.support.log_samples import begun, published

pytestmark = pytest.mark.spark

SCHEMA = to_spark(parse("k string, n bigint"))
NONE = OutputFiles(LocalStore(Path("/nowhere")), ())


def rows(spark: SparkSession, *values: int) -> DataFrame:
    return spark.createDataFrame([(f"k{value}", value) for value in values], SCHEMA)


def delivered(df: DataFrame) -> set[tuple[int, int]]:
    """The epoch and number of every row; no row is there twice."""
    found = [(row.epoch, row.n) for row in df.select("epoch", "n").collect()]
    assert len(found) == len(set(found))
    return set(found)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out put"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of the query with the id `q`."""
    begun(tmp_path / "checkpoint", "q")
    return tmp_path / "checkpoint"


@pytest.fixture
def files(spark: SparkSession, out: Path, checkpoint: Path) -> FilesSink:
    sink = gw.files(out)
    assert isinstance(sink, FilesSink)
    sink.check(spark, SCHEMA, str(checkpoint))
    return sink


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    database = f"d{uuid.uuid4().hex}"
    spark.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path}'")
    yield f"{database}.outputs"
    spark.sql(f"DROP DATABASE {database} CASCADE")


def test_files_hold_each_epoch_once(
    spark: SparkSession, files: FilesSink, out: Path, checkpoint: Path
) -> None:
    files.deliver(0, rows(spark, 1, 2), "q/a", 2)
    files.deliver(1, rows(spark, 3), "q/b", 1)
    files.deliver(1, rows(spark, 3), "q/b", 1)
    assert delivered(spark.read.parquet(str(out))) == {(0, 1), (0, 2), (1, 3)}
    assert json.loads((out / "epoch=1/_godwit.json").read_text()) == {
        "epoch": 1,
        "commit": "q/b",
        "checkpoint": str(checkpoint),
    }


def test_files_of_an_epoch_without_rows_are_not_made(
    spark: SparkSession, files: FilesSink, out: Path
) -> None:
    files.deliver(0, rows(spark), "q/a", 0)
    assert not (out / "epoch=0").exists()
    files.deliver(1, rows(spark, 9), "q/b", 0)
    assert delivered(spark.read.parquet(str(out))) == {(1, 9)}
    assert files.deliver_files(2, NONE, "q/c")
    assert not (out / "epoch=2").exists()
    with pytest.raises(ConfigError, match="holds commit q/b, not commit q/z"):
        files.deliver_files(1, NONE, "q/z")


def test_files_of_another_history_are_not_overwritten(
    spark: SparkSession, files: FilesSink, out: Path
) -> None:
    files.deliver(0, rows(spark, 1), "q/a", 1)
    for values in ((2,), ()):
        with pytest.raises(
            ConfigError, match=r"holds commit q/a, not commit q/z.*before its .* was restored"
        ):
            files.deliver(0, rows(spark, *values), "q/z", len(values))
    assert delivered(spark.read.parquet(str(out))) == {(0, 1)}


def test_files_of_later_epochs_are_another_history(
    spark: SparkSession, files: FilesSink, out: Path, checkpoint: Path
) -> None:
    for epoch in (3, 10, 11):
        files.deliver(epoch, rows(spark, epoch), f"q/{epoch}", 1)
    restored = gw.files(out)
    restored.check(spark, SCHEMA, str(checkpoint))
    with pytest.raises(ConfigError, match=r"epoch=10 is there .* only come to epoch 4"):
        restored.deliver(4, rows(spark, 4), "q/z", 1)
    restored.deliver(11, rows(spark, 11), "q/11", 1)
    for epoch in range(3, 11):
        published(checkpoint, "q", epoch)
        refused = pytest.raises(ConfigError, match=rf"epoch=1[01] is .* come to epoch {epoch};")
        with refused:
            gw.files(out).check(spark, SCHEMA, str(checkpoint))
    (anew,) = published(checkpoint, "q", 11)
    with pytest.raises(ConfigError, match=f"holds commit q/11, not commit {anew}"):
        gw.files(out).check(spark, SCHEMA, str(checkpoint))


@pytest.mark.parametrize("receipt", [None, "", "{", "[]", "{}"])
def test_a_foreign_directory_is_not_overwritten(
    spark: SparkSession, files: FilesSink, out: Path, receipt: str | None
) -> None:
    foreign = out / "epoch=0"
    foreign.mkdir(parents=True)
    (foreign / "data").write_text("precious")
    if receipt is not None:
        (foreign / "_godwit.json").write_text(receipt)
    with pytest.raises(ConfigError, match="not written by this sink"):
        files.deliver(0, rows(spark, 1), "q/a", 1)
    assert (foreign / "data").read_text() == "precious"


def test_files_of_another_query_are_told_at_the_start(
    spark: SparkSession, files: FilesSink, out: Path, checkpoint: Path, tmp_path: Path
) -> None:
    files.deliver(0, rows(spark, 1), "q/a", 1)
    with pytest.raises(ConfigError) as told:
        gw.files(out).check(spark, SCHEMA, str(tmp_path / "new"))
    assert str(told.value) == (
        f"{out} holds the output of another query in checkpoint {checkpoint}. Name another output "
        "directory for this one, or delete this directory. Nothing was overwritten"
    )
    shutil.rmtree(checkpoint)
    with pytest.raises(ConfigError, match=f"{checkpoint}, which has been deleted since"):
        gw.files(out).check(spark, SCHEMA, str(checkpoint))


def test_files_without_a_checkpoint_in_their_receipt_are_told_as_well(
    spark: SparkSession, files: FilesSink, out: Path, tmp_path: Path
) -> None:
    """As versions before this one wrote it."""
    files.deliver(0, rows(spark, 1), "q/a", 1)
    (out / "epoch=0/_godwit.json").write_text('{"epoch": 0, "commit": "q/a"}')
    files.deliver(0, rows(spark, 1), "q/a", 1)
    with pytest.raises(ConfigError, match=r"holds the output of another query\. Name another"):
        gw.files(out).check(spark, SCHEMA, str(tmp_path / "new"))


def test_output_columns_that_come_and_go_are_null_in_other_epochs(
    spark: SparkSession, files: FilesSink, out: Path, checkpoint: Path
) -> None:
    files.deliver(0, rows(spark, 1), "q/a", 1)
    later = rows(spark, 2).selectExpr("n", "named_struct('at', timestamp '2024-01-01') AS extra")
    changed = gw.files(out)
    changed.check(spark, later.schema, str(checkpoint))
    changed.deliver(1, later, "q/b", 1)
    found = spark.read.parquet(str(out)).selectExpr("epoch", "n", "k", "string(extra.at) AS at")
    assert sorted(found.collect()) == [
        (0, 1, "k1", None),
        (1, 2, None, "2024-01-01 00:00:00"),
    ]
    schema_file = out / "_common_metadata"
    written = schema_file.stat().st_mtime_ns
    again = gw.files(out)
    again.check(spark, later.schema, str(checkpoint))
    again.deliver(2, later, "q/c", 1)
    assert schema_file.stat().st_mtime_ns == written
    part = rows(spark, 3).selectExpr("n", "named_struct('by', 'x') AS extra")
    changed.check(spark, part.schema, str(checkpoint))
    changed.deliver(3, part, "q/d", 1)
    found = spark.read.parquet(str(out)).selectExpr("epoch", "string(extra.at)", "extra.by")
    assert sorted(found.where("epoch IN (1, 3)").collect()) == [
        (1, "2024-01-01 00:00:00", None),
        (3, None, "x"),
    ]


def documented_reads() -> dict[str, str]:
    """How to read all epochs, by format, as the docs say it."""
    text = (Path(__file__).parents[2] / "docs/reference/guarantees.md").read_text()
    return dict(re.findall(r"\| `(\w+)` \| `(spark\.read.*)` \|", text))


def test_the_docs_say_for_each_format_how_to_read_all_epochs() -> None:
    assert sorted(documented_reads()) == sorted(FORMATS)


@pytest.mark.parametrize("format", ["parquet", "orc", "json", "xml", "csv"])
def test_epochs_with_a_column_and_epochs_before_it_are_read_together(
    spark: SparkSession, out: Path, checkpoint: Path, format: str
) -> None:
    """`text` has one column, and `avro` is a package of its own."""
    wider = ["k", "n", "extra"] if format == "csv" else ["extra", "k", "n"]
    later = rows(spark, 2).selectExpr("k", "n", "'e' AS extra").select(*wider)
    for epoch, delivery in enumerate((rows(spark, 1), later)):
        sink = gw.files(out, format, **({"rowTag": "row"} if format == "xml" else {}))
        sink.check(spark, delivery.schema, str(checkpoint))
        sink.deliver(epoch, delivery, f"q/{epoch}", 1)
    names = {"spark": spark, "path": str(out), "columns": "k string, n bigint, extra string"}
    found = eval(documented_reads()[format], names).select("epoch", "k", "n", "extra")
    assert sorted(found.collect()) == [(0, "k1", 1, None), (1, "k2", 2, "e")]


def test_leftovers_of_dead_attempts_are_invisible_and_removed(
    spark: SparkSession, files: FilesSink, out: Path
) -> None:
    staging = out / "_staging"
    files.deliver(0, rows(spark, 1), "q/a", 1)
    for name in ("0-dead", "1-dead", "2-alive-elsewhere"):
        rows(spark, 7).write.parquet(str(staging / name))
    assert delivered(spark.read.parquet(str(out))) == {(0, 1)}
    files.deliver(1, rows(spark, 2), "q/b", 1)
    assert [stage.name for stage in staging.iterdir()] == ["2-alive-elsewhere"]
    assert delivered(spark.read.parquet(str(out))) == {(0, 1), (1, 2)}


def test_a_failed_attempt_leaves_nothing(spark: SparkSession, files: FilesSink, out: Path) -> None:
    failing = spark.range(1).selectExpr("'k' AS k", "assert_true(false, 'no') IS NULL AS n")
    with pytest.raises(PySparkException, match="no"):
        files.deliver(0, failing, "q/a", 1)
    assert list((out / "_staging").iterdir()) == []
    assert not (out / "epoch=0").exists()


def test_two_drivers_that_deliver_the_same_commit_agree(
    spark: SparkSession, files: FilesSink, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one gets in between this one's look and its rename."""
    module = sys.modules[FilesSink.__module__]
    sync = module._sync_tree

    def overtaken(stage: Path) -> None:
        monkeypatch.setattr(module, "_sync_tree", sync)
        gw.files(out).deliver(0, rows(spark, 1), "q/a", 1)
        sync(stage)

    monkeypatch.setattr(module, "_sync_tree", overtaken)
    files.deliver(0, rows(spark, 1), "q/a", 1)
    assert delivered(spark.read.parquet(str(out))) == {(0, 1)}
    assert list((out / "_staging").iterdir()) == []


def test_files_take_the_options_of_their_format(
    spark: SparkSession, out: Path, checkpoint: Path
) -> None:
    sink = gw.files(out, "csv", header=True, sep=";")
    sink.check(spark, SCHEMA, str(checkpoint))
    sink.deliver(0, rows(spark, 1).coalesce(1), "q/a", 1)
    (data,) = (out / "epoch=0").glob("*.csv")
    assert data.read_text() == "k;n\nk1;1\n"


def test_what_cannot_work_is_refused_at_the_start(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    with pytest.raises(
        ConfigError, match=r"s3a.* does not qualify for a sink; write s3://bucket/prefix"
    ):
        gw.files("s3a://bucket/out")
    with pytest.raises(ConfigError, match="unknown file format 'parket'"):
        gw.files(tmp_path, "parket").check(spark, SCHEMA, str(checkpoint))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        gw.files(tmp_path / "file").check(spark, SCHEMA, str(checkpoint))
    below = tmp_path / "file" / "out"
    with pytest.raises(ConfigError, match=f"the output {below} cannot be written: .*is a file"):
        gw.files(below).check(spark, SCHEMA, str(checkpoint))
    for place in (tmp_path, checkpoint, checkpoint / "out"):
        with pytest.raises(ConfigError, match=r"one lies in the other; name two"):
            gw.files(place).check(spark, SCHEMA, str(checkpoint))
    taken = to_spark(parse("Epoch int"))
    for sink in (gw.files(tmp_path), gw.table("t"), gw.memory("m")):
        with pytest.raises(ConfigError, match="column 'Epoch'"):
            sink.check(spark, taken, str(checkpoint))


def test_a_table_has_a_partition_an_epoch(
    spark: SparkSession, table: str, checkpoint: Path
) -> None:
    sink = gw.table(table)
    sink.check(spark, SCHEMA, str(checkpoint))
    sink.deliver(0, rows(spark, 1, 2), "q/a", 2)
    sink.deliver(1, rows(spark, 3).select("n", "k"), "q/b", 1)
    sink.deliver(1, rows(spark, 3), "q/b", 1)
    assert delivered(spark.table(table)) == {(0, 1), (0, 2), (1, 3)}

    gw.table(table).check(spark, SCHEMA, str(checkpoint))
    sink.deliver(2, rows(spark), "q/c", 0)
    assert delivered(spark.table(table)) == {(0, 1), (0, 2), (1, 3)}


def test_a_table_says_whose_output_it_holds(
    spark: SparkSession, table: str, checkpoint: Path
) -> None:
    """And takes that of another query, or of another history, once nothing is said."""
    sink = gw.table(table)
    sink.check(spark, SCHEMA, f"{checkpoint}'s")
    sink.deliver(3, rows(spark, 1), "q/3/1", 1)
    properties = spark.sql(f"SHOW TBLPROPERTIES {table}").collect()
    told = {row.key: row.value for row in properties}
    assert told["godwit.commit"] == "q/3/1"
    assert told["godwit.checkpoint"] == f"{checkpoint}'s"
    with pytest.raises(ConfigError, match=r"another query, in checkpoint .*'s.*UNSET") as refused:
        sink.deliver(0, rows(spark, 2), "other/0/1", 1)
    statement = f"ALTER TABLE {table} UNSET TBLPROPERTIES ('godwit.commit')"
    assert statement in str(refused.value)
    spark.sql(statement)
    sink.deliver(0, rows(spark, 2), "other/0/1", 1)
    assert delivered(spark.table(table)) == {(3, 1), (0, 2)}


def test_a_table_finishes_a_delivery_that_was_begun(
    spark: SparkSession, table: str, checkpoint: Path
) -> None:
    """The commit is told before its rows: who dies between them has delivered nothing."""
    sink = gw.table(table)
    sink.check(spark, SCHEMA, str(checkpoint))
    failing = spark.range(1).selectExpr("'k' AS k", "assert_true(false, 'no') IS NULL AS n")
    with pytest.raises(PySparkException, match="no"):
        sink.deliver(0, failing.withColumn("n", failing.n.cast("long")), "q/0/1", 1)
    sink.deliver(0, rows(spark, 1), "q/0/1", 1)
    assert delivered(spark.table(table)) == {(0, 1)}


def test_a_table_of_another_shape_is_refused(
    spark: SparkSession, table: str, checkpoint: Path
) -> None:
    spark.sql(f"CREATE TABLE {table} (k string, n bigint, epoch bigint) USING parquet")
    with pytest.raises(ConfigError, match="not partitioned"):
        gw.table(table).check(spark, SCHEMA, str(checkpoint))
    spark.sql(f"DROP TABLE {table}")
    gw.table(table).check(spark, SCHEMA, str(checkpoint))
    with pytest.raises(ConfigError, match="has the columns k, n, the query's output k, other"):
        gw.table(table).check(spark, to_spark(parse("k string, other bigint")), str(checkpoint))


def test_memory_is_a_view_of_all_epochs(spark: SparkSession, checkpoint: Path) -> None:
    sink = gw.memory("remembered")
    sink.check(spark, SCHEMA, str(checkpoint))
    assert delivered(spark.table("remembered")) == set()
    batches = spark.newSession()
    sink.deliver(0, rows(batches, 1), "q/a", 1)
    sink.deliver(1, rows(batches), "q/b", 0)
    sink.deliver(2, rows(batches, 2, 3), "q/c", 2)
    sink.deliver(2, rows(batches, 2, 3), "q/c", 2)
    assert delivered(spark.table("remembered")) == {(0, 1), (2, 2), (2, 3)}


def test_a_function_gets_rows_and_epoch(spark: SparkSession, checkpoint: Path) -> None:
    calls = []
    sink = gw.foreach_batch(lambda df, epoch: calls.append((epoch, df.count())))
    sink.check(spark, SCHEMA, str(checkpoint))
    sink.deliver(4, rows(spark, 1, 2), "q/a", 2)
    sink.deliver(5, rows(spark), "q/b", 0)
    assert calls == [(4, 2), (5, 0)]


def test_the_console_shows_the_first_rows(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], checkpoint: Path
) -> None:
    sink = gw.console(rows=1)
    sink.check(spark, SCHEMA, str(checkpoint))
    sink.deliver(3, rows(spark, 1, 2), "q/a", 2)
    shown = capsys.readouterr().out
    assert shown.startswith("epoch 3\n")
    assert "k1" in shown
    assert "k2" not in shown


def test_every_sink_states_its_guarantee(tmp_path: Path) -> None:
    every: list[Sink] = [
        gw.files(tmp_path),
        gw.table("t"),
        gw.foreach_batch(lambda df, epoch: None),
        gw.console(),
        gw.memory("m"),
    ]
    for sink in every:
        assert sink.guarantee.startswith(("exactly once", "at least once"))
