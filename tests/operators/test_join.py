"""Joins of two streams, against a model that compares every left row with every right one."""

import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.model.hashing import hash_rows
from godwit.operators.definition import INPUT, TIME
from godwit.operators.joining import How
from tests.support.counting_workloads import KEY, Row, few_hashes, in_order, tabulate
from tests.support.histories import scratch
from tests.support.join_workloads import SIDES, UNTIMED, Joins, TimedJoins, joined
from tests.support.operator_simulation import OperatorSimulation
from tests.support.timed_workloads import at

pytestmark = pytest.mark.soak

HISTORIES = settings().max_examples // 2
HOWS = get_args(How)
KEYS = [("a", 1), ("a", 1), ("b", 2), ("a", None), (None, None)]


@st.composite
def rows(draw: st.DrawFn, *, timed: bool) -> Row:
    side = draw(st.integers(0, 1))
    row = dict(zip(KEY, draw(st.sampled_from(KEYS)), strict=True)) | {INPUT: side}
    row |= {
        "left_x": None if side else draw(st.sampled_from((None, 1, 2))),
        "right_y": draw(st.sampled_from((None, "x", "y"))) if side else None,
    }
    return row | ({TIME: at(draw(st.none() | st.integers(0, 7)))} if timed else {})


def batches(*, timed: bool) -> st.SearchStrategy[list[list[Row]]]:
    return st.lists(st.lists(rows(timed=timed), min_size=2, max_size=12), min_size=1, max_size=4)


def check(
    how: How, bounds: tuple[int, int] | None, given: list[list[Row]], seed: int, *, clash: bool
) -> None:
    """Feed batches in any order of their records, to workers whose number changes."""
    chance = random.Random(seed)
    model = Joins(how) if bounds is None else TimedJoins(how, bounds)
    with scratch() as directory:
        sim = OperatorSimulation(
            directory,
            joined(how, bounds),
            UNTIMED if bounds is None else SIDES,
            workers=chance.randint(1, 3),
            bins=8,
            hashes=few_hashes if clash else hash_rows,
        )
        for epoch, batch in enumerate([*given, [], []]):
            if chance.random() < 0.3:
                sim.migrate(chance.randint(1, 3), strategy="all-at-once", supersede=True)
            if isinstance(model, TimedJoins) and epoch == len(given) + 1:
                model.finish()
                sim.finish()
            else:
                sim.feed(chance.sample(batch, len(batch)))
            assert in_order(sim.outputs(epoch)) == in_order(model.feed(batch))
            for table, expected in model.state().items():
                assert tabulate(sim.state(table)) == in_order(expected)


@pytest.mark.parametrize("clash", [False, True], ids=["hashes", "few_hashes"])
@pytest.mark.parametrize("how", HOWS)
def test_what_comes_out_is_what_comparing_all_rows_finds(how: How, clash: bool) -> None:
    bounds = st.tuples(st.integers(-3, 3), st.integers(0, 4))

    @settings(max_examples=HISTORIES)
    @given(batches(timed=True), bounds, st.integers(0, 99))
    def comes_out_right(given: list[list[Row]], bounds: tuple[int, int], seed: int) -> None:
        check(how, (bounds[0], sum(bounds)), given, seed, clash=clash)

    comes_out_right()


@pytest.mark.parametrize("how", ["inner", "semi"])
def test_rows_without_bounds_wait_for_ever(how: How) -> None:
    @settings(max_examples=HISTORIES)
    @given(batches(timed=False), st.integers(0, 99), st.booleans())
    def comes_out_right(given: list[list[Row]], seed: int, clash: bool) -> None:
        check(how, None, given, seed, clash=clash)

    comes_out_right()
