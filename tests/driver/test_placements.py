"""Where the driver places workers: by the intent that counts, and from what executors say."""

from dataclasses import replace
from pathlib import Path

from godwit.driver.driver import Driver
from godwit.driver.placements import new_workers_origins
from godwit.inspect.overview import Overview
from godwit.log import Intent
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.model.manifest import WorkerStatistics
from godwit.model.routing import Routing
from godwit.placement.slots import Held
from godwit.worker.replicas import KeeperProgress, write_progress
from tests.support.simulated import drive, idle, publish, simulate, words

EXECUTORS = {ExecutorId("0"): "here", ExecutorId("1"): "here", ExecutorId("2"): "there"}


def homes(driver: Driver) -> tuple[str, ...]:
    assert driver.placements.placement is not None
    return driver.placements.placement.homes


def begin(driver: Driver, epoch: int) -> Intent:
    intent = driver.begin(Epoch(epoch), "query", f"offsets {epoch}", executors=EXECUTORS)
    assert isinstance(intent, Intent)
    return intent


def test_a_replay_has_a_place_for_every_worker_of_its_intent(tmp_path: Path) -> None:
    publish(drive(tmp_path, workers=4, bins=16), 0)
    begin(drive(tmp_path), 1)
    driver = drive(tmp_path, workers=2)
    replayed = begin(driver, 1)
    assert len(homes(driver)) == replayed.routings["counts"].workers == 4
    driver.commit(replayed, idle(driver, replayed))
    begin(driver, 2)
    assert len(homes(driver)) == 2


def test_status_tells_how_far_replicas_are(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=16, replicas=1)
    driver.commit(intent := begin(driver, 0), idle(driver, intent))
    assert driver.placements.placement is not None
    ((copy,), _) = driver.placements.placement.replicas
    files, generation = driver.journal.files, driver.journal.generation
    held = {WorkerId(0): Held(Epoch(0))}
    write_progress(files, generation, KeeperProgress(copy, 1, Epoch(0), held, 0, 0.0))
    worker, other = Overview.of(tmp_path).operator(None).workers
    assert [(one.executor, one.epoch, one.lacking) for one in worker.replicas] == [(copy, 0, 0)]
    assert [one.epoch for one in other.replicas] == [None]


def test_a_handover_that_nobody_asked_for_wants_an_epoch_when_its_target_is_ready(
    tmp_path: Path,
) -> None:
    sim = simulate(tmp_path, workers=3)
    sim.executors = {"0": "here", "1": "here"}
    sim.feed(words("a", "b", "c"))
    sim.executors["2"] = "here"
    sim.feed([])
    (handover,) = sim.driver.placements.state.handovers
    assert (handover.target, handover.automatic) == ("2", True)
    assert not sim.driver.demand.can_settle
    files, generation = sim.driver.journal.files, sim.driver.journal.generation
    newest = Epoch(sim.committed)
    held = {handover.worker: Held(newest)}
    write_progress(files, generation, KeeperProgress(ExecutorId("2"), 1, newest, held, 0, 0.0))
    assert sim.driver.demand.can_settle
    assert not sim.driver.demand.wants_epoch
    sim.feed([])
    assert homes(sim.driver)[handover.worker] == "2"
    assert not sim.driver.demand.can_settle


def test_an_epoch_that_lost_an_executor_wants_another_that_says_so(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=16, replicas=1)
    intent = begin(driver, 0)
    assert not driver.demand.can_settle
    driver.place(intent, {one: host for one, host in EXECUTORS.items() if one != "0"})
    driver.commit(intent, idle(driver, intent))
    assert driver.demand.can_settle  # keepers and people read the intent, which names executor 0
    begin(driver, 1)
    assert not driver.demand.can_settle


def test_a_worker_that_ran_at_two_places_ran_at_none_of_them(tmp_path: Path) -> None:
    sim = simulate(tmp_path)
    sim.feed(words("a"))
    manifest = publish(sim.driver, 1)
    ran = ((0, "0"), (1, "1"), (1, "0"))
    one, two, other = (WorkerStatistics(WorkerId(w), executor=ExecutorId(p)) for w, p in ran)
    told = replace(manifest, receipts={"counts": (one, two), "more": (one, other)})
    assert told.executors == {0: "0"}


def test_new_workers_get_their_bins_from_those_that_had_them() -> None:
    before = {"a": Routing.even(8, 2), "b": Routing.even(8, 2)}
    goals = {"a": Routing.even(16, 4), "b": Routing.even(8, 2).assign({0: 1})}
    assert new_workers_origins(before, goals) == {2: {1: 4}, 3: {1: 4}}
