"""`godwit abort CHECKPOINT`: end an open migration."""

import argparse
from typing import Any

from godwit.cli.command import add_command
from godwit.cli.output import add_json
from godwit.cli.requests import ask
from godwit.errors import ConfigError
from godwit.inspect.overview import OperatorView, Overview, newest
from godwit.log.history import History
from godwit.model.requests import AbortRequest, MigrateRequest
from godwit.storage.location import Location, open_store

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
    parser.add_argument("--operator", help="needed if the query has several")
    parser.add_argument("--rollback", action="store_true", help="move the bins back")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.checkpoint)
    operator = Overview.of(store).operator(arguments.operator)
    open = _open(store, operator)
    if open is None:
        raise ConfigError(f"operator '{operator.name}' has no open migration")
    request = AbortRequest(0, operator.name, open, arguments.rollback)
    answer = ask(store, lambda _: request, json=arguments.json, patience=arguments.patience)
    answer.tell(json=arguments.json)
    return answer.code


def _open(checkpoint: Location, operator: OperatorView) -> int | None:
    """The migration that is open when the requests are taken in that wait for the query to run."""
    open = operator.migration.id if operator.migration else None
    history = History.inspect(checkpoint)
    _, intent = newest(history)
    for request in history.requests.requests(after=intent.taken):
        if (
            not isinstance(request, MigrateRequest | AbortRequest)
            or request.operator != operator.name
        ):
            continue
        if isinstance(request, AbortRequest):
            if request.migration == open and not request.rollback:
                open = None
        elif open is None or request.supersede:
            open = request.id
    return open
