"""A workload runs live, moves on the way, and its latencies are those of an open loop."""

import html
import json
from _thread import interrupt_main
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from godwit.errors import ConfigError
from godwit.inspect.overview import Overview
from godwit.inspect.targets import Measured
from godwit.log.history import History
from godwit.model.routing import Routing
from lab.__main__ import main
from lab.run_command import tell
from lab.tools.page import Findings, Page, Section
from lab.tools.plots import ticks
from lab.tools.tables import ResultTable
from lab.tools.units import seconds
from lab.workloads.catalog import NUMBERED, WORKLOADS, Workload, workload
from lab.workloads.counts import WORDS_A_LINE, look_ups
from lab.workloads.known_counts import hash_counts
from lab.workloads.overview import disturbance_table, latency_table, overview, sentences
from lab.workloads.plan import Departure, ScheduledMove
from lab.workloads.rate import SECOND, Rate
from lab.workloads.recorder import Recorder
from lab.workloads.report import DeliveredEpoch, ObservedMigration, RunReport
from lab.workloads.runner import Runner, run
from tests.support.imagined_runs import imagined, run_of


def test_latency_is_counted_from_the_intended_time() -> None:
    """Two epochs of 1,000 events each; the second is 2 s late, and all behind it wait with it."""
    report = RunReport(Rate.parse("1k"), warm_up=0.0)
    report.epochs = [
        DeliveredEpoch(0, 0, 1000, 1.5),
        DeliveredEpoch(1, 1000, 2000, 4.0, {"ids": 3}, 0.25),
    ]
    report.migrations = [ObservedMigration("ids", "paced", 3, 0.5, 2.0, 4.0, "done")]
    found = report.summary()
    assert found["all"]["max"] == 3.0
    assert (found["moved"]["events"], found["unmoved"]["events"]) == (250, 750)
    assert found["steady"]["max"] == pytest.approx(1.5)
    assert found["moving"]["max"] == pytest.approx(3.0)
    assert found["moving"]["p50"] == pytest.approx(2.5, rel=1 / 16)
    line = report.timeline()
    assert line.begin.tolist() == np.arange(0, 2, 0.25).tolist()
    assert line.greatest[4] == 3.0


def test_a_window_is_closed_by_a_record_of_the_epoch_before() -> None:
    """What the first epoch's events close comes with the second. What the last ones' do comes with
    the end of the run, an epoch without events, and is not measured."""
    epochs = [
        DeliveredEpoch(0, 0, 1000, 1.5),
        DeliveredEpoch(1, 1000, 2000, 2.75),
        DeliveredEpoch(2, 2000, 2000, 9.0),
    ]
    own, closing = (
        RunReport(Rate.parse("1k"), 0.0, epochs=epochs, closing=some) for some in (False, True)
    )
    assert own.timeline().greatest[[0, 4]].tolist() == [1.5, 1.75]
    assert closing.timeline().greatest.tolist() == [2.75, 2.5, 2.25, 2.0]
    assert [one.summary()["all"]["max"] for one in (own, closing)] == [1.75, 2.75]
    assert [one.summary()["all"]["events"] for one in (own, closing)] == [2000, 1000]
    assert own.throughput() == closing.throughput() == 2000 / 2.75


