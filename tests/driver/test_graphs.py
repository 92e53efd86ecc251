"""Graphs of operators over restarts: what may come and go, and what is refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

import godwit.operators as ops
from godwit.driver.driver import Driver
from godwit.errors import ConfigError, IncompatibleError
from godwit.migration.strategies import fluid
from godwit.model.graph import Graph, Outlet, Parents
from godwit.model.ids import Epoch, ExecutorId
from godwit.model.routing import Routing, Update
from godwit.operators import AggregateOperator
from tests.support.simulated import COUNTS, WORDS, begin, content, drive, publish

SUMS = AggregateOperator.of("sums", "word", {"total": ops.sum("n")}, WORDS)


def settle(driver: Driver, epoch: int) -> None:
    """Publish an epoch without data, and let Spark commit it: it has reached all sinks."""
    publish(driver, epoch)
    commits = Path(str(driver.checkpoint)) / "spark" / "commits"
    commits.mkdir(parents=True, exist_ok=True)
    (commits / str(epoch)).touch()


BOTH = Graph({"counts": (Parents((), (0,)),), "sums": (Parents((), (0,)),)})


@pytest.mark.parametrize("gone", ["counts", "sums"])
def test_no_operator_goes_unless_it_is_dropped(tmp_path: Path, gone: str) -> None:
    settle(drive(tmp_path, COUNTS, SUMS, graph=BOTH, workers=2, bins=16), 0)
    written = content(tmp_path)
    kept = SUMS if gone == "counts" else COUNTS
    match = rf"'{gone}'.*no longer has it, but {kept.name}\. .*start with drop=\['{gone}'\]"
    with pytest.raises(IncompatibleError, match=match):
        drive(tmp_path, kept)
    assert content(tmp_path) == written
    driver = drive(tmp_path, kept, drop=[gone])
    assert publish(driver, 1).operators.keys() == {kept.name}
    assert publish(drive(tmp_path, kept, drop=[gone]), 2).trees.keys() == {kept.name}


def test_an_operator_that_the_query_has_is_not_dropped(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has operator 'counts', which it is to drop"):
        drive(tmp_path, COUNTS, drop=["counts"])


def test_what_an_operator_gets_is_the_same_over_restarts(tmp_path: Path) -> None:
    """Also an operator that is added comes behind others, not before them."""
    settle(drive(tmp_path, COUNTS, workers=2, bins=16), 0)
    match = "'counts'.*it got a source, and now gets 'sums'"
    with pytest.raises(IncompatibleError, match=match):
        drive(tmp_path, SUMS, COUNTS)
    publish(drive(tmp_path, COUNTS, SUMS), 1)
    with pytest.raises(IncompatibleError, match=r"'sums'.*it got 'counts', and now gets a source"):
        drive(tmp_path, COUNTS, SUMS, graph=BOTH)


def test_an_added_operator_goes_with_those_before_it(tmp_path: Path) -> None:
    driver = drive(tmp_path, COUNTS, workers=3, bins=16)
    publish(driver, 0)
    driver.requests.migrate("counts", Routing.even(16, 2), strategy=fluid())
    settle(driver, 1)
    driver = drive(tmp_path, COUNTS, SUMS)
    assert driver.routing("sums") == Routing.even(16, 2)
    assert publish(driver, 2).operators.keys() == {"counts", "sums"}
    assert drive(tmp_path, COUNTS, SUMS).routing("sums").workers == 2


def test_what_was_scheduled_goes_with_an_operator(tmp_path: Path) -> None:
    """An operator of the same name that is added later does not get it, nor after a restart."""
    driver = drive(tmp_path, COUNTS, SUMS, graph=BOTH, workers=2, bins=16)
    settle(driver, 0)
    driver.requests.schedule(None, [Update(9, 0, 1)])
    settle(driver, 1)
    settle(drive(tmp_path, COUNTS, drop=["sums"]), 2)
    for epoch in (3, 4):
        driver = drive(tmp_path, COUNTS, SUMS, graph=BOTH)
        scheduled = [len(driver.timelines[name].scheduled) for name in ("counts", "sums")]
        assert scheduled == [1, 0]
        settle(driver, epoch)


def test_a_graph_does_not_change_while_an_epoch_is_decided_and_not_published(
    tmp_path: Path,
) -> None:
    """Its intent says nothing of an operator that is new."""
    begin(drive(tmp_path, COUNTS, workers=2, bins=16), 0)
    match = "'sums'.*epoch 0 was decided without it.*Start the query once as it was"
    with pytest.raises(IncompatibleError, match=match):
        drive(tmp_path, COUNTS, SUMS)
    driver = drive(tmp_path, COUNTS)
    publish(driver, 0)
    begin(driver, 1)
    with pytest.raises(IncompatibleError, match=r"'sums'.*epoch 1 was decided with another graph"):
        drive(tmp_path, COUNTS, SUMS)
    settle(drive(tmp_path, COUNTS), 1)
    publish(drive(tmp_path, COUNTS, SUMS), 2)
    begin(drive(tmp_path, COUNTS, SUMS), 3)
    with pytest.raises(IncompatibleError, match=r"'sums'.*epoch 3 was decided with another graph"):
        drive(tmp_path, COUNTS, drop=["sums"])


def test_a_changed_graph_whose_first_epoch_was_interrupted_goes_on(tmp_path: Path) -> None:
    """Or does as it was before, if the change was none for the better."""
    settle(drive(tmp_path, COUNTS, workers=2, bins=16), 0)
    begin(drive(tmp_path, COUNTS, SUMS), 1)
    before = drive(tmp_path, COUNTS)
    decided = before.begin(Epoch(1), "query", "offsets 1", executors={ExecutorId("1"): "host"})
    assert decided.epoch == 1
    driver = drive(tmp_path, COUNTS, SUMS)
    assert publish(driver, 1).operators.keys() == {"counts", "sums"}


def test_a_graph_does_not_change_while_an_epoch_may_not_have_reached_all_sinks(
    tmp_path: Path,
) -> None:
    one = replace(Graph.chain(["counts"]), outlets=(Outlet("a", ("counts",)),))
    two = replace(one, outlets=(*one.outlets, Outlet("b", ("counts",))))
    publish(drive(tmp_path, COUNTS, graph=one, workers=2, bins=16), 0)
    match = "'counts'.*epoch 0 may not have reached all sinks"
    with pytest.raises(IncompatibleError, match=match):
        drive(tmp_path, COUNTS, graph=two)
    moved = replace(one, outlets=(Outlet("elsewhere", ("counts",)),))
    drive(tmp_path, COUNTS, graph=moved)
    settle(drive(tmp_path, COUNTS, graph=one), 1)
    drive(tmp_path, COUNTS, graph=two)


def test_an_operator_stays_with_its_sources(tmp_path: Path) -> None:
    graph = replace(Graph.chain(["counts"]), sources=("clicks", "views"))
    publish(drive(tmp_path, COUNTS, graph=graph, workers=2, bins=16), 0)
    other = replace(graph, inputs={"counts": (Parents((), (1,)),)})
    with pytest.raises(IncompatibleError, match=r"'counts'.*gets other sources than before"):
        drive(tmp_path, COUNTS, graph=other)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (("clicks",), "read 2 sources, and now reads 1"),
        (("views", "clicks"), "the order of its sources was clicks, views"),
    ],
)
def test_sources_stay_and_keep_their_order(
    tmp_path: Path, now: tuple[str, ...], message: str
) -> None:
    """Spark knows how far it has read them by their places."""
    graph = replace(Graph.chain(["counts"]), sources=("clicks", "views"))
    publish(drive(tmp_path, COUNTS, graph=graph, workers=2, bins=16), 0)
    with pytest.raises(IncompatibleError, match=message):
        drive(tmp_path, COUNTS, graph=replace(graph, sources=now))


def test_operators_may_change_places(tmp_path: Path) -> None:
    publish(drive(tmp_path, COUNTS, SUMS, graph=BOTH, workers=2, bins=16), 0)
    turned = Graph({name: BOTH.inputs[name] for name in ("sums", "counts")})
    publish(drive(tmp_path, SUMS, COUNTS, graph=turned), 1)
