"""Experiments turn runs into pages; the runs themselves are Spark's matter and take minutes.

What tables and files say is compared with what the events of the runs say, one by one.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.cli.output import size
from godwit.inspect.targets import PLANNERS
from godwit.migration.strategies import left
from godwit.model.routing import Routing
from lab.__main__ import main
from lab.experiments.catalog import EXPERIMENTS
from lab.experiments.costs import Month
from lab.experiments.laboratory import Lab
from lab.experiments.moves import quarters
from lab.experiments.peers import contenders
from lab.experiments.redrawing import RecordedLab
from lab.tools.page import Findings, Page, Section
from lab.tools.tables import ResultTable
from lab.tools.units import seconds
from lab.workloads.overview import overview
from lab.workloads.rate import Rate
from tests.support.imagined_runs import Imagined, imagined, run_of
from tests.support.lab_pages import check_page, stored
from tests.support.run_truth import EventTruth, throughput

RUN_SPARK = {"recovery"}  # which kills executors
PLAN = {"tau", "tasks", "discount", "planning", "projection"}  # which run no query
SLOT = 0.25  # seconds, by which latencies over time are told


def table(findings: Findings, title: str) -> ResultTable:
    (found,) = (section.table for section in findings.sections if section.title == title)
    assert found is not None
    return found


@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() - RUN_SPARK - PLAN))
def test_an_experiment_says_what_its_events_say(name: str) -> None:
    said: list[str] = []
    findings = EXPERIMENTS[name].run(Imagined(False, said.append))
    assert len(said) == len(findings.reports) >= 1
    reports = stored(name, findings)["reports"]
    for report in reports.values():
        check_latencies(report)
        check_migrations(report)
    shown = [section.title for section in findings.sections]
    assert shown[-2:] == ["Memory of all processes", "Configuration"]
    if "Latencies" in shown:
        check_tables(findings, reports)
    again = EXPERIMENTS[name].run(RecordedLab(False, said.append, reports))
    assert [section.table for section in again.sections] == [s.table for s in findings.sections]
    assert again.numbers == findings.numbers


def check_latencies(report: dict[str, Any]) -> None:
    """Percentiles are at most a bucket above the true ones; an epoch is looked at in samples."""
    timed = EventTruth.of(report).timed
    found = report["latency"]["all"]
    assert found["events"] == len(timed)
    assert found["max"] == pytest.approx(timed.max(), abs=1e-5)
    percents = (50, 99, 99.9)
    for percent, true in zip(percents, np.percentile(timed, percents), strict=True):
        assert 0.99 * true <= found[f"p{percent:g}"] <= 1.01 * true * (1 + 1 / 16)
    kinds = [report["latency"].get(kind, {"events": 0}) for kind in ("steady", "moving")]
    assert sum(kind["events"] for kind in kinds) == len(timed)


def check_migrations(report: dict[str, Any]) -> None:
    """The slowest event that a migration is blamed for waited while it went on, or after it and
    before the next one."""
    truth = EventTruth.of(report)
    asked = sorted(one["asked"] for one in report["migrations"])
    for one, told in zip(report["migrations"], report["disturbances"], strict=True):
        after = min((at for at in asked if at > one["asked"]), default=np.inf)
        least = truth.between(one["asked"] + SLOT, one["ended"]).max()
        most = truth.between(one["asked"], after + SLOT).max()
        assert least - 1e-5 <= told["greatest"] <= most + 1e-5
        assert told["duration"] == one["ended"] - one["asked"]
        assert told["fetched"] == sum(
            epoch["fetched"].get(one["operator"], 0)
            for epoch in report["epochs"]
            if one["asked"] <= epoch["delivered"] <= one["ended"]
        )


def check_tables(findings: Findings, reports: dict[str, Any]) -> None:
    """What people read is what programs read."""
    latencies = table(findings, "Latencies").rows
    shown = dict.fromkeys(row[0] for row in latencies)
    assert latencies == [
        [label, kind, f"{one['events']:,}", *(seconds(one[p]) for p in ("p50", "p99", "p99.9"))]
        for label in shown
        for kind, one in reports[label]["latency"].items()
    ]
    moved = [label for label in shown if reports[label]["migrations"]]
    costs = table(findings, "What each migration cost").rows if moved else []
    assert [[row[0], row[1], row[5], row[6], row[9], row[10]] for row in costs] == [
        [
            label,
            one["operator"],
            seconds(one["greatest"]),
            seconds(one["duration"]),
            f"{one['share']:.0%}",
            size(one["fetched"]),
        ]
        for label in moved
        for one in reports[label]["disturbances"]
    ]


@pytest.mark.parametrize("name", ["bins", "peers"])  # one for each kind of picture of runs
def test_an_experiment_leaves_a_page(tmp_path: Path, name: str) -> None:
    check_page(tmp_path, name, EXPERIMENTS[name].run(Imagined(False, lambda line: None)))


def test_a_page_that_is_drawn_anew_remains_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a rate that varies, which is drawn as well."""
    one = EXPERIMENTS["varying"]
    findings = one.run(Imagined(True, lambda line: None))
    check_page(tmp_path, "varying", findings)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["experiment", "varying", "--redraw", "--output", str(tmp_path)]) == 0
    assert {*map(Path, capsys.readouterr().err.splitlines())} == before.keys()
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", sorted(PLAN))
def test_an_experiment_without_queries_tells_the_same_to_people_and_programs(
    tmp_path: Path, name: str
) -> None:
    said: list[str] = []
    findings = EXPERIMENTS[name].run(Lab(False, said.append))
    assert len(said) > 1
    numbers = stored(name, findings)
    found = next(section.table for section in findings.sections if section.table)
    if "percent_moved" in numbers:
        by_planner = {planner: dict(points) for planner, points in numbers["percent_moved"].items()}
        assert found.header[1:] == list(by_planner)
        for x, *cells in found.rows:
            told = [points.get(float(x)) for points in by_planner.values()]
            assert cells == ["-" if one is None else f"{one:.2f}" for one in told]
    if name == "planning":  # one for each kind of picture without runs
        check_page(tmp_path, name, findings)
        assert found.rows == [
            [label, f"{bins:,}", f"{taken:.2f}"]
            for label, points in numbers["milliseconds"].items()
            for bins, taken in points
        ]


