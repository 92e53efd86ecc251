"""`godwit restore`: what it undoes, what it says of the next start, and when it refuses."""

import json
from pathlib import Path

import pytest

from godwit.cli import main
from godwit.model.routing import Routing
from tests.support.operator_simulation import OperatorSimulation
from tests.support.simulated import content, counts, simulate, words


@pytest.fixture
def sim(tmp_path: Path) -> OperatorSimulation:
    sim = simulate(tmp_path)
    for text in ("a", "a b", "a b c", "d"):
        sim.feed(words(*text.split()))
    return sim


def test_a_query_that_runs_is_not_touched(
    sim: OperatorSimulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(tmp_path)
    assert main(["restore", str(tmp_path), "1"]) == 2
    told = capsys.readouterr().err
    assert "the query runs: driver 1, process" in told
    assert f"'godwit stop {tmp_path} --wait', or give --force" in told
    assert content(tmp_path) == before


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_it_rolls_back_and_says_what_that_means(
    sim: OperatorSimulation, force: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sim.migrate(Routing.even(16, 3))
    if not force:
        sim.driver.journal.end()
    assert main(["restore", str(tmp_path), "1", *force]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "restored the end of epoch 1",
        "undone: 2 epochs, 2 to 3",
        "dropped: 1 request, 1",
        f"kept in {tmp_path}/godwit/undone/2",
        "if the query has a files sink: move its directories epoch=2 and later away before the "
        "next start, which refuses them",
        "the next start runs epoch 2, from the input that epoch 1 left to read",
    ]
    assert (tmp_path / "godwit/undone/2/manifests/3.json").exists()
    assert main(["status", str(tmp_path)]) == 0
    assert ": not running\n" in capsys.readouterr().out  # and so it can be restored once more
    assert main(["restore", str(tmp_path), "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["epoch"], told["undone"], told["requests"]) == (1, [], [])
    sim.restart()
    assert counts(sim) == {"a": 2, "b": 1}


def test_without_an_epoch_those_are_listed_that_can_be_restored(
    sim: OperatorSimulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(tmp_path)
    assert main(["restore", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "epochs that can be restored: 0, 1, 2, 3\n"
    assert main(["restore", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"epochs": [0, 1, 2, 3]}
    assert content(tmp_path) == before


def test_an_epoch_that_is_not_retained(
    sim: OperatorSimulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sim.driver.journal.end()
    before = content(tmp_path)
    assert main(["restore", str(tmp_path), "7"]) == 2
    assert "epoch 7 is not retained" in capsys.readouterr().err
    assert content(tmp_path) == before
