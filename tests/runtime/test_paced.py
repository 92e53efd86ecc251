"""Paced migrations: destinations fetch ahead of need, and what they have changes its worker."""

import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from godwit.log import History
from godwit.model.routing import Routing
from godwit.state import file as state_file
from godwit.strategies import all_at_once, paced
from godwit.testing import Simulation
from tests.runtime.samples import counts, simulate, words

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


def test_a_restart_goes_on_with_what_is_fetched(sim: Simulation) -> None:
    sim.migrate(TARGET, strategy=paced("60 s"))
    sim.feed([])
    sim.restart()
    before = moved(sim)
    sim.feed([])  # what destinations have is asked anew
    assert moved(sim) == before
    sim.feed([])
    assert sim.driver.routing("counts") == TARGET


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