def test_a_month_counts_the_state_that_changes_node() -> None:
    month = Month.of(8, migrations=3)
    assert len(month.nodes) == 4
    assert month.moved(lambda owners, nodes: owners) == 0
    assert month.moved(lambda owners, nodes: owners + 1) == pytest.approx(100)


def test_epochs_are_compared_before_and_after_the_load_is_balanced() -> None:
    findings = EXPERIMENTS["skew"].run(Imagined(True, lambda line: None))
    reports = stored("skew", findings)["reports"]
    (move,) = reports["rebalanced"]["migrations"]
    warm_up = reports["rebalanced"]["warm_up"]
    expected = []
    for label in ("as hashed", "rebalanced"):
        for part, begin, end in (("before", warm_up, move["asked"]), ("after", move["ended"], 1e9)):
            lengths, lines = [], 0
            for one, other in pairwise(reports[label]["epochs"]):
                if one["delivered"] >= begin and other["delivered"] <= end:
                    lengths.append(other["delivered"] - one["delivered"])
                    lines += other["last"] - other["first"]
            told = [f"{np.median(lengths):.2f}", f"{max(lengths):.2f}"]
            rate = f"{lines / sum(lengths):.0f}"
            expected.append([label, part, f"{len(lengths)}", *told, rate])
    shown = next(section.table for section in findings.sections if section.table)
    assert shown.rows == expected


def test_response_times_are_told_by_window_and_planner() -> None:
    findings = EXPERIMENTS["response"].run(Imagined(False, lambda line: None))
    reports = stored("response", findings)["reports"]
    rows = table(findings, "By planner").rows
    assert [row[1] for row in rows] == list(PLANNERS)
    for window, planner, before, after, moved in rows:
        report = reports[f"{window}, {planner}"]
        (move,) = report["migrations"]
        truth = EventTruth.of(report)
        asked = move["asked"]
        assert float(before) == pytest.approx(truth.mean_of_medians(8.0, asked), abs=0.006)
        assert float(after) == pytest.approx(truth.mean_of_medians(asked, asked + 8), abs=0.006)
        assert moved == f"{move['share']:.0%}"


