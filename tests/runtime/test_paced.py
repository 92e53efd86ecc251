"""Paced migrations: destinations fetch ahead of need, and what they have changes its worker."""

import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from godwit.errors import GodwitError
from godwit.log import History
from godwit.model.routing import Routing
from godwit.state import file as state_file
from godwit.strategies import all_at_once, paced
from godwit.testing import Simulation
from tests.runtime.samples import begin, counts, simulate, words

KEYS = [f"word {i}" for i in range(3000)]
TARGET = Routing.even(64, 4)


@pytest.fixture
def sim(tmp_path: Path) -> Simulation:
    """Two workers with a state of many files, of which each has a few segments."""
    with patch.object(state_file, "PART_BYTES", 10_000):
        sim = simulate(tmp_path, bins=64)
        sim.feed(words(*KEYS))
    return sim


def fetched(checkpoint: Path, epoch: int) -> list[int]:
    manifest = History(checkpoint).manifest(epoch)
    assert manifest is not None
    return [receipt["fetched"] for receipt in manifest.receipts["counts"]]


def moved(sim: Simulation) -> int:
    return int(np.count_nonzero(sim.driver.routing("counts").owners == TARGET.owners))


def test_bins_move_as_soon_as_their_destination_has_them(sim: Simulation, tmp_path: Path) -> None:
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
    sim: Simulation, tmp_path: Path
) -> None:
    sim.migrate(TARGET, strategy=paced("60 s"))
    sim.feed([])
    assert moved(sim) < 64
    assert sum(fetched(tmp_path, 1)) > 0
    sim.feed(words(*KEYS))
    assert sim.driver.routing("counts") == TARGET
    assert fetched(tmp_path, 2) == [0, 0, 0, 0]
    assert counts(sim) == dict.fromkeys(KEYS, 2)


def test_without_pace_destinations_fetch_when_they_need_it(sim: Simulation, tmp_path: Path) -> None:
    sim.migrate(TARGET, strategy=all_at_once())
    sim.feed(words(*KEYS))
    assert sum(fetched(tmp_path, 1)) > 0
    assert counts(sim) == dict.fromkeys(KEYS, 2)


def test_after_a_restart_nobody_has_anything_and_all_bins_move(sim: Simulation) -> None:
    sim.migrate(TARGET, strategy=paced("0 ms"))
    sim.feed([])
    assert moved(sim) < 64
    sim.restart()
    sim.feed([])
    assert sim.driver.routing("counts") == TARGET


def test_workers_that_may_be_elsewhere_have_to_say_again_what_they_have(sim: Simulation) -> None:
    sim.migrate(TARGET, strategy=paced("60 s"))
    sim.feed([])
    before = moved(sim)
    sim.driver.forget_ready()
    sim.feed([])
    assert moved(sim) == before
    sim.feed([])
    assert sim.driver.routing("counts") == TARGET


def test_a_deadline_ends_the_wait(sim: Simulation) -> None:
    sim.migrate(TARGET, strategy=paced("0 ms"), deadline=0.0)
    sim.feed([])
    assert sim.driver.routing("counts") == TARGET


def test_a_rollback_is_paced_too(sim: Simulation) -> None:
    origin = sim.driver.routing("counts")
    id = sim.migrate(TARGET, strategy=paced("0 ms"))
    for _ in range(4):
        sim.feed([])
    assert 32 < moved(sim) < 64
    sim.abort(id, rollback=True)
    for _ in range(4):
        sim.feed(words("word 1"))
    assert sim.driver.routing("counts") == origin
    assert sim.driver.outcome(id) == "rolled back"
    assert counts(sim) == {**dict.fromkeys(KEYS, 1), "word 1": 5}


def test_records_at_the_wrong_worker_fail_the_epoch(sim: Simulation) -> None:
    intent = begin(sim.driver, 1)
    work = replace(sim.driver.work(intent, "counts"), routing=intent.routings["counts"])
    (batch,) = pa.Table.from_pylist(words(*KEYS)).to_batches()
    with pytest.raises(GodwitError, match="worker 1 of operator 'counts' got records of another"):
        sim.driver.commit(intent, {"counts": [work.run(0, []), work.run(1, [batch])]})
    assert sim.driver.committed == 0


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
