"""Requests that were refused are shown, also those that were stored while no query ran."""

import json
import re
from pathlib import Path

import pytest

from godwit.cli import main
from godwit.cli.patience import Patience
from godwit.inspect.overview import Overview
from godwit.migration.strategies import fluid
from godwit.model.routing import Routing
from tests.support.command_line import Running
from tests.support.simulated import drive, publish


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A migration was open when the query went down; another was asked for, and refused at the
    start."""
    driver = drive(tmp_path, workers=1, bins=16, retention=3)
    publish(driver, 0)
    driver.requests.migrate("counts", Routing.even(16, 2), strategy=fluid())
    publish(driver, 1)
    assert main(["apply", str(tmp_path), "--workers", "3"], Patience(answer=0.1)) == 3
    publish(drive(tmp_path, retention=3), 2)
    capsys.readouterr()
    return tmp_path


@pytest.mark.parametrize("command", ["status", "history"])
def test_a_request_that_is_refused_at_the_start_is_shown(
    refused: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(refused)]) == 0
    assert re.search(
        r"\n\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: request 2 \(migrate\) was refused in epoch 2: "
        r"migration 1 of operator 'counts' is open; .*--supersede",
        capsys.readouterr().out,
    )
    assert main([command, str(refused), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["refused"]
    assert (told["id"], told["kind"], told["epoch"]) == (2, "migrate", 2)
    assert told["asked"] > 1e9


def test_status_forgets_old_refusals_and_history_does_not(
    refused: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = drive(refused, retention=3)
    for epoch in range(3, 24):  # also past the end of the migration, whose intents stay until then
        publish(driver, epoch)
    driver.requests.migrate("counts", Routing.even(16, 1))
    for epoch in range(24, 30):
        publish(driver, epoch)
    assert main(["status", str(refused)]) == 0
    assert "refused" not in capsys.readouterr().out
    assert main(["history", str(refused)]) == 0
    assert "\nrequest 2 was refused: migration 1" in capsys.readouterr().out


def test_a_request_that_came_while_the_query_ran_is_shown_with_its_epoch(moving: Running) -> None:
    assert moving.command("apply", "--workers", "3") == 1
    (told,) = Overview.of(moving.checkpoint).refused
    intents = {e: moving.driver.journal.taken(e) for e in moving.driver.journal.intents()}
    assert told.epoch == min(epoch for epoch, control in intents.items() if control == 2)