def test_each_peer_has_its_better_size_and_its_median_turn() -> None:
    findings = EXPERIMENTS["peers"].run(Imagined(True, lambda line: None))
    numbers = stored("peers", findings)
    runs: dict[tuple[str, str], dict[str, list[float]]] = {}
    for label, report in numbers["reports"].items():
        case, size, _ = label.rsplit(", ", 2)
        question, name = case.split(", ", 1)
        runs.setdefault((question, name), {}).setdefault(size, []).append(throughput(report))
    for (question, name), by_size in runs.items():
        best = max(by_size, key=lambda size: by_size[size][0])
        turns = by_size[best]
        assert [len(some) for some in by_size.values()].count(1) == len(by_size) - 1
        expected = [sorted(turns)[1], min(turns), max(turns)]
        assert numbers["events_a_second"][question][name] == pytest.approx(expected)
        (row,) = (row for row in table(findings, "By question").rows if row[:2] == [question, name])
        assert f"{row[4]} an epoch" == best
        assert row[2] == "{:,.0f} ({:,.0f}-{:,.0f})".format(*expected)


def test_the_memory_of_a_run_is_told_before_and_after_its_state_moves() -> None:
    findings = EXPERIMENTS["memory"].run(Imagined(False, lambda line: None))
    for label, steady, moving in table(findings, "Greatest, MiB").rows:
        report = stored("memory", findings)["reports"][label]
        asked = report["migrations"][0]["asked"]
        sides: dict[bool, list[float]] = {False: [], True: []}
        for at, mib in report["memory"]:
            if at >= report["warm_up"]:
                sides[at >= asked].append(mib)
        assert [steady, moving] == [f"{max(sides[side]):,.0f}" for side in (False, True)]


def test_a_page_escapes_what_it_is_told() -> None:
    findings = Findings([Section("<i>", "a > b")], {})
    text = Page("a<b", "x & y?", findings, {"commit": "<none>"}).to_html()
    assert "<h1>a&lt;b</h1>" in text
    assert "<i>" not in text
    assert "&lt;none&gt;" in text


def test_an_overview_without_migrations_tells_of_none() -> None:
    reports = {"steady": imagined(run_of(rate=Rate.parse("100")))}
    titles = [section.title for section in overview(reports)]
    assert "What each migration cost" not in titles
    assert titles[:2] == ["Latency over time", "All latencies"]


@given(st.integers(3, 10))
def test_four_quarters_move_every_bin_once(bits: int) -> None:
    before = Routing.even(1 << bits, 4)
    moved = np.zeros(1 << bits, np.int64)
    for number, target in enumerate(quarters(1 << bits)):
        bins = left(before, target)
        assert len(bins) == (1 << bits) // 4
        moved[bins] += 1
        counts = np.bincount(target.owners, minlength=4)
        if number % 2:
            assert counts.tolist() == [(1 << bits) // 4] * 4
        before = target
    assert moved.tolist() == [1] * (1 << bits)


def test_godwit_comes_first_in_each_question() -> None:
    seen: set[str] = set()
    for one in contenders(100):
        assert one.question in seen or one.name == "Godwit"
        seen.add(one.question)
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name an experiment"),
        (["luck"], "there is no experiment 'luck'"),
        (["bins", "--output", "/dev/null"], "/dev/null is no directory"),
        (["bins", "--output", "/dev/null/x"], "/dev/null is no directory"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_all_experiments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "--list"]) == 0
    told = capsys.readouterr().out
    for name, one in EXPERIMENTS.items():
        assert name in told
        assert one.question in told
    of_rhino = ("recovery", "replication", "failure", "scaling", "balance", "varying")
    assert sum(EXPERIMENTS[name].minutes[1] for name in EXPERIMENTS.keys() - {*of_rhino}) <= 75
