"""A workload runs live, moves on the way, and leaves a report."""

import json
from _thread import interrupt_main
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
from pyspark.sql import SparkSession

from godwit.errors import ConfigError
from godwit.inspect.overview import Overview
from godwit.inspect.targets import Measured
from godwit.log.history import History
from godwit.model.routing import Routing
from lab.__main__ import main
from lab.workloads.catalog import NUMBERED, WORKLOADS, Workload, workload
from lab.workloads.counts import WORDS_A_LINE, look_ups
from lab.workloads.known_counts import hash_counts
from lab.workloads.plan import Departure, ScheduledMove
from lab.workloads.rate import SECOND, Rate
from lab.workloads.recorder import Recorder
from lab.workloads.report import DeliveredEpoch, ObservedMigration
from lab.workloads.runner import Runner, run
from tests.support.imagined_runs import run_of


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_workload_moves_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    said: list[str] = []
    move = ScheduledMove(2.0, 4, "all-at-once")
    wanted = replace(run_of(seconds=6.0, warm_up=0.0, moves=(move,)), workload=hash_counts(10_000))
    report = run(spark, wanted, tmp_path, said.append)
    assert report.epochs[-1].last == wanted.rate.until(6 * SECOND)
    (migration,) = report.migrations
    assert migration.outcome == "done"
    assert migration.ended is not None
    assert 2.0 <= migration.asked <= migration.ended
    assert sum(epoch.moved.get("ids", 0) for epoch in report.epochs) > 0
    assert 0 < max(epoch.share for epoch in report.epochs) < 1
    assert migration.share == pytest.approx(0.5, abs=0.1)
    assert report.histograms()["all"].total == report.epochs[-1].last
    assert min(mib for _, mib in report.memory) > 100
    assert report.usage is not None
    assert report.usage.seconds > 0
    assert report.usage.kept_bytes == 0  # there is one executor
    assert any("to 4 workers, all-at-once" in line for line in said)
    assert json.loads(json.dumps(report.to_json()))["about"]["workload"] == "hash-count"
    rows = spark.read.parquet(str(tmp_path / "output")).groupBy("id").max("n").collect()
    assert sum(row[1] - 1 for row in rows) == report.epochs[-1].last  # each was known once


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_load_of_a_workload_is_balanced_while_it_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Three of four words, and three quarters of all that come, are of the same worker."""
    skewed = Workload("look-ups", NUMBERED, partial(look_ups, words=5))
    move = ScheduledMove.parse("at 2s rebalance with all-at-once")
    wanted = replace(run_of(rate=Rate.parse("20"), seconds=5.0, warm_up=0.0), workload=skewed)
    report = run(spark, replace(wanted, moves=(move,), bins=64), tmp_path, lambda line: None)
    (migration,) = report.migrations
    assert (migration.operator, migration.outcome) == ("words", "done")
    checkpoint = tmp_path / "checkpoint"
    load = Measured.of(History(checkpoint), "words", 64).load
    before, after = Routing.even(64, 2), Overview.of(checkpoint).operator("words").routing
    heaviest = [np.bincount(routing.owners, load, 2).max() for routing in (before, after)]
    assert heaviest[1] < heaviest[0]
    rows = spark.read.parquet(str(tmp_path / "output")).groupBy("word").max("n").collect()
    assert sum(row[1] for row in rows) == WORDS_A_LINE * report.epochs[-1].last


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_what_is_sparks_own_business_runs_as_well(spark: SparkSession, tmp_path: Path) -> None:
    report = run(spark, run_of("q1", seconds=2.0, warm_up=0.0), tmp_path, lambda line: None)
    assert report.epochs[-1].last == 2001
    bids = spark.read.parquet(str(tmp_path / "output")).count()
    assert bids == sum(event % 50 > 3 for event in range(2001))


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_workload_with_several_results_leaves_each_in_its_directory(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each winning bid is a row of query 9, and the two behind it give a row for each."""
    run(spark, run_of("q4-q6-q9", seconds=2.0, warm_up=0.0), tmp_path, lambda line: None)
    found = {
        name: spark.read.parquet(str(tmp_path / "output" / name)).count()
        for name in ("q4", "q6", "q9")
    }
    assert found["q9"] > 0
    assert set(found.values()) == {found["q9"]}


@pytest.mark.spark
def test_where_there_is_no_state_none_moves(spark: SparkSession, tmp_path: Path) -> None:
    wanted = run_of("q1", seconds=2.0, warm_up=0.0, moves=(ScheduledMove(1.0, 4),))
    with pytest.raises(ConfigError, match="q1 has no state that could move"):
        run(spark, wanted, tmp_path, lambda line: None)


