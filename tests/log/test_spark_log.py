"""Spark's log as Spark writes it, and every way in which it can disagree with Godwit's."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from godwit.errors import CheckpointError, DamagedFileError
from godwit.log import History, Journal, agree, offsets_digest, query_id, restore
from godwit.log.spark_log import newest_commit, newest_offsets, planned_at
from godwit.model.ids import Epoch
from godwit.model.manifest import Manifest
from godwit.storage.local import LocalStore
from tests.support.log_samples import (
    QUERY,
    intent_of,
    journal_at,
    manifest_of,
    offsets_file,
    spark_log,
)


def _publish(root: Path, spark: Path, *epochs: int) -> Journal:
    """Godwit's log over Spark's: each epoch with the digest of its offsets."""
    journal = journal_at(root)
    for epoch in epochs:
        offsets = offsets_digest(LocalStore(spark), epoch) or "none"
        journal.begin(intent_of(epoch, offsets=offsets))
        journal.publish(manifest_of(epoch, offsets=offsets))
    return journal


def test_a_query_that_never_ran_has_no_log(tmp_path: Path) -> None:
    assert query_id(LocalStore(tmp_path)) is None
    assert newest_offsets(LocalStore(tmp_path)) is None
    assert newest_commit(LocalStore(tmp_path)) is None
    assert offsets_digest(LocalStore(tmp_path), 0) is None


def test_the_log_is_read_numerically_and_without_side_files(tmp_path: Path) -> None:
    spark = spark_log(tmp_path, offsets=10, commits=9)
    (spark / "offsets" / ".11.5bd2.tmp").write_text("v1")
    log = LocalStore(spark)
    assert (query_id(log), newest_offsets(log), newest_commit(log)) == (QUERY, 10, 9)


def test_the_digest_is_of_the_sources_and_not_of_the_time(tmp_path: Path) -> None:
    spark = spark_log(tmp_path, offsets=1, commits=0)
    before = offsets_digest(LocalStore(spark), 0)
    (spark / "offsets" / "0").write_text(offsets_file(0, time=99))
    assert offsets_digest(LocalStore(spark), 0) == before
    assert offsets_digest(LocalStore(spark), 1) != before


def test_it_tells_when_an_epoch_was_planned(tmp_path: Path) -> None:
    spark = spark_log(tmp_path, offsets=0, commits=-1)
    (spark / "offsets" / "0").write_text(offsets_file(0, time=1500))
    assert planned_at(LocalStore(spark), 0) == 1.5


@pytest.mark.parametrize("content", ["", "v1", "v1\n{}", "foreign\n{}\n0"])
def test_a_damaged_offsets_file_is_named(tmp_path: Path, content: str) -> None:
    spark = spark_log(tmp_path, offsets=0, commits=0)
    (spark / "offsets" / "0").write_text(content)
    with pytest.raises(DamagedFileError, match="offsets/0: is not a whole offsets file"):
        offsets_digest(LocalStore(spark), 0)


@pytest.mark.parametrize("content", ["", "{}", "[]", "7", "\xff"])
def test_a_damaged_metadata_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "metadata").write_text(content)
    with pytest.raises(DamagedFileError, match="metadata: does not hold the id"):
        query_id(LocalStore(tmp_path))


@pytest.mark.parametrize(
    ("published", "offsets", "commits"),
    [
        ([], -1, -1),  # new
        ([-1], -1, -1),  # initial state loaded
        ([-1], 0, -1),  # first epoch planned
        ([], 0, -1),
        ([0], 0, -1),  # published, not committed
        ([0], 0, 0),
        ([0], 1, 0),  # next one planned
        ([-1, 0, 1], 1, 1),
    ],
)
def test_logs_that_agree(tmp_path: Path, published: list[int], offsets: int, commits: int) -> None:
    spark = spark_log(tmp_path, offsets, commits)
    journal = _publish(tmp_path, spark, *published)
    agree(journal)


def test_logs_agree_after_both_were_pruned_and_with_an_epoch_in_flight(tmp_path: Path) -> None:
    spark = spark_log(tmp_path, offsets=8, commits=7, first=6)
    journal = _publish(tmp_path, spark, 5, 6, 7)
    journal.begin(intent_of(8, offsets=offsets_digest(LocalStore(spark), 8) or ""))
    journal.prune(Epoch(7))
    agree(journal)


def test_logs_agree_while_a_driver_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It publishes and commits an epoch between the look at one log and the look at the other."""
    spark = spark_log(tmp_path, offsets=1, commits=0)
    _publish(tmp_path, spark, 0)
    last = History.last

    def overtaken(self: History) -> Manifest | None:
        monkeypatch.undo()
        manifest = last(self)
        _publish(tmp_path, spark, 1)
        spark_log(tmp_path, offsets=2, commits=1)
        return manifest

    monkeypatch.setattr(History, "last", overtaken)
    agree(History.inspect(tmp_path))


