"""Rolling back: to a retained epoch, without losing what is undone, and safe to interrupt."""

import shutil
from pathlib import Path

import pytest

from godwit.errors import CheckpointError, FencedError
from godwit.log import History, Journal, agree, offsets_digest, restore
from godwit.model.ids import Epoch
from godwit.storage.local import LocalStore
from tests.support.log_samples import (
    files_below,
    intent_of,
    journal_at,
    manifest_of,
    schedule_of,
    spark_log,
)


def _checkpoint(root: Path, last: int = 4, retained: int = 4) -> Journal:
    """A checkpoint in the middle of the epoch after `last`, with requests for now and later."""
    spark = spark_log(root, offsets=last + 1, commits=last)
    journal = journal_at(root)
    for epoch in range(last + 1):
        offsets = offsets_digest(LocalStore(spark), epoch) or ""
        journal.begin(intent_of(epoch, offsets=offsets))
        journal.publish(manifest_of(epoch, offsets=offsets))
    journal.begin(intent_of(last + 1, offsets=offsets_digest(LocalStore(spark), last + 1) or ""))
    journal.prune(Epoch(last + 1 - retained))
    for epochs in ([1], [1, 9], [9]):
        journal.requests.add(schedule_of(epochs[0], *epochs))
    return journal


def test_later_epochs_are_put_aside_and_the_driver_is_fenced(tmp_path: Path) -> None:
    driver = _checkpoint(tmp_path)
    before = files_below(tmp_path)
    manifest = restore(tmp_path, 2, durable=False)
    assert manifest.epoch == 2
    with pytest.raises(FencedError):
        driver.check()
    history = History.inspect(tmp_path)
    assert history.last() == manifest
    assert history.epochs() == [1, 2]
    assert history.intents() == [0, 1, 2]
    assert history.requests.ids() == [1]
    agree(history)
    after = files_below(tmp_path)
    undone = {n.removeprefix("godwit/undone/2/"): c for n, c in after.items() if "/undone/" in n}
    moved = {n.removeprefix("godwit/"): content for n, content in before.items() if n not in after}
    assert undone == moved
    assert {"spark/offsets/5", "spark/offsets/.5.crc", "manifests/4.json"} <= undone.keys()


def test_the_query_goes_on_with_new_epochs_and_new_request_ids(tmp_path: Path) -> None:
    _checkpoint(tmp_path)
    restore(tmp_path, 2, durable=False)
    journal = journal_at(tmp_path)
    journal.begin(intent_of(3, offsets="new"))
    assert journal.publish(manifest_of(3, offsets="new")).generation == 3
    assert journal.requests.add(schedule_of(9)).id == 4


def test_the_last_epoch_can_be_restored_to_drop_the_one_in_flight(tmp_path: Path) -> None:
    _checkpoint(tmp_path)
    restore(tmp_path, 4, durable=False)
    history = History.inspect(tmp_path)
    assert (history.epochs()[-1], history.intents()[-1]) == (4, 4)
    agree(history)


def test_the_initial_state_can_be_restored(tmp_path: Path) -> None:
    spark = spark_log(tmp_path, offsets=0, commits=0)
    journal = journal_at(tmp_path)
    journal.publish(manifest_of(-1))
    journal.publish(manifest_of(0, offsets=offsets_digest(LocalStore(spark), 0) or ""))
    assert restore(tmp_path, -1, durable=False).epoch == -1
    agree(History.inspect(tmp_path))


def test_an_epoch_without_a_manifest_is_refused_and_nobody_is_fenced(tmp_path: Path) -> None:
    driver = _checkpoint(tmp_path)
    before = files_below(tmp_path)
    for epoch in (0, 5, 17):
        with pytest.raises(CheckpointError, match=f"epoch {epoch} is not retained.*from 1 to 4"):
            restore(tmp_path, epoch)
    assert files_below(tmp_path) == before
    driver.check()


def test_an_epoch_that_spark_no_longer_has_is_refused(tmp_path: Path) -> None:
    driver = _checkpoint(tmp_path)
    (tmp_path / "spark" / "offsets" / "1").unlink()
    with pytest.raises(CheckpointError, match=r"epoch 1 cannot be restored: Spark's log"):
        restore(tmp_path, 1)
    driver.check()


@pytest.mark.parametrize("emptied", [True, False], ids=["emptied", "missing"])
def test_without_spark_s_log_nothing_is_moved(tmp_path: Path, emptied: bool) -> None:
    driver = _checkpoint(tmp_path)
    shutil.rmtree(tmp_path / "spark")
    if emptied:
        (tmp_path / "spark" / "offsets").mkdir(parents=True)
    before = files_below(tmp_path)
    with pytest.raises(CheckpointError, match=r"spark/, is empty or was deleted.* from one backup"):
        restore(tmp_path, 2)
    assert files_below(tmp_path) == before
    driver.check()


def test_there_must_be_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no Godwit checkpoint here"):
        restore(tmp_path, 0)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_restore_is_refused_at_a_start_or_has_changed_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = Journal.move
    refused = 0
    for moves in range(100):
        root = tmp_path / str(moves)
        _checkpoint(root)
        last = History.inspect(root).last()
        left = moves

        def limited(journal: Journal, name: str, target: str) -> None:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            move(journal, name, target)

        monkeypatch.setattr(Journal, "move", limited)
        try:
            restore(root, 2, durable=False)
        except KeyboardInterrupt:
            history = History.inspect(root)
            try:
                agree(history)
            except CheckpointError:
                refused += 1
            else:
                assert history.last() == last
                assert history.requests.ids() == [1, 2, 3]
        else:
            break
        finally:
            monkeypatch.undo()
        restore(root, 2, durable=False)
        history = History.inspect(root)
        agree(history)
        assert (history.epochs(), history.intents()) == ([1, 2], [0, 1, 2])
    assert refused > 10
