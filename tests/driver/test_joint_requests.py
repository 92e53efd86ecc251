"""Requests of several operators: all accept or none; who shares a routing moves together."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from godwit.api.handles import Migration
from godwit.driver.driver import Driver
from godwit.driver.requests import Requests
from godwit.errors import ConfigError, RefusedError
from godwit.inspect.audit import verify
from godwit.inspect.overview import Overview
from godwit.log import History
from godwit.migration.strategies import all_at_once, batched, fluid, paced
from godwit.model.ids import BinId, Epoch, WorkerId
from godwit.model.requests import (
    AbortRequest,
    JointRequest,
    MigrateRequest,
    OperatorRequest,
    SplitRequest,
    StreamedUpdates,
    jointly,
    parts_of,
    request_from_json,
)
from godwit.model.routing import Routing, Update
from godwit.operators import AggregateOperator, count
from tests.support.operator_simulation import OperatorSimulation
from tests.support.simulated import COUNTS, WORDS, begin, content, drive, idle, publish, words

OTHERS = AggregateOperator.of("others", "word", {"rows": count()}, WORDS)
SIZES = AggregateOperator.of("sizes", "rows", {"shops": count()}, COUNTS.output)
BOTH = ("counts", "others")
TWO, FOUR = Routing.even(8, 2), Routing.even(8, 4)


def start(checkpoint: Path, **options: int) -> Driver:
    return drive(checkpoint, COUNTS, OTHERS, **options)


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """Two operators of 8 bins each, after an epoch."""
    driver = start(tmp_path, workers=2, bins=8)
    publish(driver, 0)
    return driver


def owners(driver: Driver, operator: str) -> list[int]:
    found: list[int] = driver.routing(operator).owners.tolist()
    return found


# -- all or none -----------------------------------------------------------------------------------

ASK: dict[str, Callable[[Requests], object]] = {
    "migrate": lambda it: it.migrate_together(dict.fromkeys(BOTH, FOUR)),
    "schedule": lambda it: it.schedule(None, [Update(5, 0, 1)]),
    "merge": lambda it: it.split(None, 4),
}


@pytest.mark.parametrize("busy", BOTH)
@pytest.mark.parametrize("request_of", ASK)
def test_what_one_operator_refuses_changes_nothing_in_any(
    driver: Driver, tmp_path: Path, request_of: str, busy: str
) -> None:
    """One of them has a migration that mixes its bins, and the other is idle."""
    mixed = Routing(TWO.owners[[0, 4, 1, 5, 2, 6, 3, 7]], 2)
    driver.requests.migrate(busy, mixed, strategy=fluid())
    publish(driver, 1)
    before = content(tmp_path), [driver.timelines[name] for name in BOTH]
    with pytest.raises(
        RefusedError, match=f"operator '{busy}' refuses, so none of 2 operators changes: "
    ):
        ASK[request_of](driver.requests)
    assert (content(tmp_path), [driver.timelines[name] for name in BOTH]) == before


@pytest.mark.parametrize("busy", BOTH)
def test_another_process_gets_the_same_answer(driver: Driver, tmp_path: Path, busy: str) -> None:
    driver.requests.schedule(busy, [Update(9, 0, 1)])
    asked = jointly([MigrateRequest(0, name, TWO, FOUR, "fluid", 1.0) for name in BOTH])
    id = History.inspect(tmp_path).requests.add(asked).id
    publish(driver, 1)
    assert [driver.timelines[name].migration for name in BOTH] == [None, None]
    intent = History.inspect(tmp_path).intent(1)
    assert intent is not None
    assert f"operator '{busy}' refuses, so none of 2 operators changes" in intent.refused[id]
    (refused,) = Overview.of(tmp_path).refused
    assert (refused.kind, refused.operators) == ("migrate", BOTH)


def test_updates_as_data_are_accepted_by_all_or_none(driver: Driver, tmp_path: Path) -> None:
    def read(id: str, operator: str | None = None) -> None:
        update = (None, BinId(0), WorkerId(1))
        driver.requests.add_streamed(Epoch(0), [StreamedUpdates(id, operator, (update,))])

    migration = driver.requests.migrate("others", FOUR, strategy=fluid())
    read("one")
    publish(driver, 1)
    assert owners(driver, "counts") == TWO.owners.tolist()
    driver.requests.abort("others", migration.id)
    read("one")  # which has had its answer
    read("one", "counts")
    publish(driver, 2)
    assert owners(driver, "counts") == TWO.owners.tolist()
    driver.requests.add_streamed(
        Epoch(2), [StreamedUpdates("two", None, ((None, BinId(0), WorkerId(1)),))]
    )
    assert [len(driver.timelines[name].scheduled) for name in BOTH] == [1, 1]
    publish(driver, 3)
    assert [owners(driver, name)[0] for name in BOTH] == [1, 1]


def test_an_update_for_all_needs_equal_bins(driver: Driver) -> None:
    driver.requests.split("others", 16)
    with pytest.raises(RefusedError, match=r"'others' refuses.* has 8 bins, .*'others' has 16"):
        driver.requests.schedule(None, [Update(1, 0, 1)])
    driver.requests.split(None, 16)
    driver.requests.schedule(None, [Update(1, 0, 1)])


def test_a_split_for_all_is_one_request(driver: Driver, tmp_path: Path) -> None:
    driver.requests.split(None, 32)
    (request,) = History.inspect(tmp_path).requests.requests()
    assert [part.operator for part in parts_of(request)] == list(BOTH)
    driver = start(tmp_path)
    assert [driver.routing(name).bins for name in BOTH] == [32, 32]
    with pytest.raises(ConfigError, match="power of two"):
        driver.requests.split("counts", 48)


# -- moving together -------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [fluid(), batched(3), all_at_once(), paced()], ids=str)
def test_who_shares_a_routing_takes_the_same_steps(driver: Driver, strategy: object) -> None:
    migration = driver.requests.migrate_together(
        dict.fromkeys(BOTH, FOUR),
        strategy=strategy,  # type: ignore[arg-type]
    )[0]
    epoch = 0
    while driver.requests.outcome(migration.id) is None:
        publish(driver, epoch := epoch + 1)
        assert driver.routing("counts") == driver.routing("others")
        assert (driver.timelines["counts"].migration is None) == (
            driver.timelines["others"].migration is None
        )
    assert (owners(driver, "others"), driver.requests.outcome(migration.id)) == (
        FOUR.owners.tolist(),
        "done",
    )


def says(driver: Driver, epoch: int, **ready: tuple[int, ...]) -> None:
    """Run an epoch at whose end all workers have segments of operators."""
    intent = begin(driver, epoch)
    receipts = {
        name: [replace(receipt, ready=ready[name]) for receipt in group]
        for name, group in idle(driver, intent).items()
    }
    driver.commit(intent, receipts)


def test_a_paced_step_takes_what_is_ready_for_all_of_them(driver: Driver) -> None:
    """A bin has eight segments; 2 and 3 go to worker 2, 6 and 7 to worker 3."""
    driver.requests.migrate_together(dict.fromkeys(BOTH, FOUR), strategy=paced())
    origin = TWO.owners.tolist()
    says(driver, 1, counts=tuple(range(16, 24)), others=tuple(range(24, 32)))
    says(driver, 2, counts=tuple(range(16, 32)), others=tuple(range(16, 24)))
    assert [owners(driver, name) for name in BOTH] == [origin, origin], "no bin is ready for both"
    says(driver, 3, counts=(), others=())
    step = [0, 0, FOUR.owners[2], *origin[3:]]
    moved = [bin for bin in range(8) if FOUR.owners[bin] != origin[bin]]
    assert 2 in moved
    assert [owners(driver, name) for name in BOTH] == [step, step]


def test_one_that_is_alone_does_not_wait_for_others(driver: Driver) -> None:
    driver.requests.migrate("counts", FOUR, strategy=paced())
    says(driver, 1, counts=tuple(range(64)), others=())
    publish(driver, 2)
    assert owners(driver, "counts") == FOUR.owners.tolist()


def test_operators_with_other_routings_go_by_their_own_steps(driver: Driver) -> None:
    driver.requests.split("others", 16)
    targets = {"counts": FOUR, "others": Routing.even(16, 4)}
    (migration, _) = driver.requests.migrate_together(targets, strategy=fluid())
    publish(driver, 1)
    left = [
        int((driver.routing(name).owners != target.owners).sum())
        for name, target in targets.items()
    ]
    assert len(set(left)) == 2
    for epoch in range(2, 20):
        publish(driver, epoch)
    assert driver.requests.outcome(migration.id) == "done"
    assert [driver.routing(name) for name in BOTH] == list(targets.values())


# -- what may part them ----------------------------------------------------------------------------


def test_a_migration_of_several_survives_a_death_and_is_aborted_as_a_whole(
    driver: Driver, tmp_path: Path
) -> None:
    parts = driver.requests.migrate_together(dict.fromkeys(BOTH, FOUR), strategy=fluid())
    publish(driver, 1)
    driver = start(tmp_path)
    migration = Migration(driver, parts)
    assert (migration.operators, migration.outcome) == (BOTH, "open")
    assert (migration.progress.arrived, migration.progress.bins) == (2, 12)
    migration.abort(rollback=True)
    assert len({driver.timelines[name].goal.digest() for name in BOTH}) == 1
    publish(driver, 2)
    assert (migration.outcome, migration.progress.arrived) == ("rolled back", 0)
    assert [driver.routing(name) for name in BOTH] == [TWO, TWO]
    with pytest.raises(RefusedError, match="is rolled back; only an open one can be aborted"):
        migration.abort()


def test_an_abort_in_one_operator_leaves_the_other_moving(driver: Driver) -> None:
    parts = driver.requests.migrate_together(dict.fromkeys(BOTH, FOUR), strategy=batched(3))
    publish(driver, 1)
    driver.requests.abort("counts", parts[0].id)
    stay = owners(driver, "counts")
    publish(driver, 2)
    assert (owners(driver, "counts"), owners(driver, "others")) == (stay, FOUR.owners.tolist())
    assert driver.requests.outcome(parts[0].id) == "aborted"


@pytest.mark.parametrize("rollback", [False, True])
def test_an_abort_for_several_is_for_those_that_are_still_moving(
    driver: Driver, tmp_path: Path, rollback: bool
) -> None:
    """Whoever asked has seen both moving; one of them ends before the request is taken in."""
    id = driver.requests.migrate_together(dict.fromkeys(BOTH, FOUR), strategy=batched(3))[0].id
    publish(driver, 1)
    driver.requests.abort("counts", id)
    stay = owners(driver, "counts")
    abort = jointly([AbortRequest(0, name, id, rollback) for name in BOTH])
    requests = History.inspect(tmp_path).requests
    requests.add(abort)
    publish(driver, 2)
    assert driver.timelines["others"].migration is None
    ends = {name: end.phase.value for name, end in driver.timelines.ended(id).items()}
    assert ends == {"counts": "aborted", "others": "rolled back" if rollback else "aborted"}
    assert owners(driver, "counts") == stay
    assert owners(driver, "others") == (TWO.owners.tolist() if rollback else stay)
    last = requests.add(abort).id
    told = begin(driver, 3).refused
    assert told.keys() == {last}
    assert "operator 'counts' is aborted; only an open one can be aborted" in told[last]


def test_a_schedule_for_all_that_one_gives_up_goes_on_in_the_others(
    driver: Driver, tmp_path: Path
) -> None:
    """Also after deaths, whether an epoch has begun since or not, and until it is over."""
    scheduled = driver.requests.schedule(None, [Update(1, 0, 1), Update(4, 1, 1)])
    publish(driver, 1)
    target = driver.routing("counts")
    driver.requests.migrate("counts", target, strategy=all_at_once(), supersede=True)
    for epoch in (2, 3, 4):
        driver = start(tmp_path)
        assert [len(driver.timelines[name].scheduled) for name in BOTH] == [0, 1]
        publish(driver, epoch)
    assert [owners(driver, name)[:2] for name in BOTH] == [[1, 0], [1, 1]]
    intents = [History.inspect(tmp_path).intent(epoch) for epoch in (1, 2, 3, 4)]
    assert [dict(intent.dropped) for intent in intents if intent is not None] == [
        {},
        {"counts": (scheduled.id,)},
        {"counts": (scheduled.id,)},
        {},
    ]


# -- values ----------------------------------------------------------------------------------------


def test_a_joint_request_comes_back_from_json_with_one_id() -> None:
    asked: list[OperatorRequest] = [SplitRequest(0, "counts", 16), SplitRequest(0, "others", 16)]
    joint = jointly(asked)
    assert isinstance(joint, JointRequest)
    numbered = replace(joint, id=7)
    assert [part.id for part in numbered.parts] == [7, 7]
    assert request_from_json(numbered.to_json()) == numbered
    assert jointly(asked[:1]) == asked[0]
    assert parts_of(asked[0]) == (asked[0],)


# -- operators with different numbers of bins ------------------------------------------------------


def test_operators_may_have_different_numbers_of_bins(tmp_path: Path) -> None:
    """Each routes, moves, is looked at and goes on after a death in its own."""
    sim = OperatorSimulation(tmp_path, [COUNTS, SIZES], WORDS, workers=2, bins=16)
    texts = [f"word {i}" for i in range(50)]
    sim.feed(words(*texts))
    sim.split(128, operator="counts")
    sim.split(4, operator="sizes")
    sim.migrate(3, strategy=fluid())
    sim.feed(words(*texts))
    sim.restart()
    sim.split(8, operator="sizes")
    for _ in range(3):
        sim.feed(words(*texts))
    assert [sim.driver.routing(name).bins for name in ("counts", "sizes")] == [128, 8]
    assert {row["rows"] for row in sim.state(operator="counts")} == {5}
    assert sum(row["shops"] for row in sim.state(operator="sizes")) == 50 * 5
    views = Overview.of(tmp_path).operators
    assert [sum(worker.bins for worker in view.workers) for view in views.values()] == [128, 8]
    assert "3 workers, 8 bins" in str(Overview.of(tmp_path).graph)
    assert verify(tmp_path).findings == []
