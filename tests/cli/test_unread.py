"""`status` tells how many files wait, where the sources are of files."""

import json
from pathlib import Path

import pytest

from godwit.cli import main
from godwit.inspect.overview import Overview
from godwit.log.intent import Intent
from godwit.log.spark_log import NO_SPARK
from godwit.model.ids import Epoch
from godwit.model.unread import UnreadFiles
from tests.support.simulated import simulate, words


def test_files_that_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sim = simulate(tmp_path)
    sim.feed(words("a"))
    sim.driver.begin(Epoch(1), NO_SPARK, "1", unread=UnreadFiles(3, 60.0))
    assert main(["status", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("epoch 0, epoch 1 in flight, 3 files waiting, the oldest for 1 min\n")
    assert main(["status", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unread"] == {"files": 3, "seconds": 60.0}
    assert Overview.of(tmp_path).unread == UnreadFiles(3, 60.0)


def test_nobody_knows_what_waits_for_a_query_that_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sim = simulate(tmp_path)
    sim.feed(words("a"))
    sim.driver.begin(Epoch(1), NO_SPARK, "1", backlog=5, unread=UnreadFiles(3, 60.0))
    sim.driver.journal.end()
    assert main(["status", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("epoch 0, epoch 1 in flight\ndriver 1: process")
    assert main(["status", str(tmp_path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["backlog"], data["unread"]) == (None, None)


def test_an_intent_of_before_files_were_counted_is_read() -> None:
    intent = Intent(Epoch(0), 0, NO_SPARK, "0", {}, {}, unread=UnreadFiles(1, 2.0))
    data = intent.to_json({})
    assert Intent.from_json(data, lambda name, written: written.unpack()) == intent
    del data["unread"]
    assert Intent.from_json(data, lambda name, written: written.unpack()).unread is None
