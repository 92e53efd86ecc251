"""Paced migrations: destinations fetch ahead of need, and what they have changes its worker."""

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from godwit.errors import GodwitError
from godwit.log import History
from godwit.migration.strategies import all_at_once, paced
from godwit.model.files import FileRef
from godwit.model.ids import WorkerId
from godwit.model.receipt import Receipt
from godwit.model.routing import Routing
from godwit.state import file as state_file
from godwit.state.cache import FileCache
from tests.support.operator_simulation import OperatorSimulation
from tests.support.simulated import begin, counts, simulate, words

KEYS = [f"word {i}" for i in range(3000)]
TARGET = Routing.even(64, 4)


@pytest.fixture
def sim(tmp_path: Path) -> OperatorSimulation:
    """Two workers with a state of many files, of which each has a few segments."""
    with patch.object(state_file, "PART_BYTES", 10_000):
        sim = simulate(tmp_path, bins=64)
        sim.feed(words(*KEYS))
    return sim


def fetched(checkpoint: Path, epoch: int) -> list[int]:
    manifest = History(checkpoint).manifest(epoch)
    assert manifest is not None
    return [receipt.fetched for receipt in manifest.receipts["counts"]]


def moved(sim: OperatorSimulation) -> int:
    return int(np.count_nonzero(sim.driver.routing("counts").owners == TARGET.owners))


def test_bins_move_as_soon_as_their_destination_has_them(
    sim: OperatorSimulation, tmp_path: Path
) -> None:
    stay = moved(sim)
    sim.migrate(TARGET, strategy=paced("0 ms"))
    progress, bytes_fetched = [], 0
    while sim.driver.routing("counts") != TARGET:
        sim.feed(words("word 1"))
        progress.append(moved(sim))
        bytes_fetched += sum(fetched(tmp_path, sim.committed))
    assert progress[0] == stay  # the first epoch announces
    assert progress == sorted(progress)
    assert len(set(progress)) > 5
    assert counts(sim) == {**dict.fromkeys(KEYS, 1), "word 1": len(progress) + 1}
    whole = sum(ref.stat().st_size for ref in (tmp_path / "godwit/state").rglob("e0-*"))
    assert whole / 4 < bytes_fetched < whole


def test_with_time_enough_all_is_fetched_in_the_first_epoch(
    sim: OperatorSimulation, tmp_path: Path
) -> None:
    sim.migrate(TARGET, strategy=paced("60 s"))
    sim.feed([])
    assert moved(sim) < 64
    assert sum(fetched(tmp_path, 1)) > 0
    sim.feed(words(*KEYS))
    assert sim.driver.routing("counts") == TARGET
    assert fetched(tmp_path, 2) == [0, 0, 0, 0]
    assert counts(sim) == dict.fromkeys(KEYS, 2)


def test_a_share_is_of_what_recent_epochs_took_without_fetching(sim: OperatorSimulation) -> None:
    """Namely of the slowest worker, in the median of the last five epochs."""
    sim.migrate(TARGET, strategy=paced("+20 %"))
    slowest = [0.5, 8.0, 2.0, 1.0, 3.0, 9.0, 4.0]
    for epoch, seconds in enumerate(slowest, start=1):
        intent = begin(sim.driver, epoch)
        ahead = sim.driver.work(intent, "counts").ahead
        assert ahead is not None
        if epoch > 5:
            assert ahead.seconds == pytest.approx(0.2 * median(slowest[epoch - 6 : epoch - 1]))
        receipts = [
            Receipt(WorkerId(worker), seconds={"process": seconds / (worker + 1), "fetch": 99.0})
            for worker in range(intent.routings["counts"].workers)
        ]
        sim.driver.commit(intent, {"counts": receipts})


