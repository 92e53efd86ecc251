"""`godwit watch CHECKPOINT`: follow a migration."""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from godwit.cli.command import add_command
from godwit.cli.output import note, print_line
from godwit.cli.status import progress
from godwit.log.files import Location
from godwit.runtime.overview import MigrationView, Overview

LOOK_SECONDS = 0.2
SILENCE_SECONDS = 30.0

EXAMPLES = """\
examples:
  godwit watch /data/checkpoints/counts
  godwit watch /data/checkpoints/counts 7

exit code: 0 the migration is done, 1 it ended otherwise
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "watch",
        run,
        help="follow a migration to its end",
        description="Print the progress of a migration with each epoch, until it has ended.",
        examples=EXAMPLES,
    )
    parser.add_argument("id", metavar="ID", nargs="?", type=int, help="default: the newest")
    parser.add_argument("--operator", help="needed if the query has several")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each change")


def run(arguments: argparse.Namespace) -> int:
    path = Location.parse(arguments.checkpoint).path
    operator = Overview.of(path).operator(arguments.operator)
    known = [*operator.past, *([operator.migration] if operator.migration else [])]
    if not known:
        note(f"operator '{operator.name}' has no migration")
        return 1
    return follow(path, operator.name, arguments.id or known[-1].id, json=arguments.json)


def follow(checkpoint: Path, operator: str, id: int, *, json: bool = False) -> int:
    """Print what changes until the migration has ended and its last epoch is published."""
    shown, epoch, since = None, None, time.monotonic()
    while True:
        overview = Overview.of(checkpoint)
        migration = _find(overview, operator, id)
        if migration is None:
            note(f"migration {id} of operator '{operator}' is not known (any more)")
            return 1
        if migration.epoch is not None and overview.epoch >= migration.epoch:
            text = f"migration {id} is {migration.outcome}"
            _print(overview.epoch, migration, text, json=json)
            return 0 if migration.outcome == "done" else 1
        if (now := (migration.arrived, migration.outcome)) != shown:
            shown = now
            _print(overview.begun, migration, progress(migration), json=json)
        if overview.begun != epoch:
            epoch, since = overview.begun, time.monotonic()
        elif time.monotonic() - since > SILENCE_SECONDS:
            note(f"no epoch has begun for {SILENCE_SECONDS:.0f} s: does the query run?")
            since = time.monotonic()
        time.sleep(LOOK_SECONDS)


def _print(epoch: int, migration: MigrationView, text: str, *, json: bool) -> None:
    if json:
        print_line({"epoch": epoch, "migration": asdict(migration)})
    else:
        print(f"epoch {epoch}: {text}", flush=True)


def _find(overview: Overview, operator: str, id: int) -> MigrationView | None:
    view = overview.operators[operator]
    if view.migration and view.migration.id == id:
        return view.migration
    return next((ended for ended in view.past if ended.id == id), None)