def test_a_disturbance_is_told_as_the_papers_tell_it() -> None:
    """Ten steady epochs of a second, and two while state moves, the second of which is late."""
    report = RunReport(Rate.parse("1k"), warm_up=0.0)
    report.epochs = [DeliveredEpoch(n, n * 1000, (n + 1) * 1000, n + 1.5) for n in range(10)]
    report.epochs += [DeliveredEpoch(10, 10_000, 11_000, 11.5, {"ids": 1}, 0.5, {"ids": 100})]
    report.epochs += [
        DeliveredEpoch(11, 11_000, 12_000, 19.0, {"ids": 2}, 0.5, {"ids": 200, "others": 9})
    ]
    report.epochs += [DeliveredEpoch(12, 12_000, 13_000, 19.5, {}, 0.0, {"ids": 7})]
    report.migrations = [ObservedMigration("ids", "fluid", 3, 0.25, 11.0, 19.0, "done")]
    (found,) = report.disturbances()
    assert (found.strategy, found.share, found.fetched) == ("fluid", 0.25, 300)
    assert (found.greatest, found.duration) == (8.0, 8.0)
    # A second of events takes up four slots, whose greatest latencies are 1.5, 1.25, 1 and 0.75 s.
    assert found.jitter == pytest.approx(8.0 - 1.125)
    assert found.disruption == 2.0


def test_no_migration_is_charged_for_events_of_the_warm_up() -> None:
    """They wait for 6 s, beyond the moment at which state moves, and so do some of the first epoch
    after the warm-up that began in it; the page says one thing in text and tables."""
    report = RunReport(Rate.parse("1k"), warm_up=3.0)
    report.epochs = [DeliveredEpoch(0, 0, 2500, 6.0), DeliveredEpoch(1, 2500, 3500, 7.0)]
    report.epochs += [DeliveredEpoch(n, n * 1000 - 500, n * 1000 + 500, n + 4.0) for n in (4, 5, 6)]
    report.migrations = [ObservedMigration("ids", "paced", 3, 0.5, 5.0, 8.0, "done")]
    (found,) = report.disturbances()
    assert found.greatest == report.summary()["all"]["max"] == 4.5
    assert report.slowest() == (3.5, 4.5, True)
    assert "4.50 s" in disturbance_table({"run": report}).rows[0]
    (unmeasured,) = replace(report, warm_up=60.0).disturbances()
    assert unmeasured.greatest == 0.0
    assert disturbance_table({"run": replace(report, warm_up=60.0)}).rows[0][5] == "-"


def test_numbers_of_a_page_are_to_the_right_and_words_to_the_left() -> None:
    table = ResultTable(["run", "strategy", "took"], [["1", "paced:20%", "1 s"], ["2", "-", "-"]])
    page = Page("run", "?", Findings([Section("Costs", table=table)]), {}).to_html()
    assert '<th>run</th><th class="text">strategy</th><th>took</th>' in page
    assert '<td>1</td><td class="text">paced:20%</td><td>1 s</td>' in page


def test_what_a_migration_leaves_behind_is_its_own() -> None:
    """The backlog of a migration delays events that come when it is over."""
    report = RunReport(Rate.parse("1k"), warm_up=0.0)
    report.epochs = [DeliveredEpoch(n, n * 1000, (n + 1) * 1000, n + 1.5) for n in range(10)]
    report.epochs += [DeliveredEpoch(10, 10_000, 11_000, 14.0, {"ids": 1})]
    report.epochs += [DeliveredEpoch(n, n * 1000, (n + 1) * 1000, n + 3.5) for n in (11, 12)]
    report.epochs += [DeliveredEpoch(n, n * 1000, (n + 1) * 1000, n + 1.5) for n in range(13, 20)]
    report.migrations = [ObservedMigration("ids", "all-at-once", 1, 0.25, 10.6, 14.0, "done")]
    assert report.summary()["steady"]["max"] == 1.5
    assert report.summary()["moving"]["max"] == 4.0


def test_without_a_steady_state_nothing_is_compared_with_it() -> None:
    report = RunReport(Rate.parse("1k"), warm_up=0.0)
    report.epochs = [DeliveredEpoch(0, 0, 5000, 6.0, {"ids": 1})]
    report.migrations = [ObservedMigration("ids", "paced", 1, 0.25, 1.0, 6.0, "done")]
    (found,) = report.disturbances()
    assert (found.greatest, found.disruption, found.jitter) == (6.0, None, None)
    assert "steady" not in report.summary()
    assert "-" in disturbance_table({"run": report}).rows[0]