@pytest.mark.parametrize(("budget", "files"), [("0 s", 1), ("2 s", 2), ("2.5 s", 3)])
def test_fetching_ends_with_the_file_that_uses_the_budget_up(
    sim: OperatorSimulation, budget: str, files: int
) -> None:
    """Each file takes a second of a clock that nothing else moves."""
    now, fetched, fetch = [0.0], Counter[str](), FileCache.fetch

    def fetch_slowly(cache: FileCache, ref: FileRef) -> None:
        fetch(cache, ref)
        fetched[str(cache._directory)] += 1
        now[0] += 1

    sim.migrate(TARGET, strategy=paced(budget))
    work = sim.driver.work(begin(sim.driver, 1), "counts")
    with patch.object(FileCache, "fetch", fetch_slowly):
        for worker in range(4):
            alone = replace(work, cache=sim._cache(worker))
            assert alone.run(WorkerId(worker), [], clock=lambda: now[0]).failure is None
    assert list(fetched.values()) == [files] * 3  # of workers 1, 2 and 3


def test_without_pace_destinations_fetch_when_they_need_it(
    sim: OperatorSimulation, tmp_path: Path
) -> None:
    sim.migrate(TARGET, strategy=all_at_once())
    sim.feed(words(*KEYS))
    assert sum(fetched(tmp_path, 1)) > 0
    assert counts(sim) == dict.fromkeys(KEYS, 2)


def test_after_a_restart_nobody_has_anything_and_all_bins_move(sim: OperatorSimulation) -> None:
    sim.migrate(TARGET, strategy=paced("0 ms"))
    sim.feed([])
    assert moved(sim) < 64
    sim.restart()
    sim.feed([])
    assert sim.driver.routing("counts") == TARGET


def test_workers_that_may_be_elsewhere_have_to_say_again_what_they_have(
    sim: OperatorSimulation,
) -> None:
    sim.migrate(TARGET, strategy=paced("60 s"))
    sim.feed([])
    before = moved(sim)
    sim.executors = {"0": "here"}
    sim.feed([])
    assert moved(sim) == before
    sim.feed([])
    assert sim.driver.routing("counts") == TARGET


def test_a_deadline_ends_the_wait(sim: OperatorSimulation) -> None:
    sim.migrate(TARGET, strategy=paced("0 ms"), deadline=0.0)
    sim.feed([])
    assert sim.driver.routing("counts") == TARGET


def test_a_rollback_is_paced_too(sim: OperatorSimulation) -> None:
    origin = sim.driver.routing("counts")
    id = sim.migrate(TARGET, strategy=paced("0 ms"))
    for _ in range(4):
        sim.feed([])
    assert 32 < moved(sim) < 64
    sim.abort(id, rollback=True)
    for _ in range(4):
        sim.feed(words("word 1"))
    assert sim.driver.routing("counts") == origin
    assert sim.driver.requests.outcome(id) == "rolled back"
    assert counts(sim) == {**dict.fromkeys(KEYS, 1), "word 1": 5}


def test_records_at_the_wrong_worker_fail_the_epoch(sim: OperatorSimulation) -> None:
    intent = begin(sim.driver, 1)
    work = replace(sim.driver.work(intent, "counts"), routing=intent.routings["counts"])
    (batch,) = pa.Table.from_pylist(words(*KEYS)).to_batches()
    with pytest.raises(GodwitError, match="worker 1 of operator 'counts' got records of another"):
        sim.driver.commit(
            intent, {"counts": [work.run(WorkerId(0), []), work.run(WorkerId(1), [batch])]}
        )
    assert sim.driver.published.epoch == 0


def test_a_destination_that_cannot_keep_files_gets_its_bins_all_the_same(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile() as file:  # in place of the directory of the cache
        sim = simulate(tmp_path, bins=64)
        (tmp_path / "cache-2").symlink_to(file.name)
        (tmp_path / "cache-3").symlink_to(file.name)
        sim.feed(words(*KEYS))
        sim.migrate(TARGET)
        for _ in range(3):
            sim.feed(words(*KEYS))
        assert sim.driver.routing("counts") == TARGET
        assert counts(sim) == dict.fromkeys(KEYS, 4)
