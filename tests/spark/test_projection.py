"""Costs projected by Spark's tasks are those of one process, also after a failure."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from godwit.cli import main
from godwit.cli import project as command
from godwit.planner.chain import Chain
from godwit.planner.iteration import SweepProgress, project
from godwit.planner.projected import Problem, Projected
from godwit.spark.projection import OnSpark
from tests.support.simulated import simulate, words

pytestmark = pytest.mark.spark

CHAIN = Chain((3, 4, 5), ((0.0, 0.7, 0.3), (0.5, 0.0, 0.5), (0.2, 0.8, 0.0)))


def problem() -> Problem:
    """Of more than one block."""
    size = 1 + np.arange(24.0) % 5
    return Problem.of(CHAIN, np.ones(24), size, 0.5, 0.8)


def same(left: Projected, right: Projected) -> bool:
    return all(np.array_equal(left.cost[nodes], right.cost[nodes]) for nodes in CHAIN.nodes)


def test_costs_are_those_of_one_process(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[SweepProgress] = []
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


def test_the_command_line_computes_on_spark_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: dict[str, str]
) -> None:
    """In a process of its own, which goes on with what one process has begun."""
    sim = simulate(tmp_path / "checkpoint", bins=64)
    sim.feed(words(*map(str, range(500))))
    (tmp_path / "series.txt").write_text("3 4 5 3 4 3 5 4 3")
    common = ["project", str(tmp_path / "checkpoint"), "--series", str(tmp_path / "series.txt")]
    common += ["--partitionings", "600", "--tau", "0.3"]
    assert main([*common, "--out", str(tmp_path / "here")]) == 0
    alone = Projected.load(tmp_path / "here")
    begun = tmp_path / "spark"
    with monkeypatch.context() as patched:
        failing = partial(partial, fails_at, 1)
        patched.setattr(
            command, "solve_in_process", lambda solve, blocks: map(failing(solve), blocks)
        )
        with pytest.raises(ArithmeticError):
            main([*common, "--out", str(begun)])
    godwit = [sys.executable, "-c", "import sys; from godwit.cli import main; sys.exit(main())"]
    given = [*godwit, *common, "--out", str(begun), "--spark", "local[2]"]
    ended = subprocess.run(given, capture_output=True, text=True, env=os.environ | quick)
    assert ended.returncode == 0, ended.stderr
    first, *sweeps, last = ended.stderr.splitlines()
    assert first == f"{begun}: goes on with what was begun"
    assert len(sweeps) == alone.sweeps
    assert "partitionings of" in last
    assert same(Projected.load(begun), alone)


def test_what_is_no_master_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["project", "checkpoint", "--out", "costs", "--spark", "lokal"])
    assert "'lokal' is no master of Spark" in capsys.readouterr().err
