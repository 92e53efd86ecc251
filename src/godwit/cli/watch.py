"""`godwit watch CHECKPOINT`: follow a migration."""

import argparse
import time
from collections.abc import Callable, Collection, Sequence
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
    parser.add_argument("--operator", help="default: all")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each change")


def run(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.checkpoint)
    overview = Overview.of(store)
    views = overview.named(arguments.operator)
    names = [view.name for view in views]
    who = told_of(names)
    waiting = [one for one in overview.waiting if is_for(one, names)]
    known = [*(one.id for view in views for one in view.migrations), *(one.id for one in waiting)]
    if not known:
        raise ConfigError(f"there is no migration of {who}")
    id = max(known) if arguments.id is None else arguments.id
    if id not in known:
        raise ConfigError(f"migration {id} of {who} is not known (any more)")
    return follow(store, migration_of(names, id), json=arguments.json, patience=arguments.patience)


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


def migration_of(operators: Sequence[str], id: int) -> Callable[[Overview], Sight | str]:
    """Looks at a migration of some of these operators, which has ended when its last epoch is
    published."""

    def look(overview: Overview) -> Sight | str:
        for request in overview.waiting:
            if request.id == id and is_for(request, operators):
                return Sight("waiting", str(request), {"waiting": asdict(request)})
        for refused in overview.refused:
            if refused.id == id:
                return f"request {id} was refused: {refused.reason}"
        views = [overview.operators[name] for name in operators]
        found = [one for view in views for one in view.migrations if one.id == id]
        if not found:
            return f"migration {id} of {told_of(operators)} is not known (any more)"
        notable = [(one.arrived, one.outcome) for one in found]
        several = {"migrations": [asdict(one) for one in found]}
        data = {"migration": asdict(found[0])} if len(found) == 1 else several
        if any(one.epoch is None or overview.epoch < one.epoch for one in found):
            told = [f"'{one.operator}' {progress(one)}" for one in found]
            return Sight(notable, progress(found[0]) if len(found) == 1 else "; ".join(told), data)
        worst = next((one for one in found if one.outcome != "done"), found[0])
        code = 0 if worst.outcome == "done" else 1
        return Sight(notable, f"migration {id} is {worst.outcome}", data, code)

    return look


def told_of(operators: Sequence[str]) -> str:
    """
    >>> told_of(["counts"]), told_of(["counts", "sizes"])
    ("operator 'counts'", "operators 'counts', 'sizes'")
    """
    names = ", ".join(f"'{name}'" for name in operators)
    return f"operator{'s' * (len(operators) > 1)} {names}"


def is_for(request: WaitingRequest, operators: Collection[str]) -> bool:
    """Is it for a migration of some of these operators?"""
    return request.kind == "migrate" and not {*operators}.isdisjoint(request.operators)


def _print(epoch: int, sight: Sight, *, json: bool) -> None:
    if json:
        print_line({"epoch": epoch} | sight.data)
    else:
        print(f"epoch {epoch}: {sight.text}", flush=True)
