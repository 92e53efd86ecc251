"""Looking at a checkpoint while its query runs, prunes and deletes.

An audit, or the opening of a snapshot, is interrupted before its k-th read from the filesystem, for
every k: the query then runs epochs, which deletes most of what was there, or it is rolled back.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from godwit.errors import ConfigError, DamagedFileError
from godwit.inspect.audit import verify
from godwit.inspect.snapshot import Snapshot
from godwit.log.history import History
from godwit.migration.strategies import all_at_once
from godwit.model import tree
from godwit.model.routing import Routing
from godwit.state import file as state_file
from godwit.storage.local import LocalStore
from tests.support.damage import flip, new_files
from tests.support.histories import scratch
from tests.support.operator_simulation import OperatorSimulation
from tests.support.simulated import simulate, words

READS: tuple[tuple[Any, str], ...] = (
    (LocalStore, "read"),
    (LocalStore, "names"),
    (LocalStore, "exists"),
    (state_file, "verify"),
    (state_file, "read"),
)


class Interruption:
    """Does something once, before the read numbered `at`."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self._left = at
        self._act = act

    @property
    def came(self) -> bool:
        return self._left < 0

    @contextmanager
    def expected(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name in READS:
                guarded = self._guarded(getattr(owner, name))
                stack.enter_context(patch.object(owner, name, guarded))
            yield

    def _guarded(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                self._act()
            return read(*args, **kwargs)

        return guarded


def running(checkpoint: Path, retention: int) -> OperatorSimulation:
    sim = simulate(checkpoint, retention=retention)
    run_epochs(sim)
    run_epochs(sim)
    return sim


def copied(sim: OperatorSimulation, checkpoint: Path) -> OperatorSimulation:
    """The same query on a copy of its checkpoint, for less than running its epochs again."""
    other = copy(sim)
    other._checkpoint = shutil.copytree(sim._checkpoint, checkpoint)
    other._batches, other._sinks = [*sim._batches], {0: dict(sim.sink)}
    other.restart()
    return other


def run_epochs(sim: OperatorSimulation) -> None:
    """Two epochs with another number of workers than before."""
    target = Routing.even(16, sim.driver.routing("counts").workers % 3 + 1)
    sim.migrate(target, strategy=all_at_once())
    for _ in range(2):
        sim.feed(words("a", "b", "c", f"{sim.committed}"))


def roll_back(sim: OperatorSimulation) -> None:
    """To the oldest epoch; what came after it is run again, by one worker."""
    sim.restore(History(sim.driver.checkpoint).epochs()[0])
    sim.restart(workers=1)
    sim.resume()


def move_on(sim: OperatorSimulation) -> None:
    """Roll back, and go on until nothing of the old epochs is left."""
    roll_back(sim)
    run_epochs(sim)


@pytest.fixture(autouse=True)
def _merge_early() -> Iterator[None]:
    with patch.object(tree, "MAX_LAYERS", 1):
        yield


@pytest.mark.parametrize("act", [run_epochs, roll_back, move_on])
@pytest.mark.parametrize("retention", [1, 2])
def test_the_audit_reports_no_damage_where_there_is_none(
    act: Callable[[OperatorSimulation], None], retention: int
) -> None:
    with scratch() as directory:
        origin = running(directory / "origin", retention)
        for at in range(1000):
            sim = copied(origin, directory / f"{at}")
            interruption = Interruption(at, partial(act, sim))
            with interruption.expected():
                assert verify(directory / f"{at}").findings == []
            if not interruption.came:
                break
    assert 10 * retention < at < 999


def test_an_epoch_that_a_listing_missed_is_not_missing(tmp_path: Path) -> None:
    """A directory that changes while it is listed may show later names without earlier ones."""
    running(tmp_path, retention=20)
    epochs = History(tmp_path).epochs()
    torn = [epoch for epoch in epochs if epoch != 1]
    with patch.object(History, "epochs", side_effect=chain([torn], repeat(epochs))):
        assert verify(tmp_path).findings == []


def test_damage_is_found_beside_a_running_query(tmp_path: Path) -> None:
    sim = running(tmp_path, retention=1000)
    damaged = new_files(tmp_path, 1, "output")[0].name
    flip(tmp_path / "godwit" / damaged)
    for at in range(0, 40, 5):
        interruption = Interruption(at, lambda: run_epochs(sim))
        with interruption.expected():
            assert [finding.place for finding in verify(tmp_path).findings] == [damaged]
        assert interruption.came


def test_the_newest_snapshot_can_be_opened_at_any_moment(tmp_path: Path) -> None:
    sim = running(tmp_path, retention=1)
    for at in range(1000):
        before = sim.committed
        interruption = Interruption(at, lambda: run_epochs(sim))
        with interruption.expected():
            assert before <= Snapshot.open(tmp_path, "counts").epoch <= sim.committed
        if not interruption.came:
            break
    assert 5 < at < 999


def test_a_snapshot_that_is_pruned_while_it_is_read_says_so(tmp_path: Path) -> None:
    sim = running(tmp_path, retention=1)
    opened = Snapshot.open(tmp_path, "counts")
    for _ in range(3):
        run_epochs(sim)
    with pytest.raises(ConfigError, match=f"epoch {opened.epoch} .* was pruned while it was read"):
        list(opened.read())


def test_a_damaged_snapshot_says_so(tmp_path: Path) -> None:
    running(tmp_path, retention=1)
    opened = Snapshot.open(tmp_path, "counts")
    (tmp_path / "godwit" / next(iter(opened.tree.files))).unlink()
    with pytest.raises(DamagedFileError, match="the file is missing"):
        list(opened.read())


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_an_epoch_that_is_pruned_while_its_snapshot_is_opened_is_not_retained(
    tmp_path: Path, at: int
) -> None:
    sim = running(tmp_path, retention=1)
    wanted = sim.committed
    message = f"epoch {wanted} of .* is not retained"
    with (
        Interruption(at, lambda: run_epochs(sim)).expected(),
        pytest.raises(ConfigError, match=message),
    ):
        Snapshot.open(tmp_path, "counts", epoch=wanted)
