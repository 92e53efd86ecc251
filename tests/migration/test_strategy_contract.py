"""What every strategy of `STRATEGIES` promises, and that nobody asks which one it is."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError
from godwit.migration.strategies import (
    STRATEGIES,
    UNREADY_EPOCHS,
    Bins,
    Estimate,
    Fetching,
    Known,
    Ready,
    Strategy,
    left,
    parse,
    sought,
)
from godwit.model.ids import WorkerId
from godwit.model.routing import Routing

ROOT = Path(__file__).parents[2]
TEXTS = ("batched:1", "batched:7", "matched:2", "paced:50ms", "paced:0.5%")  # beside suggestions
PACE = 5.0


def members() -> list[Strategy]:
    """All strategies, each with the arguments that it suggests itself and some others."""
    suggested = [kind.suggested(bins) for kind in STRATEGIES for bins in (1, 40, 4096)]
    found = [strategy for strategy in suggested if strategy is not None]
    return list(dict.fromkeys([*found, *map(parse, TEXTS)]))


every_strategy = pytest.mark.parametrize("strategy", members(), ids=str)


@st.composite
def routings(draw: st.DrawFn, bins: int) -> Routing:
    workers = draw(st.integers(1, 5))
    owners = draw(st.lists(st.integers(0, workers - 1), min_size=bins, max_size=bins))
    return Routing(np.array(owners), workers)


WAYS = st.sampled_from([1, 2, 16, 128]).flatmap(lambda n: st.tuples(routings(n), routings(n)))


def fetched(routing: Routing, target: Routing, chance: Random) -> Ready:
    """What destinations may have fetched of what they seek; or a start, after which none has."""
    if chance.random() < 0.1:
        return None
    return {
        worker: chance.sample(segments, chance.randint(0, len(segments)))
        for worker, segments in sought(routing, target).items()
    }


def fetching(rate: float, *lacking: tuple[int, ...]) -> Fetching:
    return Fetching(lacking, rate, work=2.0)


def test_each_kind_is_among_them() -> None:
    assert {type(strategy) for strategy in members()} == set(STRATEGIES)
    assert len({kind.name for kind in STRATEGIES}) == len(STRATEGIES)


def test_each_file_of_the_package_holds_one_of_them() -> None:
    folder = ROOT / "src" / "godwit" / "migration" / "strategies"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "base", "bins"}
    assert sorted(kind.__module__.rpartition(".")[2] for kind in STRATEGIES) == sorted(files)


def test_one_without_an_estimate_cannot_be_made() -> None:
    class Silent(Strategy):
        name = usage = about = "silent"

        def step(
            self, routing: Routing, target: Routing, waited: int | None, ready: Ready = None
        ) -> Bins:
            return left(routing, target)

    with pytest.raises(TypeError, match="estimate"):
        Silent()  # type: ignore[abstract]


@every_strategy
def test_its_text_is_read_back(strategy: Strategy) -> None:
    assert parse(str(strategy)) == strategy
    assert str(strategy).partition(":")[0] == strategy.name
    assert strategy.usage.startswith(strategy.name)
    assert strategy.about


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.name)
def test_an_argument_that_cannot_be_is_refused_with_what_can(kind: type[Strategy]) -> None:
    with pytest.raises(ConfigError, match=r"use paced|a share such as"):
        parse(f"{kind.name}:?")


@every_strategy
@given(way=WAYS, seed=st.integers(0, 1000))
def test_every_bin_arrives_once_whatever_destinations_have_fetched(
    strategy: Strategy, way: tuple[Routing, Routing], seed: int
) -> None:
    """It never moves a bin that is at its target, never waits for ever, and ends there."""
    (routing, target), chance = way, Random(seed)
    to_move, moved = Counter(left(routing, target).tolist()), Counter[int]()
    waited: int | None = None
    patience = max(UNREADY_EPOCHS, getattr(strategy, "gap", 0)) + 1
    while len(rest := left(routing, target)):
        bins = strategy.step(routing, target, waited, fetched(routing, target, chance))
        assert set(bins.tolist()) <= set(rest.tolist())
        moved.update(bins.tolist())
        waited = 0 if len(bins) or waited is None else waited + 1
        assert waited <= patience
        routing = routing.toward(target, bins)
    assert moved == to_move
    assert len(strategy.step(routing, target, waited)) == 0


@every_strategy
@given(way=WAYS, rate=st.floats(0.0, 1e9), arrived=st.integers(0, 3))
def test_an_estimate_is_above_zero_until_it_is_zero_at_the_target(
    strategy: Strategy, way: tuple[Routing, Routing], rate: float, arrived: int
) -> None:
    routing, target = way
    files = fetching(rate, (100, 2_000), ())
    for known in (
        Known(routing, target),
        Known(routing, target, PACE),
        Known(routing, target, PACE, arrived, elapsed=3.0),
        Known(routing, target, PACE, fetching=files),
    ):
        estimate = strategy.estimate(known)
        if not len(known.bins):
            assert estimate == Estimate(0, 0.0)
            continue
        assert estimate.epochs is None or estimate.epochs > 0
        assert estimate.seconds is None or estimate.seconds > 0
        if known.pace is None:
            assert estimate.seconds is None
        if known.fetching is not None:  # then all is known
            assert estimate.epochs is not None
            assert estimate.seconds is not None
            assert estimate.seconds >= estimate.epochs * PACE


@every_strategy
@given(way=WAYS)
def test_an_estimate_shrinks_with_every_step_until_nothing_is_left(
    strategy: Strategy, way: tuple[Routing, Routing]
) -> None:
    routing, target = way
    everything = dict.fromkeys(map(WorkerId, range(target.workers)), range(64))
    epochs = strategy.estimate(Known(routing, target, PACE, fetching=fetching(1.0, ()))).epochs
    while len(left(routing, target)):
        routing = routing.toward(target, strategy.step(routing, target, None, everything))
        before = epochs
        epochs = strategy.estimate(Known(routing, target, PACE, fetching=fetching(1.0, ()))).epochs
        assert epochs is not None
        assert before is not None
        assert epochs <= before
    assert epochs == 0


@every_strategy
def test_what_is_fetched_ahead_grows_with_the_work_or_nothing_is(strategy: Strategy) -> None:
    idle, busy = strategy.fetch_seconds(0.0), strategy.fetch_seconds(2.0)
    if idle is None:
        assert busy is None
    else:
        assert busy is not None
        assert 0.0 <= idle <= busy


def test_nobody_asks_which_strategy_it_is() -> None:
    """A place that did would have to learn each new one; the strategies answer themselves."""
    names = {kind.__name__ for kind in STRATEGIES}
    asked = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("src", "lab", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if any(name in (text := path.read_text()) for name in names)
        for node, tested in _type_tests(ast.parse(text))
        if names & tested
    }
    assert asked == set()


def _type_tests(tree: ast.AST) -> Iterator[tuple[ast.Call | ast.MatchClass, set[str]]]:
    """The places that ask for a type, with all names in what they ask for."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, kinds]):
                yield node, _names(kinds)
            case ast.MatchClass(cls=kind):
                yield node, _names(kind)


def _names(tree: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {
        n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)
    }
