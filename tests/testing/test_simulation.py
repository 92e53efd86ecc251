"""The in-memory runtime as its users see it: death at each point, restart, rollback."""

from pathlib import Path
from typing import Any

import pytest

import godwit as gw
from godwit import faults
from godwit.errors import CheckpointError, ConfigError, RefusedError
from godwit.log import History
from godwit.migration.strategies import all_at_once
from godwit.model.routing import Routing, Update
from godwit.operators import AggregateOperator, Form, List, StateMachine, Value
from tests.support.death import death_at
from tests.support.operator_simulation import OperatorSimulation
from tests.support.simulated import WORDS, counts, simulate, words


def rows(simulation: OperatorSimulation, epoch: int) -> dict[str, int]:
    return {row["word"]: row["total"] for row in simulation.sink[epoch]}


SIDES: tuple[faults.Side, ...] = ("before", "after")
PUBLISHED = {("manifest", "after"), ("sink", "before"), ("sink", "after")}
PUBLISHED |= {("commit", "before"), ("commit", "after")}
DELIVERED = PUBLISHED - {("manifest", "after"), ("sink", "before")}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("point", faults.POINTS)
def test_an_epoch_is_exactly_once_wherever_the_process_dies(
    tmp_path: Path, point: str, side: faults.Side
) -> None:
    sim = simulate(tmp_path)
    sim.feed(words("a", "bb", "ccc"))
    with death_at(point, side):
        sim.feed(words("a", "dddd"))
    assert (History(tmp_path).epochs()[-1] == 1) is ((point, side) in PUBLISHED)
    assert (1 in sim.sink) is ((point, side) in DELIVERED)
    assert sim.committed == int((point, side) == ("commit", "after"))
    sim.restart(workers=3)
    sim.resume()
    assert sim.committed == 1
    assert counts(sim) == {"a": 2, "bb": 1, "ccc": 1, "dddd": 1}
    assert (rows(sim, 0), rows(sim, 1)) == ({"a": 1, "bb": 2, "ccc": 3}, {"a": 2, "dddd": 4})


@pytest.mark.parametrize("point", ["delta", "outputs"])
def test_a_worker_that_dies_after_another_worked_leaves_nothing(tmp_path: Path, point: str) -> None:
    sim = simulate(tmp_path)
    with death_at(point, "after", skip=1):
        sim.feed(words("a", "bb", "ccc", "dddd"))
    written = set(tmp_path.glob("godwit/state/counts/value/*"))
    assert written
    sim.restart()
    sim.resume()
    assert counts(sim) == {"a": 1, "bb": 1, "ccc": 1, "dddd": 1}
    sim.restart()
    assert written.isdisjoint(tmp_path.glob("godwit/state/counts/value/*"))


def test_bins_move_between_epochs(tmp_path: Path) -> None:
    sim = simulate(tmp_path, workers=1)
    sim.feed(words("a", "b", "c"))
    sim.migrate(Routing.even(16, 4), strategy=all_at_once())
    sim.feed(words("a", "b", "c"))
    sim.schedule([Update(2, bin, 0) for bin in range(16)], workers=1)
    assert sim.driver.routing("counts").workers == 4
    places = {row["_worker"] for row in sim.state()}
    assert len(places) > 1
    sim.feed(words("a"))
    assert {row["_worker"] for row in sim.state()} == {0}
    assert counts(sim) == {"a": 3, "b": 2, "c": 2}
    with pytest.raises(RefusedError):
        sim.schedule([Update(2, 0, 0)])


