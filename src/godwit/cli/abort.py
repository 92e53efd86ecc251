"""`godwit abort CHECKPOINT`: end an open migration."""

import argparse
from collections.abc import Sequence
from typing import Any

from godwit.cli.command import add_command
from godwit.cli.output import add_json
from godwit.cli.requests import ask
from godwit.cli.watch import told_of
from godwit.errors import ConfigError
from godwit.inspect.overview import OperatorView, Overview
from godwit.log.history import History
from godwit.model.requests import (
    AbortRequest,
    MigrateRequest,
    OperatorRequest,
    jointly,
    parts_of,
)
from godwit.storage.location import open_store

EXAMPLES = """\
examples:
  godwit abort /data/checkpoints/counts
  godwit abort /data/checkpoints/counts --rollback

exit code: 0 the query took it in, 1 it was refused, 2 bad input, 3 no query has answered yet
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "abort",
        run,
        help="end an open migration where it is, or move its bins back",
        description="Ask a running query to end its open migration after the current step.",
        examples=EXAMPLES,
    )
    parser.add_argument("--operator", help="default: all that the migration is open of")
    parser.add_argument("--rollback", action="store_true", help="move the bins back")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.checkpoint)
    overview = Overview.of(store)
    views = overview.named(arguments.operator)
    waiting = [
        part
        for one in overview.waiting
        if one.kind in ("migrate", "abort")
        for part in parts_of(History(store).requests.request(one.id))
    ]
    open_ones = {view.name: id for view in views if (id := _open(view, waiting)) is not None}
    if not open_ones:
        raise ConfigError(f"there is no open migration of {told_of([view.name for view in views])}")
    if len({*open_ones.values()}) > 1:
        choices = " or ".join(f"--operator {name}" for name in open_ones)
        raise ConfigError(f"operators have migrations of their own: say {choices}")
    request = jointly(
        [AbortRequest(0, name, id, arguments.rollback) for name, id in open_ones.items()]
    )
    answer = ask(store, lambda _: request, json=arguments.json, patience=arguments.patience)
    answer.tell(json=arguments.json)
    return answer.code


def _open(operator: OperatorView, waiting: Sequence[OperatorRequest]) -> int | None:
    """The migration that is open when the requests are taken in that wait for the query to run."""
    open = operator.migration.id if operator.migration else None
    for request in waiting:
        if request.operator != operator.name:
            continue
        if isinstance(request, AbortRequest):
            if request.migration == open and not request.rollback:
                open = None
        elif isinstance(request, MigrateRequest) and (open is None or request.supersede):
            open = request.id
    return open