def test_an_executor_has_left_with_the_first_epoch_without_it(tmp_path: Path) -> None:
    wanted = run_of()
    recorder = Recorder(wanted.report(), wanted.events, tmp_path, lambda line: None)
    recorder.report.epochs = [
        DeliveredEpoch(n, n * 1000, (n + 1) * 1000, n + 1.5) for n in range(4)
    ]
    runner = Runner(wanted, recorder, tmp_path)
    runner.homes = {0: ("b", "b"), 1: ("a", "b"), 2: ("a", "b"), 3: ("b", "b")}
    asked = ObservedMigration("ids", "executor killed", 8, 0.5, 2.0)
    found = runner.departed(asked, "a")
    assert (found.ended, found.outcome) == (4.5, "done")
    assert runner.departed(asked, "b").outcome == "open"


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_no_executor_leaves_where_there_is_none(spark: SparkSession, tmp_path: Path) -> None:
    wanted = run_of(seconds=3.0, warm_up=0.0, moves=(Departure(1.0),))
    with pytest.raises(ConfigError, match="only where workers are pinned to several"):
        run(spark, wanted, tmp_path, lambda line: None)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_command_leaves_a_report(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the tests' Spark, since a process has one only."""
    monkeypatch.setattr("godwit.spark.session.session", lambda master: nullcontext(spark))
    command = ["run", "key-count", "--rate", "1k", "--for", "6s", "--warm-up", "0s", "--report"]
    move = "at 2s to 4 workers with all-at-once"
    assert main([*command, str(tmp_path), "--migrate", move]) == 0
    said = capsys.readouterr()
    assert "all       6,001" in said.out
    assert "The move of ids (2,048 bins, " in said.out
    assert "by all-at-once is done and took" in said.out
    assert {str(path) for path in tmp_path.iterdir()} < set(said.err.splitlines())
    numbers = json.loads((tmp_path / "key-count.json").read_text())
    report = numbers["reports"]["key-count"]
    assert report["about"]["workers"] == 2
    assert report["epochs"][-1]["last"] == report["latency"]["all"]["events"] == 6001
    assert [(one["operator"], one["outcome"]) for one in report["migrations"]] == [("ids", "done")]
    page = (tmp_path / "key-count.html").read_text()
    assert workload("key-count").about in page
    for told in (
        "<svg",
        "What each migration cost",
        "<td>6,001</td>",
        numbers["environment"]["commit"],
    ):
        assert told in page
    assert "src=" not in page  # it needs nothing but itself
    assert len(list(tmp_path.glob("key-count-*.png"))) == page.count("<svg")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_an_interrupted_run_leaves_what_was_seen_until_then(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C comes with the third epoch."""

    def interrupt(line: str) -> None:
        if "epoch 2," in line:
            interrupt_main()

    monkeypatch.setattr("godwit.spark.session.session", lambda master: nullcontext(spark))
    monkeypatch.setattr("lab.run_command.note", interrupt)
    command = ["run", "key-count", "--rate", "1k", "--for", "600s", "--warm-up", "0s"]
    assert main([*command, "--report", str(tmp_path)]) == 130
    report = json.loads((tmp_path / "key-count.json").read_text())["reports"]["key-count"]
    assert report["ending"] == "it was interrupted"
    assert 0 < report["epochs"][-1]["last"] < 600_000
    assert "The run ended early: it was interrupted." in (tmp_path / "key-count.html").read_text()
    assert f"{report['epochs'][-1]['last']:,} events were delivered" in capsys.readouterr().out


def test_a_run_is_never_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither before its first epoch nor after its last."""
    monkeypatch.setattr("lab.workloads.recorder.SILENCE", 0.01)
    said: Queue[str] = Queue()
    recorder = Recorder(run_of().report(), 1000, tmp_path, said.put)
    with recorder.never_silent():
        assert "waiting for the first epoch" in said.get(timeout=60)
        recorder.wait_for(lambda: "3 open migrations")
        while "waiting for 3 open migrations" not in said.get(timeout=60):
            pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a workload"),
        (["q99"], "there is no workload 'q99'"),
        (["q5", "--rate", "fast"], "'fast' is no rate"),
        (["q5", "--for", "soon"], "'soon' is no duration"),
        (["q5", "--for", "5 s"], "leaves nothing to measure"),
        (["q5", "--workers", "0"], "workers must be"),
        (["q5", "--cores", "x"], "--cores is a number from 1 on"),
        (["q5", "--migrate", "to 4"], "'to 4' is no move"),
        (["q5", "--migrate", "at 90s to 4 workers"], "after the end of the run"),
        (["q5", "--migrate", "at 20s to 4 workers with luck"], "luck"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_all_workloads_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--list"]) == 0
    told = capsys.readouterr().out
    for name, one in WORKLOADS.items():
        assert name in told
        assert one.about in told


def test_a_move_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no move"):
        ScheduledMove.parse("to 4 workers at 20s")
