"""Requests that nobody has answered yet, and queries that do not run."""

import json
import re
import socket
import subprocess
import sys
from math import nan
from pathlib import Path

import pytest

from godwit.cli import main
from godwit.cli import requests as asking
from godwit.cli.patience import Patience
from godwit.cli.watch import follow, migration_of
from godwit.log.history import History
from godwit.log.spark_log import NO_SPARK
from godwit.migration.strategies import all_at_once
from godwit.model.ids import Epoch
from godwit.model.routing import Routing
from tests.support.command_line import Running
from tests.support.simulated import drive, publish

BRIEF = Patience(answer=0.2)


def test_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(drive(tmp_path, workers=1, bins=4), 0)
    assert main(["apply", str(tmp_path), "--workers", "2"], BRIEF) == 3
    first, second = capsys.readouterr().err.splitlines()
    assert first == "request 1 is stored; the query has 0 s to answer"
    assert second == "request 1 is stored and waits: no query has answered within 0 s"
    driver = drive(tmp_path)
    publish(driver, 1)
    assert driver.routing("counts").workers == 2


def test_who_waits_no_more_is_told_that_the_request_stays(
    query: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([None])

    def answer(history: History, id: int) -> None:
        if next(looks, "the second") is not None:
            raise KeyboardInterrupt  # as Ctrl-C does

    monkeypatch.setattr(asking, "_answer", answer)
    assert main(["apply", str(query.checkpoint), "--workers", "3"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == (
        "request 1 is stored: the query takes it in, although nobody waits for its answer"
    )


def test_a_query_whose_process_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with monkeypatch.context() as patched:
        patched.setattr("godwit.log.journal.getpid", lambda: ended.pid)
        driver = drive(tmp_path, workers=1, bins=4)
        assert main(["status", str(tmp_path)]) == 2
        assert "yet: driver 1 ended in its first; start" in capsys.readouterr().err
        publish(driver, 0)
    assert main(["status", str(tmp_path)]) == 0
    assert re.search(rf"process {ended.pid} on .*: not running\n", capsys.readouterr().out)
    assert main(["status", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["driver"]["gone"]
    cannot_wait = Patience(look=nan)
    assert main(["apply", str(tmp_path), "--workers", "2"], cannot_wait) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("request 1 is stored and waits: the query is not running")
    for command in ("status", "history"):
        assert main([command, str(tmp_path)]) == 0
        assert "request 1 (migrate) waits for the query's next epoch" in capsys.readouterr().out
    assert main(["watch", str(tmp_path)], Patience(restart=0.0)) == 3
    told = capsys.readouterr()
    assert told.out == "epoch 0: request 1 (migrate) waits for the query's next epoch\n"
    assert told.err.startswith("the query is not running")
    assert main(["abort", str(tmp_path), "--json"], cannot_wait) == 3
    assert json.loads(capsys.readouterr().out)["answer"] == "waiting"
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert main(["status", str(tmp_path)]) == 0
    assert "not running" not in capsys.readouterr().out


def test_a_migration_whose_last_epoch_is_not_published_is_ending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = drive(tmp_path, workers=2, bins=4)
    assert main(["status", str(tmp_path)]) == 2
    assert re.search(r"yet: driver 1, process \d+ on .*, is at its first$", capsys.readouterr().err)
    publish(driver, 0)
    driver.requests.migrate("counts", Routing.even(4, 1), strategy=all_at_once())
    driver.begin(Epoch(1), NO_SPARK, "")
    assert main(["history", str(tmp_path)]) == 0
    assert re.search(r"all-at-once +ending +1\n", capsys.readouterr().out)
    assert main(["status", str(tmp_path)]) == 0
    assert "all-at-once, ending, 2 of 2 bins" in capsys.readouterr().out


def test_a_request_that_waited_and_is_refused_is_told(
    moving: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(moving.checkpoint)
    assert main(["apply", path, "--workers", "3"], BRIEF) == 3
    moving.epoch()
    capsys.readouterr()
    assert follow(moving.checkpoint, migration_of("counts", 2), json=False) == 1
    assert "request 2 was refused: migration 1 of operator" in capsys.readouterr().err


def test_a_request_that_cannot_be_read_is_told(
    query: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    (query.checkpoint / "godwit/control/1.json").write_text("{}")
    assert main(["status", str(query.checkpoint)]) == 0
    assert "request 1 (cannot be read) waits" in capsys.readouterr().out


def test_a_request_that_waits_can_be_aborted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(drive(tmp_path, workers=1, bins=4), 0)
    assert main(["apply", str(tmp_path), "--workers", "2", "--json"], BRIEF) == 3
    assert json.loads(capsys.readouterr().out)["answer"] == "waiting"
    assert main(["abort", str(tmp_path)], BRIEF) == 3
    driver = drive(tmp_path)
    publish(driver, 1)
    assert driver.routing("counts").workers == 1
    assert driver.requests.outcome(1) == "aborted"