def test_what_a_second_brings() -> None:
    report = RunReport(Rate.parse("1k"), warm_up=1.0)
    report.epochs = [DeliveredEpoch(n, n * 1000, (n + 1) * 1000, 2.0 * n) for n in range(4)]
    assert report.throughput() == 500.0


def test_the_warm_up_does_not_count() -> None:
    report = RunReport(Rate.parse("1k"), warm_up=1.0)
    report.epochs = [
        DeliveredEpoch(0, 0, 500, 9.0),
        DeliveredEpoch(1, 500, 1500, 9.0),
        DeliveredEpoch(2, 1500, 2000, 2.0),
    ]
    assert report.histograms()["all"].total == 500


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


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(RunReport(Rate.parse("1k"), 0.0, ending="it was interrupted"), id="nothing"),
        pytest.param(
            RunReport(Rate.parse("1k"), 5.0, epochs=[DeliveredEpoch(0, 0, 1000, 1.5)]),
            id="nothing after the warm-up",
        ),
        pytest.param(
            RunReport(
                Rate.parse("1k"),
                0.0,
                epochs=[DeliveredEpoch(0, 0, 1000, 1.5, {"ids": 1})],
                migrations=[ObservedMigration("ids", "paced", 3, 0.5, 0.5)],
            ),
            id="nothing steady, and a migration without an end",
        ),
    ],
)
def test_whatever_was_seen_is_on_the_page(
    seen: RunReport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(run_of(), seen, tmp_path)
    page = (tmp_path / "key-count.html").read_text()
    assert html.escape(sentences(seen)) in page
    assert "<td>key-count</td>" not in page.replace(' class="text"', "")
    assert sentences(seen) in capsys.readouterr().out
    reports = json.loads((tmp_path / "key-count.json").read_text())["reports"]
    assert RunReport.of_json(reports["key-count"], closing=False) == seen


def test_a_sentence_says_what_was_seen() -> None:
    report = imagined(run_of(moves=(ScheduledMove(5.0, 4),)))
    found = report.summary()["all"]
    told = sentences(report)
    assert (
        f"{report.epochs[-1].last:,} events were delivered in {len(report.epochs)} epochs" in told
    )
    assert f"Of {found['events']:,} measured ones, half were visible within" in told
    assert f"the slowest took {seconds(found['max'])}, from" in told
    assert "while state moved" in told
    assert "The move of ids (16 bins, 25% of its state) by paced is done and took 2.00 s." in told
    unmeasured = replace(report, warm_up=60.0)
    assert "No epoch began after the warm-up" in sentences(unmeasured)
    report.migrations = [replace(report.migrations[0], ended=None, outcome="open")]
    assert "by paced, asked for at 5.0 s, is open." in sentences(report)


def test_a_page_of_one_migration_has_no_picture_of_one_dot_and_one_maximum() -> None:
    one, three = (
        imagined(run_of(seconds=30.0, moves=tuple(ScheduledMove(at, 4) for at in moments)))
        for moments in ([5.0], [5.0, 12.0, 19.0])
    )
    titles = [[section.title for section in overview({"run": some})] for some in (one, three)]
    assert "Slowest event against duration" not in titles[0]
    assert "Slowest event against duration" in titles[1]
    assert latency_table({"run": one}).header == ["", "events", "number", "p50", "p99", "p99.9"]


@given(st.floats(1e-4, 1e6), st.floats(1.001, 1e6), st.floats(2.0, 30.0))
def test_numbers_of_an_axis_never_overlap(first: float, ratio: float, most: float) -> None:
    shown = ticks(first, first * ratio, most)
    assert shown
    assert all(0.9 * first <= number <= 1.1 * first * ratio for number in shown)
    distances = np.diff(np.log(shown)) / np.log(ratio)
    assert (distances >= 1 / (most + 1)).all()


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
