"""`godwit project`: costs of migrations to come are learnt, computed, gone on with and used."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from godwit.cli import main
from godwit.cli import project as command
from godwit.planner.chain import Chain
from godwit.planner.iteration import solve_in_process
from godwit.planner.projected import Projected
from tests.support.command_line import Running
from tests.support.simulated import content, simulate, words

Output = pytest.CaptureFixture[str]


@pytest.fixture
def query(tmp_path: Path) -> Running:
    return start(tmp_path / "checkpoint")


def start(checkpoint: Path, bins: int = 16) -> Running:
    sim = simulate(checkpoint, workers=2, bins=bins)
    sim.feed(words("a", "b", "c", "a"))
    return Running(checkpoint, sim.driver)


def test_migrations_are_planned_with_those_to_come_in_mind(
    query: Running, tmp_path: Path, capsys: Output
) -> None:
    costs = tmp_path / "costs"
    projecting = ["project", "--out", str(costs), "--tau", "1"]
    assert query.command(*projecting) == 2
    assert "give --series FILE" in capsys.readouterr().err
    for workers in ("4", "2"):
        how = ["--strategy", "all-at-once", "--watch"]
        assert query.command("apply", "--workers", workers, *how) == 0
    assert query.command(*projecting) == 0
    assert "runs of bins, for 2, 4 workers" in capsys.readouterr().err
    assert Projected.load(costs).problem.chain == Chain.learn([2, 4, 2])
    planned = ["plan", "--workers", "4", "--planner", "markov"]
    assert query.command(*planned) == 2
    assert "needs projected costs" in capsys.readouterr().err
    assert query.command(*planned, "--projected", str(costs), "--explain") == 0
    assert "2 -> 4 workers" in capsys.readouterr().out
    assert query.command("plan", "--workers", "4", "--projected", str(costs)) == 2
    assert "'even' uses no projected costs" in capsys.readouterr().err
    assert query.command(*projecting) == 2
    assert "holds projected costs already" in capsys.readouterr().err


def interrupted(solve: Callable[[int], int], blocks: Sequence[int]) -> Iterator[int]:
    """As by Ctrl-C when the first sweep is done."""
    yield from solve_in_process(solve, blocks)
    raise KeyboardInterrupt


@pytest.fixture
def begun(
    query: Running, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The command that was interrupted."""
    (tmp_path / "series.txt").write_text("2 3\n3 2 5")
    given = ["project", str(query.checkpoint), "--out", str(tmp_path / "costs"), "--tau", "2"]
    given += ["--series", str(tmp_path / "series.txt")]
    with monkeypatch.context() as patched:
        patched.setattr(command, "solve_in_process", interrupted)
        assert main(given) == 130
    capsys.readouterr()
    return given


def test_the_same_goes_on_with_the_load_of_the_beginning(
    begun: list[str], query: Running, tmp_path: Path, capsys: Output
) -> None:
    problem = (tmp_path / "costs/problem.json").read_text()
    query.epoch()  # without records, by which the load moves on
    assert main(begun) == 0
    told = capsys.readouterr().err
    assert "costs: goes on with what was begun\n" in told
    assert "for 2, 3, 5 workers" in told
    assert (tmp_path / "costs/problem.json").read_text() == problem