def _delete_log(spark: Path) -> None:
    shutil.rmtree(spark)


def _delete(*names: str) -> Callable[[Path], None]:
    def delete(spark: Path) -> None:
        for name in names:
            (spark / name).unlink()

    return delete


def _copy(source: str, target: str) -> Callable[[Path], None]:
    def copy(spark: Path) -> None:
        shutil.copy(spark / source, spark / target)

    return copy


def _another_query(spark: Path) -> None:
    (spark / "metadata").write_text(json.dumps({"id": "another"}))


@pytest.mark.parametrize(
    ("damage", "problem", "next_step"),
    [
        (_delete_log, "Spark's log is empty or was deleted", "start a new one with the state"),
        (_copy("commits/3", "commits/4"), "Spark committed epoch 4", r"restore\(checkpoint, 3\)"),
        (
            _delete("offsets/3", "offsets/2", "commits/3", "commits/2"),
            "Spark's offsets end at epoch 1",
            r"restore\(checkpoint, 1\)",
        ),
        (
            _delete("commits/3", "commits/2"),
            "Spark's commits end at epoch 1",
            r"restore\(checkpoint, 2\)",
        ),
        (_delete("metadata"), "Spark's log of query None", "start a new one with the state"),
        (_another_query, "Spark's log of query another", "start a new one with the state"),
        (
            _copy("offsets/0", "offsets/3"),
            "Godwit began epoch 3, but Spark's log now has other offsets",
            r"restore\(checkpoint, 2\)",
        ),
    ],
)
def test_logs_that_disagree_are_refused_with_a_next_step(
    tmp_path: Path, damage: Callable[[Path], None], problem: str, next_step: str
) -> None:
    spark = spark_log(tmp_path, offsets=3, commits=3)
    journal = _publish(tmp_path, spark, 0, 1, 2, 3)
    agree(journal)
    damage(spark)
    with pytest.raises(CheckpointError, match=f"{tmp_path}: .*{problem}.*{next_step}") as caught:
        agree(journal)
    assert "from one backup" in str(caught.value)


@pytest.mark.parametrize("damage", [_delete("offsets/4"), _copy("offsets/0", "offsets/4")])
def test_an_epoch_that_was_begun_with_offsets_that_changed_is_refused(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    spark = spark_log(tmp_path, offsets=4, commits=3)
    journal = _publish(tmp_path, spark, 3)
    journal.begin(intent_of(4, offsets=offsets_digest(LocalStore(spark), 4) or ""))
    agree(journal)
    damage(spark)
    with pytest.raises(CheckpointError, match=r"began epoch 4.*restore\(checkpoint, 3\)"):
        agree(journal)
    restore(tmp_path, 3, durable=False)
    agree(History.inspect(tmp_path))


def test_a_first_epoch_whose_offsets_changed_can_only_be_deleted(tmp_path: Path) -> None:
    spark_log(tmp_path, offsets=-1, commits=-1)
    journal = journal_at(tmp_path)
    journal.begin(intent_of(0))
    with pytest.raises(CheckpointError, match=r"began epoch 0.*it has published nothing"):
        agree(journal)


@pytest.mark.spark
def test_a_real_query_goes_on_from_the_epoch_it_was_restored_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines, root = tmp_path / "lines", tmp_path / "checkpoint"
    lines.mkdir()
    seen: dict[int, list[str]] = {}

    def run_epochs() -> Journal:
        journal = journal_at(root)
        agree(journal)

        def epoch(batch: DataFrame, number: int) -> None:
            offsets = offsets_digest(LocalStore(root / "spark"), number)
            assert offsets is not None
            assert newest_offsets(LocalStore(root / "spark")) == number
            query = query_id(LocalStore(root / "spark")) or ""
            seen[number] = sorted(row.value for row in batch.collect())
            intent, manifest = intent_of(number, offsets=offsets), manifest_of(number, offsets)
            journal.begin(replace(intent, query=query))
            journal.publish(replace(manifest, query=query))

        (
            spark.readStream.option("maxFilesPerTrigger", 1)
            .text(str(lines))
            .writeStream.foreachBatch(epoch)
            .option("checkpointLocation", str(root / "spark"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
        agree(journal)
        return journal

    for name in "abc":
        (lines / name).write_text(name)
    assert run_epochs().epochs() == [0, 1, 2]
    assert newest_commit(LocalStore(root / "spark")) == 2
    once = dict(seen)
    restore(root, 0)
    agree(History.inspect(root))
    log = LocalStore(root / "spark")
    assert newest_offsets(log) == newest_commit(log) == 0
    seen.clear()
    journal = run_epochs()
    assert 0 not in seen
    replayed = [line for number in sorted(seen) for line in seen[number]]
    assert sorted(once[0] + replayed) == ["a", "b", "c"]
    assert journal.epochs() == [0, *sorted(seen)]
