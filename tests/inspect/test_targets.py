"""Targets come from what was measured: the records of the last epochs, and the state of bins."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError, InfeasibleError
from godwit.inspect.overview import Overview
from godwit.inspect.sizes import lacking, work_seconds
from godwit.inspect.targets import PLANNERS, Measured, Planner, target, targets
from godwit.log.history import History
from godwit.migration.strategies import Fetching, Known, paced
from godwit.model import tree as trees
from godwit.model.loads import Loads
from godwit.model.routing import SEGMENTS, Routing
from godwit.operators import Operator
from godwit.planner import intervals_of
from godwit.planner.chain import Chain
from godwit.planner.iteration import project
from godwit.planner.markov import markov_step
from godwit.planner.projected import Problem, Projected
from godwit.state import file as state_file
from godwit.state.file import read
from godwit.state.timed import key_hashes
from tests.support.simulated import COUNTS, simulate, words
from tests.support.timed_workloads import at
from tests.support.window_workloads import WINDOWS

BINS = 64


_told = Loads.to_text


def measured(records: list[float] | None = None, bytes: float = 1.0) -> Measured:
    got = np.array(records or [1.0] * BINS)
    return Measured(got, got / 1000, np.ones(BINS), np.full(BINS, bytes))


def loads(routing: Routing, what: Measured) -> list[float]:
    found: list[float] = np.bincount(routing.owners, what.load, routing.workers).tolist()
    return found


def test_records_are_counted_by_bin_and_newer_ones_count_for_more(tmp_path: Path) -> None:
    sim = simulate(tmp_path, workers=2, bins=16)
    sim.feed(words("a", "a", "a", "a"))
    sim.feed(words("b", "b", "b", "b"))
    found = Measured.of(History(tmp_path), "counts", 16)
    first, second = sorted(found.records[found.records > 0].tolist())
    assert found.records.sum() == pytest.approx(4.0)
    assert first / second == pytest.approx(0.8)
    assert found.bytes.sum() > 0


def test_records_that_were_counted_in_other_bins_count_in_those_of_now(tmp_path: Path) -> None:
    sim = simulate(tmp_path, bins=16)
    sim.feed(words(*map(str, range(50))))
    sim.split(64)
    sim.feed(words(*map(str, range(50))))
    sim.split(4)
    sim.feed(words(*map(str, range(50))))
    for bins in (4, 16, 64):
        routing = Routing.even(bins, 4)
        records = Measured.of(History(tmp_path), "counts", bins).records
        found = np.bincount(routing.owners, records)
        assert found.sum() == pytest.approx(50)
        exact = Measured.of(History(tmp_path), "counts", 4).records
        assert found == pytest.approx(exact)


def test_loads_that_do_not_tell_their_bins_are_left_out(tmp_path: Path) -> None:
    """Earlier versions wrote them so: after a split they would count in other bins."""
    sim = simulate(tmp_path, bins=16)
    with patch.object(Loads, "to_text", lambda self: _told(self).rpartition(":")[2]):
        sim.feed(words(*map(str, range(100))))
    assert not Measured.of(History(tmp_path), "counts", 32).records.any()
    sim.feed(words("a"))
    assert Measured.of(History(tmp_path), "counts", 32).records.sum() == pytest.approx(1)


def test_operators_that_move_together_are_planned_by_their_load_together() -> None:
    """Each alone would send its own heavy bin away; together these balance each other."""
    origin = Routing.even(4, 2)
    zero = np.zeros(4)
    one = Measured(np.array([5.0, 1.0, 1.0, 1.0]), zero, zero, zero)
    other = Measured(np.array([1.0, 1.0, 1.0, 5.0]), zero, zero, zero)

    def balanced(routing: Routing, measured: Measured) -> Routing:
        return target("scattered", routing, measured, tau=0.0)

    routings = {"one": origin, "other": origin, "elsewhere": Routing.even(4, 1)}
    measured = {"one": one, "other": other, "elsewhere": one}
    found = targets(balanced, routings, measured)
    assert found == {"one": origin, "other": origin, "elsewhere": Routing.even(4, 1)}
    assert targets(partial(target, "scattered", tau=0.3), {"one": origin}, {"one": one}) != {
        "one": origin
    }


def test_plan_and_status_tell_the_same_bytes_of_a_worker(tmp_path: Path) -> None:
    """Files differ in how many bytes a row has: a few rows take about as much as one."""
    sim = simulate(tmp_path, workers=4, bins=256)
    sim.feed(words("a"))
    sim.feed(words(*map(str, range(40))))
    told = Overview.of(tmp_path).operators["counts"]
    found = Measured.of(History(tmp_path), "counts", 256)
    expected = np.bincount(told.routing.owners, found.bytes, 4)
    assert [worker.bytes for worker in told.workers] == expected.round().tolist()


@pytest.mark.parametrize("bins", [16, 64, 256, 1024])
@pytest.mark.parametrize("operator", [COUNTS, WINDOWS.operator], ids=["by hash", "by time"])
def test_rows_and_bytes_are_those_of_every_bin(
    tmp_path: Path, bins: int, operator: Operator
) -> None:
    """As counted row by row, in files of which merges have replaced parts."""
    sim = simulate(tmp_path, operator, schema=operator.input, workers=3, bins=bins, retention=100)
    rng = np.random.default_rng(bins)
    for epoch in range(10):
        starts = epoch + rng.integers(0, 300, 40)
        rows = [
            {"word": f"w{n}", "name": f"w{n}", "part": 1, "n": 1}
            | {"at": at(n), "window_start": at(n), "window_end": at(n + 1000)}
            for n in starts.tolist()
        ]
        with patch.object(trees, "MAX_LAYERS", 2):
            sim.feed([{name: row[name] for name in operator.input.names} for row in rows])
    found = Measured.of(History(tmp_path), operator.name, bins)
    rows_there, bytes_there = np.zeros(bins), np.zeros(bins)
    manifest = History(tmp_path).last()
    assert manifest is not None
    merged, replaced = 0, 0
    for spec in operator.tables:
        tree = manifest.trees[operator.name][spec.name].unpack()
        for segment in range(SEGMENTS):
            for run in tree.runs(segment):
                file = read(sim.driver.files, run.file, spec, tree.files[run.file])
                hashes = key_hashes(spec, file.segment(segment))
                counts = np.bincount(Routing.even(bins, 1).bins_at(hashes), minlength=bins)
                ref = tree.files[run.file]
                merged += "-merge-" in run.file
                rows_there += counts
                bytes_there += counts * ref.bytes / ref.rows
        replaced += rows_there.sum() < sum(ref.rows for ref in tree.files.values())
    assert merged
    assert replaced
    assert found.rows.tolist() == rows_there.tolist()
    if bins > 64:
        assert found.bytes == pytest.approx(bytes_there)
    assert found.rows.any()


def test_a_file_that_is_gone_meanwhile_is_no_obstacle(tmp_path: Path) -> None:
    sim = simulate(tmp_path, bins=256)
    sim.feed(words("a", "b", "c"))
    before = Measured.of(History(tmp_path), "counts", 256)
    next((tmp_path / "godwit" / "state").rglob("*.arrow")).unlink()
    after = Measured.of(History(tmp_path), "counts", 256)
    assert np.count_nonzero(before.rows) == 3
    assert np.count_nonzero(after.rows) == 3 * 256 / 64
    assert after.rows.sum() == 3


def test_seconds_are_shared_out_by_records(tmp_path: Path) -> None:
    sim = simulate(tmp_path, workers=2, bins=16)
    sim.feed(words("a", "a", "a", "b"))
    found = Measured.of(History(tmp_path), "counts", 16)
    manifest = History(tmp_path).last()
    assert manifest is not None
    taken = [r.process_seconds for r in manifest.receipts["counts"]]
    owners = sim.driver.routing("counts").owners
    assert np.bincount(owners, found.seconds, 2).tolist() == pytest.approx(taken)
    for worker in range(2):
        mine = owners == worker
        assert found.seconds[mine] * found.records[mine].sum() == pytest.approx(
            found.records[mine] * taken[worker]
        )


def test_a_query_without_records_is_balanced_by_state_or_bins() -> None:
    none = np.zeros(BINS)
    idle = Measured(none, none, none, np.arange(BINS, dtype=float))
    assert idle.load is idle.bytes
    assert Measured(none, none, none, none).load.tolist() == [1.0] * BINS


@pytest.fixture(scope="module")
def projected() -> Projected:
    """Of 64 equal bins, with 1, 2, 3, 4 or 7 workers."""
    ones = np.ones(BINS)
    return project(Problem.of(Chain.learn([1, 2, 3, 4, 7, 1]), ones, ones, tau=0.1, gamma=0.8))


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_as_many_workers_as_wanted(planner: Planner, workers: int, projected: Projected) -> None:
    costs = projected if planner == "markov" else None
    even = Routing.even(BINS, 4)
    after = target(planner, even, measured(), workers=workers, projected=costs)
    if planner not in ("single-step", "markov"):  # which may empty any of them
        assert after.workers == workers
    used = np.bincount(after.owners)
    assert np.count_nonzero(used) == workers
    assert used.max() <= 1.1 * BINS / workers + 1


@given(
    before=st.permutations(range(5)),
    workers=st.integers(1, 4),
    size=st.lists(st.integers(0, 3), min_size=BINS, max_size=BINS),
)
def test_a_worker_that_stays_above_the_number_keeps_bins_that_another_number_would_move(
    before: list[int], workers: int, size: list[int]
) -> None:
    """So workers are not numbered anew: there is none for whom that would be free."""
    routing = Routing(np.array(before)[Routing.even(BINS, 5).owners], 5)
    what = replace(measured(), bytes=np.array(size, float))
    after = target("single-step", routing, what, workers=workers, tau=0.3)
    used = np.unique(after.owners)
    assert len(used) == workers
    for worker in used[used >= workers]:
        assert ((routing.owners == worker) & (after.owners == worker)).any()


def test_a_hot_bin_is_left_alone_with_its_worker() -> None:
    hot = measured([100.0] + [1.0] * (BINS - 1))
    after = target("scattered", Routing.even(BINS, 2), hot)
    assert loads(after, hot) == [100.0, 63.0]
    with pytest.raises(InfeasibleError, match="heaviest bin, 0,"):
        target("scattered", Routing.even(BINS, 2), hot, tau=0.1)


def test_a_drained_worker_ends_without_bins() -> None:
    after = target("scattered", Routing.even(BINS, 4), measured(), drained=[1])
    assert after.workers == 4
    assert len(after.bins_of(1)) == 0
    assert max(loads(after, measured())) <= 1.1 * BINS / 3


def test_projected_costs_decide_between_equals(projected: Projected) -> None:
    """What a migration moves now and what those after it will move, together, are least."""
    even, what = Routing.even(BINS, 3), measured()
    after = target("markov", even, what, workers=4, projected=projected)
    step = markov_step(intervals_of(even), 4, what.load, what.bytes, 0.1, projected)
    assert after.owners.tolist() == step.owners.tolist()
    assert after.owners.tolist() != even.spread(4).owners.tolist()


def test_without_a_tau_projected_costs_bring_theirs_or_the_least(projected: Projected) -> None:
    hot = measured([40.0] + [1.0] * (BINS - 1))
    after = target("markov", Routing.even(BINS, 4), hot, projected=projected)
    assert max(loads(after, hot)) > 1.1 * 103 / 4
    with pytest.raises(InfeasibleError, match="use a tau of at least"):
        target("markov", Routing.even(BINS, 4), hot, tau=0.1, projected=projected)


def test_what_projected_costs_do_not_know_is_refused(projected: Projected) -> None:
    even = Routing.even(BINS, 2)
    with pytest.raises(ConfigError, match="godwit project"):
        target("markov", even, measured())
    with pytest.raises(ConfigError, match=r"are no interval.*plan with `scattered`"):
        target("markov", even.assign({0: 1, 63: 0}), measured(), projected=projected)
    with pytest.raises(ConfigError, match="for 1, 2, 3, 4, 7 nodes, not for 5"):
        target("markov", even, measured(), workers=5, projected=projected)
    few = Measured(*[np.ones(16)] * 4)
    with pytest.raises(ConfigError, match="projected for 64 tasks, not for 16"):
        target("markov", Routing.even(16, 2), few, projected=projected)


def test_workers_are_drained_one_after_the_other() -> None:
    after = Routing.even(BINS, 4)
    for worker in (3, 1):
        after = target("scattered", after, measured(), drained=[worker])
    assert np.bincount(after.owners, minlength=4).tolist() == [BINS / 2, 0, BINS / 2, 0]
    assert target("scattered", after, measured(), tau=0.2).owners.tolist() == after.owners.tolist()
    again = target("scattered", after, measured(), workers=4)
    assert np.bincount(again.owners).min() > 0


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("idle", [1, 3])
def test_a_worker_without_bins_gets_some_only_if_a_number_of_workers_is_named(
    planner: Planner, idle: int, projected: Projected
) -> None:
    """The others have 24, 24 and 16 bins."""
    parts = [worker for worker in range(4) if worker != idle]
    drained = Routing(np.repeat(parts, [24, 24, 16]).astype(np.int32), 4)
    costs = projected if planner == "markov" else None
    after = target(planner, drained, measured(), projected=costs)
    assert after.workers == 4
    assert np.unique(after.owners).tolist() == parts
    assert np.bincount(after.owners).max() <= 1.1 * BINS / 3
    again = target(planner, drained, measured(), workers=4, projected=costs)
    assert np.bincount(again.owners, minlength=4).min() > 0


def test_what_cannot_be_is_refused() -> None:
    even = Routing.even(BINS, 2)
    with pytest.raises(ConfigError, match="there is no worker 2"):
        target("scattered", even, measured(), drained=[2])
    with pytest.raises(ConfigError, match="no worker would be left"):
        target("scattered", even, measured(), drained=[0, 1])
    with pytest.raises(ConfigError, match="plan with 'scattered'"):
        target("even", even, measured(), drained=[0])
    with pytest.raises(ConfigError, match="are no interval"):
        target("single-step", even.assign({0: 1, 63: 0}), measured())
    gap = Routing.even(BINS, 4).assign(dict.fromkeys(range(16, 32), 2))
    with pytest.raises(ConfigError, match="the bins of worker 2 are no interval"):
        target("single-step", gap.assign({63: 2}), measured())
    with pytest.raises(ConfigError, match="leave tau out"):
        target("even", even, measured(), tau=0.1)
    with pytest.raises(ConfigError, match="workers must be"):
        target("even", even, measured(), workers=0)


@pytest.mark.parametrize("bins", [16, 64, 256])
def test_epochs_of_fetching_ahead_are_predicted(tmp_path: Path, bins: int) -> None:
    """One file an epoch, as a budget of no time has it, and then all of them in one."""
    with patch.object(state_file, "PART_BYTES", 10_000):
        sim = simulate(tmp_path, bins=bins)
        sim.feed(words(*[f"word {i}" for i in range(3000)]))
    history, goal = History(tmp_path), Routing.even(bins, 4)
    manifest = history.last()
    assert manifest is not None
    trees = [tree.unpack() for tree in manifest.trees["counts"].values()]
    origin = sim.driver.routing("counts")
    work = work_seconds(
        history, "counts"
    )  # now: epochs without records may take no time to speak of

    def predicted(budget: str, rate: float, target: Routing = goal) -> int | None:
        fetching = Fetching(lacking(trees, origin, target), rate, work=1.0)
        return paced(budget).estimate(Known(origin, target, fetching=fetching)).epochs

    sim.migrate(goal, strategy=paced("0 ms"))
    epochs = 0
    while sim.driver.routing("counts") != goal:
        sim.feed([])
        epochs += 1
    assert epochs == predicted("0 ms", rate=1.0)
    assert epochs > 3
    everything = sum(ref.bytes for tree in trees for ref in tree.files.values())
    assert predicted("100 %", rate=everything) == 2
    assert predicted("100 %", rate=everything, target=origin) == 0
    assert paced("50 ms").fetch_seconds(work) == 0.05
    whole, half = paced("100 %").fetch_seconds(work), paced("50 %").fetch_seconds(work)
    assert whole is not None
    assert half is not None
    assert whole == 2 * half > 0
