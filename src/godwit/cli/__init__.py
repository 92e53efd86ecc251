"""The command line: one file a command."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from godwit.cli import abort, apply, experiment, history, plan, run, state, status, verify, watch
from godwit.errors import GodwitError

COMMANDS = (status, plan, apply, watch, abort, history, state, verify, run, experiment)
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; bad input is one line on standard error and exit code 2."""
    parser = Parser(
        prog="godwit", description="Move the state of a running PySpark stream without stopping it."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except (GodwitError, OSError) as error:
        print(f"godwit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