OTHERS = {
    "tau": (["--tau", "2.5"], "tau 2.0,"),
    "gamma": (["--gamma", "0.5"], "gamma 0.8,"),
    "partitionings": (["--partitionings", "30"], "partitionings 20000,"),
    "series": (["--series", "{}/other.txt"], r"chain \(of 2, 3, 5 workers\),"),
    "capacity": (["--capacity", "2"], r"chain \(of 2, 3, 5 workers\),"),
    "two": (["--tau", "3", "--gamma", "0"], "tau 2.0, gamma 0.8,"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_something_else_is_refused_and_nothing_changes(
    begun: list[str], tmp_path: Path, capsys: Output, case: str
) -> None:
    (tmp_path / "other.txt").write_text("2 3 5 3")
    options, message = OTHERS[case]
    before = content(tmp_path / "costs")
    assert main([*begun, *[option.format(tmp_path) for option in options]]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(f"costs was begun with {message} .*use another --out, or delete it$", line)
    assert content(tmp_path / "costs") == before


@pytest.mark.parametrize("bins", [16, 32])
def test_another_checkpoint_is_refused(
    begun: list[str], tmp_path: Path, capsys: Output, bins: int
) -> None:
    start(tmp_path / "other", bins)
    asked = json.loads((tmp_path / "costs/asked.json").read_text())
    assert main(["project", str(tmp_path / "other"), *begun[2:]]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"was begun with checkpoint {asked['checkpoint']}" in line
    assert ("bins 16, not" in line) == (bins == 32)


@pytest.mark.parametrize("text", ["", "{}", "[]", '"x"', '{"chain": {"nodes": [2', '{"chain": 1}'])
@pytest.mark.parametrize("name", ["problem.json", "asked.json"])
def test_what_cannot_be_gone_on_with_is_one_line(
    begun: list[str], tmp_path: Path, capsys: Output, name: str, text: str
) -> None:
    (tmp_path / "costs" / name).write_text(text)
    assert main(begun) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(rf"godwit: .*/costs/{name}: .*; use another --out$", line)


def test_a_damaged_array_is_one_line(begun: list[str], tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "costs/order-3.npy").write_bytes(b"")
    assert main(begun) == 2
    assert "costs: cannot be gone on with (" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("text", ["", "{}", "[1]", "1", '{"bound": 0.0, "sweeps": []}'])
def test_costs_that_cannot_be_read_are_one_line(
    begun: list[str], query: Running, tmp_path: Path, capsys: Output, text: str
) -> None:
    assert main(begun) == 0
    capsys.readouterr()
    (tmp_path / "costs/projected.json").write_text(text)
    planning = ["--workers", "3", "--planner", "markov", "--projected", str(tmp_path / "costs")]
    assert query.command("plan", *planning) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match("godwit: .*/costs: holds no finished projected costs; make them", line)


def test_what_was_not_begun_leaves_nothing(query: Running, tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "series.txt").write_text("2 3 2")
    common = ["--series", str(tmp_path / "series.txt"), "--out", str(tmp_path / "costs")]
    assert query.command("project", *common, "--tau", "0") == 2
    assert not (tmp_path / "costs").exists()
    assert query.command("project", *common, "--tau", "2") == 0


def test_workers_are_learnt_from_loads(query: Running, tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "loads.txt").write_text("1500 2900.5\n900 1200 4999")
    common = ["--series", str(tmp_path / "loads.txt"), "--tau", "2"]
    out = tmp_path / "costs"
    assert query.command("project", *common, "--capacity", "1000", "--out", str(out)) == 0
    assert Projected.load(out).problem.chain == Chain.learn([2, 3, 1, 2, 5])


SERIES = {
    "words": ("two", [], "is to hold numbers of workers: "),
    "parts": ("2 2.5", [], "is to hold numbers of workers: "),
    "no loads": ("2 x", ["--capacity", "1"], "is to hold loads: "),
    "no number": ("2 nan", ["--capacity", "1"], "every load must be a finite number"),
    "no capacity": ("2 3", ["--capacity", "0"], "capacity of a node must be above 0"),
    "no change": ("2 2", [], "the number of nodes never changes"),
}


@pytest.mark.parametrize("case", SERIES)
def test_a_bad_series_is_one_line(
    query: Running, tmp_path: Path, capsys: Output, case: str
) -> None:
    text, options, message = SERIES[case]
    (tmp_path / "series.txt").write_text(text)
    common = ["--series", str(tmp_path / "series.txt"), "--out", str(tmp_path / "costs")]
    assert query.command("project", *common, *options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_capacity_needs_a_series(query: Running, tmp_path: Path, capsys: Output) -> None:
    assert query.command("project", "--capacity", "5", "--out", str(tmp_path / "costs")) == 2
    assert "give --series FILE, too" in capsys.readouterr().err
