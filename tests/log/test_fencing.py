"""Two drivers on one checkpoint: the later one takes over, the earlier one damages nothing."""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from godwit import faults
from godwit.errors import FencedError
from godwit.log import History, Journal
from godwit.model.ids import Epoch
from godwit.storage.local import LocalStore
from tests.support.log_samples import files_below, intent_of, journal_at, manifest_of, run
from tests.support.processes import forks, wait_until_stopped

OPENERS = 6


def test_the_older_driver_can_change_nothing(tmp_path: Path) -> None:
    older = journal_at(tmp_path)
    run(older, 0, 1)
    newer = journal_at(tmp_path)
    newer.check()
    before = files_below(tmp_path)
    changes: list[Callable[[], Any]] = [
        older.check,
        lambda: older.begin(intent_of(2)),
        lambda: older.begin(intent_of(1)),
        lambda: older.publish(manifest_of(2)),
        lambda: older.publish(manifest_of(1)),
        lambda: older.prune(Epoch(1)),
        lambda: older.delete("manifests/1.json"),
        lambda: older.move("godwit/manifests/1.json", "godwit/manifests/7.json"),
    ]
    for change in changes:
        with pytest.raises(FencedError) as caught:
            change()
        assert (caught.value.generation, caught.value.newer) == (1, 2)
        assert files_below(tmp_path) == before
    run(newer, 2)


def test_the_spark_of_the_older_driver_cannot_reach_its_log(tmp_path: Path) -> None:
    older = journal_at(tmp_path)
    held = older.spark_log().path
    (held / "metadata").write_text("id")
    newer = journal_at(tmp_path)
    with pytest.raises(NotADirectoryError):
        (held / "commits").mkdir(parents=True)
    with pytest.raises(NotADirectoryError):
        (held / "metadata").unlink()
    with pytest.raises(FencedError):
        older.spark_log()
    assert (newer.spark_log().path / "metadata").read_text() == "id"
    assert [path.name for path in (tmp_path / "spark").iterdir()] == ["metadata"]


def test_a_manifest_that_the_older_driver_published_first_is_adopted(tmp_path: Path) -> None:
    older = journal_at(tmp_path)
    older.begin(intent_of(0))
    first = older.publish(manifest_of(0, note="older"))
    newer = journal_at(tmp_path)
    assert newer.begin(intent_of(0)).generation == 1
    assert newer.publish(manifest_of(0, note="newer")) == first
    run(newer, 1)
    with pytest.raises(FencedError):
        older.publish(manifest_of(0, note="older"))


def _change(journal: Journal, change: str) -> None:
    if change == "begin":
        journal.begin(intent_of(1))
    elif change == "publish":
        journal.publish(manifest_of(1))
    else:
        journal.delete("manifests/0.json")


