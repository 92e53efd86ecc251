"""Graphs of operators over restarts: what may come and go, and what is refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

import godwit.operators as ops
from godwit.errors import ConfigError, IncompatibleError
from godwit.model.graph import Graph, Parents
from godwit.operators import AggregateOperator
from tests.support.simulated import COUNTS, WORDS, begin, content, drive, publish

SUMS = AggregateOperator.of("sums", "word", {"total": ops.sum("n")}, WORDS)
BOTH = Graph({"counts": (Parents((), (0,)),), "sums": (Parents((), (0,)),)})


@pytest.mark.parametrize("gone", ["counts", "sums"])
def test_no_operator_goes_unless_it_is_dropped(tmp_path: Path, gone: str) -> None:
    publish(drive(tmp_path, COUNTS, SUMS, graph=BOTH, workers=2, bins=16), 0)
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
    publish(drive(tmp_path, COUNTS, workers=2, bins=16), 0)
    match = "'counts'.*it got a source, and now gets 'sums'"
    with pytest.raises(IncompatibleError, match=match):
        drive(tmp_path, SUMS, COUNTS)
    publish(drive(tmp_path, COUNTS, SUMS), 1)
    with pytest.raises(IncompatibleError, match=r"'sums'.*it got 'counts', and now gets a source"):
        drive(tmp_path, COUNTS, SUMS, graph=BOTH)


def test_an_added_operator_is_in_an_epoch_that_was_decided_without_it(tmp_path: Path) -> None:
    publish(drive(tmp_path, COUNTS, workers=3, bins=16), 0)
    begin(drive(tmp_path, COUNTS), 1)
    driver = drive(tmp_path, COUNTS, SUMS)
    assert driver.routing("sums") == driver.routing("counts")
    assert publish(driver, 1).operators.keys() == {"counts", "sums"}
    publish(driver, 2)
    assert drive(tmp_path, COUNTS, SUMS).routing("sums").workers == 3


def test_a_dropped_operator_is_not_in_an_epoch_that_was_decided_with_it(tmp_path: Path) -> None:
    publish(drive(tmp_path, COUNTS, SUMS, workers=2, bins=16), 0)
    begin(drive(tmp_path, COUNTS, SUMS), 1)
    assert publish(drive(tmp_path, COUNTS, drop=["sums"]), 1).operators.keys() == {"counts"}


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
