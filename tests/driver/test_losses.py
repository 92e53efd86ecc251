"""Files that are damaged or lost in the middle of a run."""

import os
import re
import shutil
from pathlib import Path

import pytest

from godwit.errors import DamagedFileError
from godwit.migration.strategies import all_at_once
from godwit.model.routing import Routing
from godwit.state import cache
from tests.support.damage import flip, new_files
from tests.support.operator_simulation import OperatorSimulation
from tests.support.simulated import content, counts, simulate, words

KEYS = [f"word {i}" for i in range(100)]


@pytest.fixture
def sim(tmp_path: Path) -> OperatorSimulation:
    sim = simulate(tmp_path, workers=1, bins=16)
    sim.feed(words(*KEYS))
    return sim


def test_a_damaged_file_fails_the_epoch_that_reads_it_and_nothing_is_overwritten(
    sim: OperatorSimulation, tmp_path: Path
) -> None:
    """The file is another one now, so that the copy of the worker that wrote it is still sound; the
    other worker has to fetch it."""
    (delta,) = new_files(tmp_path, 0, "delta")
    file, sound = tmp_path / "godwit" / delta.name, tmp_path / "sound"
    os.rename(file, sound)
    shutil.copy(sound, file)
    flip(file)
    sim.feed(words("word 1"))
    sim.migrate(Routing.even(16, 2), strategy=all_at_once())
    before = content(tmp_path / "godwit")
    with pytest.raises(DamagedFileError, match=re.escape(str(file))):
        sim.feed(words(*KEYS))
    assert sim.committed == 1
    assert before.items() <= content(tmp_path / "godwit").items()
    os.replace(sound, file)
    sim.restart()
    sim.resume()
    assert counts(sim) == {**dict.fromkeys(KEYS, 2), "word 1": 3}


def test_a_lost_cache_costs_time_only(
    sim: OperatorSimulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(tmp_path / "cache-0")
    monkeypatch.setattr(cache, "_opened", cache._Opened())  # as in a process that has none open
    sim.feed(words(*KEYS))
    (delta,) = new_files(tmp_path, 0, "delta")
    manifest = sim.driver.published.manifest
    assert manifest is not None
    assert [receipt.fetched for receipt in manifest.receipts["counts"]] == [delta.bytes]
    assert counts(sim) == dict.fromkeys(KEYS, 2)
