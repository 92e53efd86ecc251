"""Costs projected by Spark's tasks are those of one process, also after a failure."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from godwit.planner.chain import Chain
from godwit.planner.iteration import Progress, project
from godwit.planner.projected import Problem, Projected
from godwit.spark.projecting import OnSpark

pytestmark = pytest.mark.spark

CHAIN = Chain((3, 4, 5), ((0.0, 0.7, 0.3), (0.5, 0.0, 0.5), (0.2, 0.8, 0.0)))


def problem() -> Problem:
    """Of more than one block."""
    size = 1 + np.arange(24.0) % 5
    return Problem.of(CHAIN, np.ones(24), size, 0.5, 0.8)


def same(left: Projected, right: Projected) -> bool:
    return all(np.array_equal(left.cost[nodes], right.cost[nodes]) for nodes in CHAIN.nodes)


def test_costs_are_those_of_one_process(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[Progress] = []
    found = project(problem(), tmp_path / "spark", run=OnSpark(spark, 2), progress=seen.append)
    alone = project(problem(), tmp_path / "here")
    assert same(found, alone)
    assert found.sweeps == alone.sweeps
    assert len(seen) == seen[0].blocks * found.sweeps
    assert seen[0].blocks > 2


def fails_at(bad: int, solve: Callable[[int], int], block: int) -> int:
    if block == bad:
        raise ArithmeticError("lost")
    return solve(block)


def test_what_a_failed_run_has_done_is_not_done_again(spark: SparkSession, tmp_path: Path) -> None:
    solved: list[int] = []

    def run(bad: int, solve: Callable[[int], int], blocks: Sequence[int]) -> Iterator[int]:
        for block in OnSpark(spark, 1)(partial(fails_at, bad, solve), blocks):
            solved.append(block)
            yield block

    with pytest.raises(PythonException, match="lost"):
        project(problem(), tmp_path, run=partial(run, 2))
    assert solved == [0, 1]
    found = project(problem(), tmp_path, run=partial(run, -1))
    assert same(found, project(problem()))
    assert len(solved) == (max(solved) + 1) * found.sweeps
