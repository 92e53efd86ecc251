"""A state given at the start is an epoch like others: read, restored, audited and pruned."""

from pathlib import Path

import pyarrow as pa
import pytest

from godwit.driver.driver import Driver
from godwit.driver.published import INITIAL
from godwit.inspect.audit import verify
from godwit.log import History, Intent
from tests.support.damage import new_files, rewrite
from tests.support.death import death_at
from tests.support.simulated import COUNTS, counts, drive, loaded, simulate, words

GIVEN = pa.table({"word": ["a", "b", "z"], "rows": [10, 20, 1], "total": [5, 5, 5]})


def load(driver: Driver) -> None:
    intent = driver.begin(INITIAL, "", "")
    assert isinstance(intent, Intent)
    driver.commit(intent, {"counts": loaded(driver, intent, COUNTS, GIVEN)})


def test_the_first_epoch_goes_on_from_it(tmp_path: Path) -> None:
    load(drive(tmp_path, workers=3, bins=16))
    sim = simulate(tmp_path, workers=2)
    sim.feed(words("a", "c"))
    assert counts(sim) == {"a": 11, "b": 20, "c": 1, "z": 1}
    assert counts(sim, epoch=INITIAL) == {"a": 10, "b": 20, "z": 1}
    assert {row["word"]: row["total"] for row in sim.outputs()} == {"a": 6, "c": 1}
    assert verify(tmp_path).findings == []


def test_it_can_be_restored(tmp_path: Path) -> None:
    load(drive(tmp_path, workers=3, bins=16))
    sim = simulate(tmp_path, workers=2)
    sim.feed(words("a", "c"))
    sim.restore(INITIAL)
    sim.restart(workers=1)
    assert counts(sim) == {"a": 10, "b": 20, "z": 1}
    sim.feed(words("a"))
    assert counts(sim) == {"a": 12, "b": 20, "c": 1, "z": 1}
    assert verify(tmp_path).findings == []


def test_it_is_pruned_like_any_epoch(tmp_path: Path) -> None:
    load(drive(tmp_path, workers=3, bins=16))
    sim = simulate(tmp_path, workers=2, retention=1)
    sim.feed(words("a"))
    assert History(tmp_path).epochs() == [0]
    assert counts(sim) == {"a": 11, "b": 20, "z": 1}
    assert verify(tmp_path).findings == []


@pytest.mark.parametrize("point", ["intent", "delta", "manifest"])
def test_a_load_that_died_is_done_again(tmp_path: Path, point: str) -> None:
    with death_at(point, "before"):
        load(drive(tmp_path, workers=3, bins=16))
    load(drive(tmp_path, workers=3, bins=16))
    sim = simulate(tmp_path, workers=2)
    sim.feed(words("a"))
    assert counts(sim) == {"a": 11, "b": 20, "z": 1}


def test_the_audit_knows_who_loaded_what(tmp_path: Path) -> None:
    load(drive(tmp_path, workers=3, bins=16))
    loaded = new_files(tmp_path, INITIAL, "delta")[0].name
    rewrite(tmp_path, loaded, meta=lambda meta: meta.update(worker=meta["worker"] + 1))
    (finding,) = verify(tmp_path).findings
    assert "at epoch -1, which belonged to worker" in finding.problem
