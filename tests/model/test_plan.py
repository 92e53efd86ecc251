"""Plans lead where they say, come back from their files, and fit one routing only."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError, RefusedError
from godwit.model.ids import BinId, WorkerId
from godwit.model.plan import Moves, Plan
from godwit.model.routing import Routing


@st.composite
def routings(draw: st.DrawFn) -> Routing:
    workers = draw(st.integers(1, 6))
    owners = draw(st.lists(st.integers(0, workers - 1), min_size=16, max_size=16))
    return Routing(np.array(owners), workers)


def run(first: int, last: int, source: int, target: int) -> Moves:
    return Moves(BinId(first), BinId(last), WorkerId(source), WorkerId(target))


@given(routings(), routings())
def test_a_plan_leads_to_its_target_also_through_a_file(origin: Routing, target: Routing) -> None:
    plan = Plan.of("counts", origin, target)
    assert plan.bins == len(list(origin.moves_to(target)))
    again = Plan.from_text(plan.to_text())
    assert again == plan
    assert again.target(origin) == target


@given(routings(), st.integers(1, 8))
def test_spread_is_even_and_moves_as_few_bins_as_possible(routing: Routing, workers: int) -> None:
    target = routing.spread(workers)
    counts = np.bincount(target.owners, minlength=workers)
    assert (len(counts), target.workers) == (workers, workers)
    assert counts.max() - counts.min() <= 1
    before = sorted((len(routing.bins_of(w)) for w in range(workers)), reverse=True)
    share, more = divmod(16, workers)
    kept = sum(min(had, share + (i < more)) for i, had in enumerate(before))
    assert len(list(routing.moves_to(target))) == 16 - kept


def test_a_plan_for_another_routing_is_refused() -> None:
    plan = Plan.of("counts", Routing.even(16, 2), Routing.even(16, 3))
    for other in (Routing.even(16, 3), Routing.even(32, 2), Routing(Routing.even(16, 2).owners, 3)):
        with pytest.raises(RefusedError, match="another routing of operator 'counts'"):
            plan.target(other)


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        (run(0, 2, 1, 0), "worker 1 does not own bin 0"),
        (run(14, 16, 1, 0), "worker 1 does not own bin 16"),
        (run(0, 0, 0, 5), "unknown worker 5"),
    ],
)
def test_moves_that_do_not_fit_are_refused(moves: Moves, message: str) -> None:
    origin = Routing.even(16, 2)
    with pytest.raises(RefusedError, match=message):
        Plan("counts", origin.digest(), 2, (moves,)).target(origin)


_HEAD = '"operator": "counts", "routing": "r"'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"moves": [{"bins": "x"}]}',
        '{"moves": 3}',
        f'{{{_HEAD}, "workers": 2, "moves": [{{"bins": "3-1", "from": 0, "to": 1}}]}}',
    ],
)
def test_other_texts_are_no_plans(text: str) -> None:
    with pytest.raises(ConfigError, match="not a plan that Godwit can read"):
        Plan.from_text(text)


def test_what_a_move_lacks_is_named() -> None:
    text = f'{{{_HEAD}, "workers": 2, "moves": [{{"bins": "3"}}]}}'
    with pytest.raises(ConfigError, match=r"move \{'bins': '3'\} lacks from, to"):
        Plan.from_text(text)


@pytest.mark.parametrize("workers", ['"4"', "4.0", "true"])
def test_a_number_of_workers_is_a_number(workers: str) -> None:
    with pytest.raises(ConfigError, match="number of workers"):
        Plan.from_text(f'{{{_HEAD}, "workers": {workers}, "moves": []}}')


def test_a_bin_moves_once() -> None:
    origin = Routing.even(16, 2)
    plan = Plan("counts", origin.digest(), 3, (run(0, 3, 0, 1), run(2, 4, 0, 2)))
    with pytest.raises(RefusedError, match="the plan moves bin 2 twice"):
        plan.target(origin)
