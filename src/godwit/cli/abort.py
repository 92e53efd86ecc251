"""`godwit abort CHECKPOINT`: end an open migration."""

import argparse
from typing import Any

from godwit.cli.asking import ask
from godwit.cli.command import add_command
from godwit.errors import ConfigError
from godwit.log.files import Location
from godwit.model.requests import Abort
from godwit.runtime.overview import Overview

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


def run(arguments: argparse.Namespace) -> int:
    path = Location.parse(arguments.checkpoint).path
    operator = Overview.of(path).operator(arguments.operator)
    if operator.migration is None:
        raise ConfigError(f"operator '{operator.name}' has no open migration")
    code, _ = ask(path, Abort(0, operator.name, operator.migration.id, arguments.rollback))
    return code
