"""What is left of a migration, in bytes and seconds: estimates that can be told beforehand."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from godwit.api import handles
from godwit.api.handles import MigrationProgress
from godwit.inspect.overview import Overview
from godwit.inspect.sizes import fetch_rate, seconds_left
from godwit.log.history import History
from godwit.log.layout import manifest_name
from godwit.migration.migration import MigrationPhase, MigrationState
from godwit.migration.strategies import batched
from godwit.model.hashing import hash_rows
from godwit.model.ids import WorkerId
from godwit.model.manifest import Manifest, WorkerStatistics
from godwit.model.requests import MigrateRequest
from godwit.model.routing import Routing
from tests.support.operator_simulation import OperatorSimulation
from tests.support.simulated import simulate, words

KEYS = [f"word {i}" for i in range(500)]
ORIGIN, TARGET = Routing.even(16, 2), Routing.even(16, 4)  # the bins 4 to 15 move
PACE = 5.0  # seconds from one epoch to the next


def tell_time(sim: OperatorSimulation, checkpoint: Path) -> None:
    """Let the epochs have been published at their pace."""
    for epoch in range(sim.committed + 1):
        os.utime(checkpoint / "godwit" / manifest_name(epoch), (PACE * epoch, PACE * epoch))


def test_the_pace_is_that_of_most_epochs_whatever_time_the_query_was_down(tmp_path: Path) -> None:
    sim = simulate(tmp_path)
    for epoch, time in enumerate((0, 5, 1000, 1005)):
        sim.feed([])
        os.utime(tmp_path / "godwit" / manifest_name(epoch), (time, time))
    assert History(tmp_path).pace() == PACE


def test_bytes_and_seconds_are_those_of_the_bins_that_are_left(tmp_path: Path) -> None:
    sim = simulate(tmp_path, bins=16)
    sim.feed(words(*KEYS))
    keys = np.bincount(ORIGIN.bins_at(hash_rows(pa.table({"word": KEYS}))), minlength=16)
    manifest = History(tmp_path).last()
    assert manifest is not None
    files = {
        ref.rows: ref.bytes for tree in manifest.trees["counts"].values() for ref in tree.files
    }
    rows = np.bincount(ORIGIN.owners, keys).astype(int)  # of the two workers, a file each
    sizes = keys * np.array([files[count] / count for count in rows])[ORIGIN.owners]
    request = sim.driver.requests.migrate("counts", TARGET, strategy=batched(5))
    migration = handles.Migration(sim.driver, (request,))
    assert migration.progress.bins == 12
    for arrived, epochs in ((5, 2), (10, 1)):
        sim.feed([])
        tell_time(sim, tmp_path)
        rest = sim.driver.routing("counts").owners != TARGET.owners
        left = round(sizes[rest].sum())
        assert migration.progress == MigrationProgress(arrived, 12, "open", left, PACE * epochs)
        shown = Overview.of(tmp_path).operator("counts").migration
        assert shown is not None
        assert (shown.arrived, shown.bytes_left, shown.seconds_left) == (
            arrived,
            left,
            PACE * epochs,
        )
    sim.feed([])
    assert migration.progress == MigrationProgress(12, 12, "done")


def test_what_has_arrived_leaves_again_on_the_way_back(tmp_path: Path) -> None:
    sim = simulate(tmp_path, bins=16)
    sim.feed(words(*KEYS))
    request = sim.driver.requests.migrate("counts", TARGET, strategy=batched(5))
    migration, seen = handles.Migration(sim.driver, (request,)), []
    sim.feed([])
    sim.feed([])
    migration.abort(rollback=True)
    while migration.outcome == "open":
        shown = Overview.of(tmp_path).operator("counts").migration
        seen.append((migration.progress.arrived, shown and shown.arrived))
        sim.feed([])
    assert seen == [(10, 10), (5, 5)]
    assert migration.progress == MigrationProgress(0, 12, "rolled back")


@pytest.mark.parametrize(
    ("strategy", "arrived", "seconds"),
    [
        ("fluid", 3, 9 * PACE),
        ("all-at-once", 0, PACE),
        ("matched", 4, 8 * PACE),  # all of worker 1, which gives one bin at a time
        ("matched:2", 4, 24 * PACE),
        ("paced", 0, None),
        ("paced", 3, 90.0),  # three times as long as the quarter took
    ],
)
def test_the_seconds_of_each_strategy(strategy: str, arrived: int, seconds: float | None) -> None:
    migration = MigrationState.of(
        MigrateRequest(1, "counts", ORIGIN, TARGET, strategy, time=100.0), ORIGIN
    )
    routing = ORIGIN.toward(TARGET, np.arange(4, 4 + arrived))
    assert seconds_left(migration, routing, PACE, now=130.0) == seconds


def test_the_seconds_of_a_way_back_or_without_a_pace_may_be_unknown() -> None:
    fluid, paced = (
        MigrationState.of(MigrateRequest(1, "counts", ORIGIN, TARGET, strategy, time=100.0), ORIGIN)
        for strategy in ("fluid", "paced")
    )
    there = ORIGIN.toward(TARGET, np.arange(4, 7))
    assert seconds_left(fluid, there, None, now=130.0) is None
    back = replace(fluid, phase=MigrationPhase.RETURNING)
    assert seconds_left(back, there, PACE, now=130.0) == 3 * PACE
    assert (
        seconds_left(replace(paced, phase=MigrationPhase.RETURNING), there, PACE, now=130.0) is None
    )


class Told(History):
    """A checkpoint whose only manifest says what a worker fetched, and how long that took."""

    receipts: tuple[tuple[int, float], ...] = ()

    def manifest(self, epoch: int) -> Manifest | None:
        found = super().manifest(epoch)
        told = tuple(
            WorkerStatistics(WorkerId(0), fetched=b, fetch_seconds=s) for b, s in self.receipts
        )
        return found and replace(found, receipts={"counts": told})


def test_the_rate_of_fetching_is_that_of_epochs_that_fetched(tmp_path: Path) -> None:
    simulate(tmp_path).feed(words("a"))
    told = Told(tmp_path)
    assert fetch_rate(told, "counts") is None
    told.receipts = ((5000, 0.0), (0, 0.5))  # too short to tell, and nothing
    assert fetch_rate(told, "counts") is None
    told.receipts = ((5000, 0.0), (300, 0.5), (100, 1.5))
    assert fetch_rate(told, "counts") == 200.0
    assert fetch_rate(told, "sums") is None
