"""`godwit watch CHECKPOINT`: follow a migration."""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from godwit.cli.command import add_command
from godwit.cli.output import note, print_line
from godwit.cli.patience import USUAL, Patience
from godwit.cli.requests import CODES, not_running
from godwit.cli.status import progress
from godwit.errors import ConfigError
from godwit.inspect.overview import Overview
from godwit.log.requests import WaitingRequest
from godwit.storage.location import Location, open_store

EXAMPLES = """\
examples:
  godwit watch /data/checkpoints/counts
  godwit watch /data/checkpoints/counts 7

exit code: 0 the migration is done, 1 it ended otherwise, 2 there is no such migration, 3 the query
is not running
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
    store = open_store(arguments.checkpoint)
    overview = Overview.of(store)
    operator = overview.operator(arguments.operator)
    waiting = [one for one in overview.waiting if is_for(one, operator.name)]
    known = [*(one.id for one in operator.migrations), *(one.id for one in waiting)]
    if not known:
        raise ConfigError(f"operator '{operator.name}' has no migration")
    id = known[-1] if arguments.id is None else arguments.id
    if id not in known:
        raise ConfigError(f"migration {id} of operator '{operator.name}' is not known (any more)")
    return follow(
        store, migration_of(operator.name, id), json=arguments.json, patience=arguments.patience
    )


@dataclass(frozen=True, slots=True)
class Sight:
    """What there is to tell of something that goes on; again, when what is `notable` changes.

    With an exit `code` it has ended.
    """

    notable: object
    text: str
    data: dict[str, Any]
    code: int | None = None


def follow(
    checkpoint: Location,
    look: Callable[[Overview], Sight | str],
    *,
    json: bool,
    patience: Patience = USUAL,
) -> int:
    """Print what changes until what one looks at has ended; a text says why it is not to be seen.

    Returns the exit code.
    """
    shown, epoch, since = None, None, time.monotonic()
    while True:
        overview = Overview.of(checkpoint)
        sight = look(overview)
        if isinstance(sight, str):
            note(sight)
            return 1
        if sight.code is not None:
            _print(overview.epoch, sight, json=json)
            return sight.code
        if sight.notable != shown:
            shown = sight.notable
            _print(overview.begun, sight, json=json)
        if overview.begun != epoch:
            epoch, since = overview.begun, time.monotonic()
        elif overview.driver.gone and time.monotonic() - since > patience.restart:
            note(not_running(overview.driver))
            return CODES["waiting"]
        elif time.monotonic() - since > patience.silence:
            note(f"no epoch has begun for {patience.silence:.0f} s: does the query run?")
            since = time.monotonic()
        time.sleep(patience.follow)


def migration_of(operator: str, id: int) -> Callable[[Overview], Sight | str]:
    """Looks at a migration, which has ended when its last epoch is published."""

    def look(overview: Overview) -> Sight | str:
        view = overview.operators[operator]
        for request in overview.waiting:
            if request.id == id and is_for(request, operator):
                return Sight("waiting", str(request), {"waiting": asdict(request)})
        for refused in overview.refused:
            if refused.id == id:
                return f"request {id} was refused: {refused.reason}"
        migration = next((one for one in view.migrations if one.id == id), None)
        if migration is None:
            return f"migration {id} of operator '{operator}' is not known (any more)"
        notable = (migration.arrived, migration.outcome)
        data = {"migration": asdict(migration)}
        if migration.epoch is None or overview.epoch < migration.epoch:
            return Sight(notable, progress(migration), data)
        code = 0 if migration.outcome == "done" else 1
        return Sight(notable, f"migration {id} is {migration.outcome}", data, code)

    return look


def is_for(request: WaitingRequest, operator: str) -> bool:
    """Is it for a migration of an operator?"""
    return (request.kind, request.operator) == ("migrate", operator)


def _print(epoch: int, sight: Sight, *, json: bool) -> None:
    if json:
        print_line({"epoch": epoch} | sight.data)
    else:
        print(f"epoch {epoch}: {sight.text}", flush=True)
