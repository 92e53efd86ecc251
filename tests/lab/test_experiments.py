"""Experiments turn runs into pages; the runs themselves are Spark's matter and take minutes."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.inspect.targets import PLANNERS
from godwit.migration.strategies import left
from godwit.model.routing import Routing
from lab.__main__ import main
from lab.experiments.catalog import EXPERIMENTS
from lab.experiments.costs import Month
from lab.experiments.lab import Lab, overview, quarters
from lab.experiments.page import Findings, Page, Section
from lab.experiments.peers import contenders
from lab.experiments.response import response
from lab.experiments.skew import EPOCH, LINES, skew
from lab.experiments.stored import Stored, redraw
from lab.workloads.rate import Rate
from tests.support.imagined_runs import Imagined, imagined, run_of
from tests.support.pages import check_page

RUN_SPARK = {"recovery"}  # which kills executors
PLAN = {"tau", "tasks", "discount", "planning", "projection"}  # which run no query


@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() - RUN_SPARK - PLAN))
def test_an_experiment_leaves_a_page_that_can_be_drawn_anew(tmp_path: Path, name: str) -> None:
    said: list[str] = []
    findings = EXPERIMENTS[name].run(Imagined(True, said.append))
    assert len(said) == len(findings.reports) >= 1
    check_page(tmp_path, name, findings)
    shown = [section.title for section in findings.sections]
    assert shown[-2:] == ["Memory of all processes", "Configuration"]
    reports = json.loads((tmp_path / f"{name}.json").read_text())["reports"]
    again = EXPERIMENTS[name].run(Stored(True, said.append, reports))
    assert [section.table for section in again.sections] == [s.table for s in findings.sections]
    assert again.numbers == findings.numbers


def test_a_page_that_is_drawn_anew_remains_as_it_was(tmp_path: Path) -> None:
    findings = EXPERIMENTS["failure"].run(Imagined(True, lambda line: None))
    one = EXPERIMENTS["failure"]
    Page(one.name, one.question, findings, {"commit": "abc"}).write(tmp_path)
    before = (tmp_path / "failure.json").read_text()
    assert tmp_path / "failure-1.png" in redraw(tmp_path, "failure")
    assert (tmp_path / "failure.json").read_text() == before


@pytest.mark.parametrize("name", sorted(PLAN))
def test_an_experiment_without_queries_leaves_a_page(tmp_path: Path, name: str) -> None:
    said: list[str] = []
    findings = EXPERIMENTS[name].run(Lab(False, said.append))
    assert len(said) > 1
    check_page(tmp_path, name, findings)
    numbers = json.loads((tmp_path / f"{name}.json").read_text())
    assert numbers.keys() > {"question", "environment", "reports"}


def test_a_month_counts_the_state_that_changes_node() -> None:
    month = Month.of(8, migrations=3)
    assert len(month.nodes) == 4
    assert month.moved(lambda owners, nodes: owners) == 0
    assert month.moved(lambda owners, nodes: owners + 1) == pytest.approx(100)


def test_epochs_are_compared_before_and_after_the_load_is_balanced() -> None:
    """Imagined ones follow each other at equal distances, but not while state moves."""
    findings = skew(Imagined(True, lambda line: None))
    table = findings.sections[1].table
    assert table is not None
    assert [row[:2] for row in table.rows][2:] == [
        ["rebalanced", "before"],
        ["rebalanced", "after"],
    ]
    assert [row[3] for row in table.rows] == [f"{EPOCH / (LINES + 1):.2f}"] * 4
    assert table.rows[0][5] == f"{LINES + 1}"
    (migration,) = findings.reports["rebalanced"].migrations
    assert migration.strategy == "paced"


def test_response_times_are_told_by_window_and_planner() -> None:
    findings = response(Imagined(False, lambda line: None))
    table = findings.sections[1].table
    assert table is not None
    assert [row[1] for row in table.rows] == list(PLANNERS)
    assert all(float(row[3]) > float(row[2]) > 0 for row in table.rows)


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