def test_what_names_no_operator_is_asked_of_all_of_them(tmp_path: Path) -> None:
    """The state that is read without a name is that of the last."""
    sums = AggregateOperator.of("sums", "word", {"total": gw.sum("n")}, WORDS)
    counted = AggregateOperator.of("counts", "word", {"times": gw.count()}, sums.output)
    sim = OperatorSimulation(tmp_path, [sums, counted], WORDS, workers=1, bins=16)
    sim.feed(words("a", "b", "c", "d"))

    def workers(operator: str) -> set[int]:
        return {row["_worker"] for row in sim.state(operator=operator)}

    def are_open() -> list[bool]:
        return [sim.driver.timelines[name].is_open for name in ("sums", "counts")]

    sim.migrate(Routing.even(16, 4), strategy=all_at_once(), operator="sums")
    sim.feed(words("a"))
    assert len(workers("sums")) > 1
    assert workers("counts") == {0}
    sim.schedule([Update(2, bin, 1) for bin in range(16)], workers=2, operator="sums")
    with pytest.raises(RefusedError, match="'sums' refuses, so none of 2 operators changes"):
        sim.migrate(Routing.even(16, 2), strategy=all_at_once())
    sim.migrate(Routing.even(16, 2), strategy=all_at_once(), operator="counts")
    sim.feed(words("a"))
    assert (workers("sums"), workers("counts")) == ({1}, {0, 1})
    migration = sim.migrate(4)
    sim.abort(migration, operator="sums")
    assert are_open() == [False, True]
    sim.abort(sim.migrate(4, supersede=True))
    assert are_open() == [False, False]
    sim.feed(words("a"))
    assert [sim.driver.routing(name).workers for name in ("sums", "counts")] == [2, 2]
    assert {row["word"]: row["times"] for row in sim.state()} == {"a": 4, "b": 1, "c": 1, "d": 1}


def test_any_retained_epoch_can_be_read(tmp_path: Path) -> None:
    sim = simulate(tmp_path, retention=2)
    for word in "abc":
        sim.feed(words(word))
    assert counts(sim, epoch=1) == {"a": 1, "b": 1}
    assert counts(sim, epoch=2) == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(ConfigError, match=r"epoch 0 of .* is not retained; 1 to 2 are"):
        sim.state(epoch=0)


def test_a_rollback_offers_the_later_batches_again(tmp_path: Path) -> None:
    sim = simulate(tmp_path)
    for word in "abc":
        sim.feed(words(word))
    before = sim.outputs()
    sim.restore(0)
    assert sim.committed == 0
    assert counts(sim) == {"a": 1}
    sim.restart(workers=3)
    sim.feed(words("d"))
    assert sim.committed == 3
    assert counts(sim) == dict.fromkeys("abcd", 1)
    assert sim.outputs()[:3] == before


def test_a_rollback_to_an_epoch_that_was_not_delivered_delivers_it(tmp_path: Path) -> None:
    sim = simulate(tmp_path)
    with death_at("manifest", "after"):
        sim.feed(words("a"))
    sim.restore(0)
    sim.restart()
    sim.resume()
    assert rows(sim, 0) == {"a": 1}


def test_a_rollback_to_an_epoch_that_is_gone_is_refused(tmp_path: Path) -> None:
    sim = simulate(tmp_path, retention=1)
    sim.feed(words("a"))
    sim.feed(words("b"))
    with pytest.raises(CheckpointError, match="epoch 0 is not retained"):
        sim.restore(0)
    sim.feed(words("c"))
    assert counts(sim) == dict.fromkeys("abc", 1)


def _note(key: str, value: Any, state: Any) -> None:
    state.last.n = value.n
    state.all.append(value.n)


def test_an_operator_of_several_tables(tmp_path: Path) -> None:
    states: dict[str, Form] = {"last": Value("n long"), "all": List("n long")}
    sim = simulate(tmp_path, StateMachine.of("notes", "word", _note, states, "n long", WORDS))
    sim.feed([{"word": "a", "n": 2}, {"word": "a", "n": 1}])
    sim.feed([{"word": "a", "n": 0}])
    assert [row["n"] for row in sim.state("last")] == [0]
    assert [row["n"] for row in sim.state("all")] == [1, 2, 0]
    assert sim.outputs() == []
    with pytest.raises(ConfigError, match="several tables; name one of last, all"):
        sim.state()
    with pytest.raises(ConfigError, match="unknown table 'none'"):
        sim.state("none")