@pytest.mark.parametrize("change", ["begin", "publish", "delete"])
@pytest.mark.parametrize("instant", ["before the draft", "before the link or rename"])
def test_a_takeover_between_the_check_and_the_change_still_fences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, instant: str
) -> None:
    older = journal_at(tmp_path)
    run(older, 0)
    newer: list[Journal] = []

    def take_over(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            monkeypatch.undo()
            newer.append(journal_at(tmp_path))
            return call(*args, **kwargs)

        return called

    if instant == "before the draft":
        operation = "delete" if change == "delete" else "create"
        monkeypatch.setattr(LocalStore, operation, take_over(getattr(LocalStore, operation)))
    elif change == "delete":
        monkeypatch.setattr(Path, "rename", take_over(Path.rename))
    else:
        monkeypatch.setattr(os, "link", take_over(os.link))
    with pytest.raises(FencedError) as caught:
        _change(older, change)
    assert caught.value.__suppress_context__  # what failed first would only confuse
    assert newer[0].epochs() == newer[0].intents() == [0]
    run(newer[0], 1)


def test_an_epoch_that_was_pruned_meanwhile_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = journal_at(tmp_path)
    older.begin(intent_of(0))
    link = os.link

    def long_after(source: Any, target: Any) -> None:
        monkeypatch.undo()
        newer = journal_at(tmp_path)
        run(newer, 0, 1, 2)
        newer.prune(Epoch(2))
        link(source, target)

    monkeypatch.setattr(os, "link", long_after)
    with pytest.raises(FencedError):
        older.publish(manifest_of(0))
    assert History.inspect(tmp_path).epochs() == [2]


def _stop_at(where: str) -> None:
    """Stop this process at a point of an epoch, as a debugger or a frozen machine would."""

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    if where == "link":
        link = os.link

        def stop_and_link(source: Any, target: Any) -> None:
            stop()
            link(source, target)

        os.link = stop_and_link  # type: ignore[assignment]
    else:
        point, side = where.split()

        def handler(reached: str, at: faults.Side, epoch: int) -> None:
            if (reached, at) == (point, side):
                stop()

        faults.handler = handler


def _drive(root: Path, where: str, outcome: "multiprocessing.Queue[str]") -> None:
    journal = journal_at(root)
    journal.begin(intent_of(0))
    journal.publish(manifest_of(0))
    if where == "link":
        journal.begin(intent_of(1))
    _stop_at(where)
    try:
        journal.begin(intent_of(1))
        journal.publish(manifest_of(1, note="woken"))
        journal.begin(intent_of(2))
    except FencedError as error:
        outcome.put(f"fenced by {error.newer}")
    else:
        outcome.put("not fenced")


@pytest.mark.parametrize(
    "where", ["intent before", "intent after", "manifest before", "manifest after", "link"]
)
def test_a_driver_that_is_stopped_in_mid_epoch_and_woken_after_a_takeover(
    tmp_path: Path, where: str
) -> None:
    context = forks()
    outcome: multiprocessing.Queue[str] = context.Queue()
    driver = context.Process(target=_drive, args=(tmp_path, where, outcome))
    driver.start()
    assert driver.pid is not None
    wait_until_stopped(driver.pid)
    newer = journal_at(tmp_path)
    newer.begin(intent_of(1))
    published = newer.publish(manifest_of(1, note="took over"))
    newer.begin(intent_of(2))
    before = files_below(tmp_path)
    os.kill(driver.pid, signal.SIGCONT)
    assert outcome.get(timeout=60) == "fenced by 2"
    driver.join()
    assert files_below(tmp_path) == before
    woken = where == "manifest after"  # it had published before it was stopped, so it is adopted
    assert published.executors == {0: "woken" if woken else "took over"}
    newer.publish(manifest_of(2))


def _open(root: Path, taken: "multiprocessing.Queue[int]") -> None:
    for _ in range(5):
        taken.put(Journal.open(root).generation)


def test_racing_processes_take_different_generations(tmp_path: Path) -> None:
    context = forks()
    taken: multiprocessing.Queue[int] = context.Queue()
    openers = [context.Process(target=_open, args=(tmp_path, taken)) for _ in range(OPENERS)]
    for opener in openers:
        opener.start()
    generations = sorted(taken.get(timeout=60) for _ in range(5 * OPENERS))
    for opener in openers:
        opener.join()
        assert opener.exitcode == 0
    assert generations == list(range(1, 5 * OPENERS + 1))
    assert sum(path.is_dir() for path in (tmp_path / "godwit" / "staging").iterdir()) == 1


def test_a_driver_whose_staging_is_closed_before_it_has_a_generation_takes_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_at(tmp_path)
    link = os.link

    def two_others_first(source: Any, target: Any) -> None:
        monkeypatch.undo()
        assert [journal_at(tmp_path).generation for _ in range(2)] == [2, 3]
        assert not os.path.exists(source)
        link(source, target)

    monkeypatch.setattr(os, "link", two_others_first)
    late = journal_at(tmp_path)
    assert late.generation == 4
    run(late, 0)


def test_a_copied_checkpoint_without_empty_directories_opens(tmp_path: Path) -> None:
    run(journal_at(tmp_path / "original"), 0)
    for name, content in files_below(tmp_path / "original").items():
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    shutil.rmtree(tmp_path / "original")
    copied = journal_at(tmp_path / "copy")
    assert copied.generation == 2
    run(copied, 1)
