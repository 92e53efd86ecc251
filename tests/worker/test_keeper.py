"""The keeper, look by look: what it fetches, and that what it says is true."""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.errors import DamagedFileError
from godwit.log.history import History
from godwit.log.layout import manifest_name
from godwit.migration.strategies import all_at_once
from godwit.model.files import FileRef
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.model.routing import Routing
from godwit.placement.slots import Held
from godwit.state.cache import TOUCH_SECONDS
from godwit.storage.local import LocalStore
from godwit.worker import keeper as module
from godwit.worker.keeper import AGAIN, LOCK, TELL, Keeper, KeeperSpec
from godwit.worker.neighbours import News
from godwit.worker.replicas import (
    KeeperProgress,
    Share,
    read_progress,
    read_reports,
    write_progress,
)
from tests.support.damage import flip
from tests.support.placed import Placed, cached, copies, held
from tests.support.simulated import words

KEYS = [f"word {i}" for i in range(100)]


@pytest.fixture
def sim(tmp_path: Path) -> Placed:
    """Worker 0 is on executor 0, workers 1 and 2 on executor 1; each has a replica on the other."""
    sim = Placed(tmp_path, ["0", "1", "1"], [["1"], ["0"], ["0"]])
    sim.feed(words(*KEYS))
    return sim


def start(spec: KeeperSpec, clock: Callable[[], float] = time.monotonic) -> Keeper:
    spec.cache.path.mkdir(exist_ok=True)
    return Keeper(spec, os.open(spec.cache.path / LOCK, os.O_RDWR | os.O_CREAT), clock)


def follow(keeper: Keeper, sim: Placed) -> bool:
    """Let the keeper hear of the newest epoch, and look."""
    keeper.hear(News(sim.begun))
    return keeper.keep()


