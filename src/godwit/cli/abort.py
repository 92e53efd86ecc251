"""`godwit abort CHECKPOINT`: end an open migration."""

import argparse
from pathlib import Path
from typing import Any

from godwit.cli.asking import ask
from godwit.cli.command import add_command
from godwit.cli.output import add_json
from godwit.errors import ConfigError
from godwit.log.files import Location
from godwit.log.history import History
from godwit.model.requests import Abort, Migrate
from godwit.runtime.overview import Overview, newest

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
    path = Location.parse(arguments.checkpoint).path
    operator = Overview.of(path).operator(arguments.operator)
    open = operator.migration.id if operator.migration else _waiting(path, operator.name)
    if open is None:
        raise ConfigError(f"operator '{operator.name}' has no open migration")
    answer = ask(path, Abort(0, operator.name, open, arguments.rollback))
    answer.tell(json=arguments.json)
    return answer.code


def _waiting(checkpoint: Path, operator: str) -> int | None:
    """The newest migration that was asked for since the query ran."""
    history = History.inspect(checkpoint)
    _, intent = newest(history)
    requests = history.control.requests(after=intent.control)
    ids = [r.id for r in requests if isinstance(r, Migrate) and r.operator == operator]
    return max(ids, default=None)