class Clock:
    """Between any two looks at it `step` seconds pass, and more if a test says so."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 1000.0
        self._step = step

    def monotonic(self) -> float:
        self.now += self._step
        return self.now


def reported(sim: Placed, executor: str) -> KeeperProgress:
    return read_reports(sim.driver.files, sim.generation)[ExecutorId(executor)]


def said(sim: Placed, executor: str) -> dict[WorkerId, Held]:
    return dict(read_progress(sim.driver.files, sim.generation)[ExecutorId(executor)])


@contextmanager
def fetching(keeper: Keeper, instead: Callable[[FileRef], None]) -> Iterator[None]:
    """Let the keeper, and nobody else, fetch in another way."""
    with patch.object(keeper._files, "fetch", instead):
        yield


def test_it_holds_exactly_the_files_of_its_replicas(sim: Placed) -> None:
    zero, one = sim.spec("0"), sim.spec("1")
    assert start(zero).keep()
    assert start(one).keep()
    assert cached(zero) == copies(zero, sim.files(1), sim.files(2))
    assert cached(one) == copies(one, sim.files(0))
    assert said(sim, "0") == {1: held(0, 0), 2: held(0, 0)}
    assert said(sim, "1") == {0: held(0, 0)}
    report = reported(sim, "1")
    assert report.bytes == sum(ref.bytes for ref in sim.files(0).values())
    assert (report.pid, report.epoch, report.failed) == (os.getpid(), 0, ())


def test_it_fetches_each_file_once_epoch_by_epoch(sim: Placed) -> None:
    keeper = start(sim.spec("1"))
    keeper.keep()
    for epoch in range(1, 12):
        sim.feed(words(*KEYS[epoch::7]))
        assert not keeper.has_news
        keeper.hear(News(Epoch(epoch)))
        assert keeper.has_news
        assert keeper.keep()
        assert not keeper.has_news
        assert said(sim, "1") == {0: held(epoch, 0)}
    fetched = len(cached(sim.spec("1")))  # nothing was evicted
    total = sum(path.stat().st_size for path in sim.spec("1").cache.path.glob("*.godwit"))
    assert fetched >= len(sim.files(0))
    assert reported(sim, "1").bytes == total


def test_behind_by_many_epochs_it_skips_to_the_newest(sim: Placed) -> None:
    keeper, spec = start(sim.spec("1")), sim.spec("1")
    for _ in range(8):
        sim.feed(words(*KEYS))
    assert follow(keeper, sim)
    assert cached(spec) == copies(spec, sim.files(0))
    assert said(sim, "1") == {0: held(8, 0)}


def test_files_that_retention_deleted_meanwhile_are_passed_over(tmp_path: Path) -> None:
    sim = Placed(tmp_path, ["0", "1"], [["1"], ["0"]], retention=2)
    sim.feed(words(*KEYS))
    keeper = start(sim.spec("1"))
    fetch, late = keeper._files.fetch, list[FileRef]()

    def fetch_late(ref: FileRef) -> None:
        if not late:
            late.append(ref)
            while (sim.home / ref.name).exists():
                sim.feed(words(*KEYS))
        fetch(ref)

    with fetching(keeper, fetch_late):
        assert not keeper.keep()
        assert keeper.keep()
    assert said(sim, "1") == {0: held(sim.committed, 0)}
    assert reported(sim, "1").failed == ()
    assert cached(sim.spec("1")) >= copies(sim.spec("1"), sim.files(0))


def test_on_the_way_it_says_what_it_lacks(sim: Placed) -> None:
    keeper = start(sim.spec("0"), Clock(step=2 * TELL).monotonic)
    fetch, seen = keeper._files.fetch, []

    def fetch_watched(ref: FileRef) -> None:
        seen.append((ref, said(sim, "0")))
        fetch(ref)

    with fetching(keeper, fetch_watched):
        keeper.keep()
        before = {worker: sum(r.bytes for r in sim.files(worker).values()) for worker in (1, 2)}
        assert seen[0][1] == {worker: held(None, size) for worker, size in before.items()}
        assert seen[-1][1] == {1: held(0, 0), 2: held(None, seen[-1][0].bytes)}
        seen.clear()
        sim.feed(words(*KEYS))
        follow(keeper, sim)
        new = [ref for ref in sim.files(1).values() if ref.name.partition("/e1-")[1]]
        assert seen[0][1][WorkerId(1)] == held(0, sum(ref.bytes for ref in new))


def test_a_damaged_original_is_told_and_the_others_are_fetched(sim: Placed) -> None:
    clock = Clock()
    (broken,) = sim.files(1).values()
    path = sim.home / broken.name
    sound = path.read_bytes()
    flip(path)
    keeper = start(sim.spec("0"), clock.monotonic)
    assert not keeper.keep()
    assert said(sim, "0") == {1: held(None, broken.bytes), 2: held(0, 0)}
    assert reported(sim, "0").failed == (broken.name,)
    path.write_bytes(sound)
    assert not keeper.keep()  # it is too soon to try again
    clock.now += AGAIN
    assert keeper.keep()
    assert said(sim, "0") == {1: held(0, 0), 2: held(0, 0)}
    assert reported(sim, "0").failed == ()


def test_a_log_that_cannot_be_read_is_read_later(sim: Placed) -> None:
    keeper = start(sim.spec("1"))
    keeper.keep()
    sim.feed(words(*KEYS))
    path = sim.home / manifest_name(1)
    sound = path.read_bytes()
    flip(path)
    with pytest.raises(DamagedFileError, match=r"manifests/1\.json"):
        follow(keeper, sim)
    assert said(sim, "1") == {0: held(0, 0)}
    path.write_bytes(sound)
    assert keeper.keep()
    assert said(sim, "1") == {0: held(1, 0)}


def test_a_new_placement_counts_from_its_intent_on(sim: Placed) -> None:
    keeper = start(sim.spec("1"))
    keeper.keep()
    sim.place(["0", "1", "1"], [[], ["0"], ["0"]])
    sim.driver.begin(Epoch(1), "simulation", "1")  # an epoch that is not published yet
    assert follow(keeper, sim)
    assert said(sim, "1") == {}


def test_bins_that_move_to_a_worker_are_fetched_before_it_counts(sim: Placed) -> None:
    keeper = start(sim.spec("1"))
    keeper.keep()
    sim.migrate(Routing.even(16, 3).assign(dict.fromkeys(range(16), 0)), strategy=all_at_once())
    sim.driver.begin(Epoch(1), "simulation", "1")
    sight: list[KeeperProgress] = []

    def refuse(ref: FileRef) -> None:
        sight.append(reported(sim, "1"))

    with fetching(keeper, refuse):
        assert not follow(keeper, sim)
    lacking = sum(ref.bytes for ref in sim.files(0, 0).values()) - sight[0].bytes
    assert sight[0].workers == {0: held(None, lacking)}


# -- the cache's limit


def test_own_workers_come_first(sim: Placed) -> None:
    """There is room for what executor 1's own workers need and for a part of the replica only."""
    own = sum(ref.bytes for worker in (1, 2) for ref in sim.files(worker).values())
    replica = sum(ref.bytes for ref in sim.files(0).values())
    spec = sim.spec("1", limit=(own + replica - 1) * 8 // 7)
    files = spec.cache.open(sim.driver.files)
    for worker in (1, 2):
        for ref in sim.files(worker).values():
            files.fetch(ref)
    start(spec).keep()
    assert cached(spec) == copies(spec, sim.files(1), sim.files(2))
    assert said(sim, "1") == {0: held(None, replica)}


def test_what_is_needed_is_evicted_last_and_replicas_before_own_files(sim: Placed) -> None:
    clock = Clock()
    spec = sim.spec("1")
    files = spec.cache.open(sim.driver.files)
    own = [ref for worker in (1, 2) for ref in sim.files(worker).values()]
    for ref in own:
        files.fetch(ref)
    stale = spec.cache.path / "stale.godwit"
    keeper = start(spec, clock.monotonic)
    keeper.keep()
    clock.now += 2 * TOUCH_SECONDS
    stale.write_bytes(b"")  # newer than what was fetched, but not used again
    sim.feed([])
    follow(keeper, sim)
    used = [stale, *(Path(files._local(r)) for r in (*sim.files(0).values(), *own))]
    times = [path.stat().st_mtime_ns for path in used]
    assert times == sorted(times)


# -- the truth


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 32))
def test_an_epoch_is_reported_only_if_all_its_files_are_there(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Through epochs, moves, new placements, evictions, failing fetches and newer epochs."""
    choose = random.Random(seed)
    path = tmp_path_factory.mktemp("query")
    sim = Placed(path, ["0", "1", "1"], [["1"], ["0"], ["0"]], retention=2)
    spec = sim.spec("0", limit=choose.choice([20_000, 1 << 30]))
    keeper = start(spec, Clock(step=2 * AGAIN).monotonic)
    fetch = keeper._files.fetch

    def epoch() -> None:
        with suppress(Exception):  # a migration may be open
            if choose.random() < 0.3:
                owners = dict(enumerate(choose.choices(range(3), k=16)))
                target = Routing.even(16, 3).assign(owners)
                sim.migrate(target, strategy=all_at_once())
        if choose.random() < 0.2:
            sim.place(["0", "1", "1"], [["1"], choose.choice([[], ["0"]]), ["0"]])
        sim.feed(words(*choose.sample(KEYS, 20)))

    def evict() -> None:
        for copy in list(spec.cache.path.glob("*.godwit")):
            if choose.random() < 0.3:
                copy.unlink()

    def fetch_or_not(ref: FileRef) -> None:
        if choose.random() < 0.1:
            epoch()
        if choose.random() < 0.2:
            evict()
        if choose.random() < 0.8:
            fetch(ref)

    def write_checked(files: LocalStore, generation: int, progress: KeeperProgress) -> None:
        here, history = cached(spec), History(path)
        for worker, has in progress.workers.items():
            intent, manifest = keeper._log.intent, history.manifest(progress.epoch)
            assert intent is not None
            if manifest is not None:
                share = Share.of(worker, intent, manifest)
                missing = [r for n, r in share.files.items() if not copies(spec, {n: r}) <= here]
                assert has.lacking >= sum(ref.bytes for ref in missing)
                assert (has.epoch == progress.epoch) == (not has.lacking)
            if has.epoch is not None and (whole := history.manifest(has.epoch)):
                assert copies(spec, dict(Share.of(worker, intent, whole).files)) <= here
        write_progress(files, generation, progress)

    with patch.object(module, "write_progress", write_checked):
        with fetching(keeper, fetch_or_not):
            for _ in range(6):
                epoch()
                if choose.random() < 0.5:
                    evict()
                follow(keeper, sim)
        if spec.cache.limit > 20_000:  # in the end it catches up
            while not follow(keeper, sim):
                pass
            assert {held.epoch for held in said(sim, "0").values()} <= {sim.committed}
