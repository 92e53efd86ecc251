"""The command line: one file a command."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import NoReturn

from godwit.cli.patience import USUAL, Patience
from godwit.errors import GodwitError

COMMANDS = (  # each is a module of this package, which adds itself and runs
    "status",
    "plan",
    "project",
    "apply",
    "watch",
    "abort",
    "handover",
    "drain",
    "history",
    "state",
    "stop",
    "restore",
    "verify",
)
INTERRUPTED = 130  # as a shell tells of SIGINT
UNREAD = 141  # as a shell tells of SIGPIPE


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


class Version(argparse.Action):
    """Asks for the version only when it is wanted."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"godwit {version('godwit')}")
        parser.exit()


def main(arguments: Sequence[str] | None = None, patience: Patience = USUAL) -> int:
    """Run a command of `godwit`, which waits for a query with this patience."""
    parser = Parser(
        prog="godwit", description="Move the state of a running PySpark stream without stopping it."
    )
    parser.set_defaults(patience=patience)
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    try:
        modules = [import_module(f"{__name__}.{command}") for command in COMMANDS]
    except KeyboardInterrupt:
        return INTERRUPTED
    return run_command(parser, modules, arguments)


def run_command(
    parser: Parser, modules: Sequence[ModuleType], arguments: Sequence[str] | None
) -> int:
    """Run one of several commands; bad input is one line on standard error and exit code 2."""
    try:
        commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
        for module in modules:
            module.add_to(commands)
        parsed, unknown = parser.parse_known_args(arguments)
        if unknown:  # said by the command, whose help names what it knows
            commands.choices[parsed.command].error(f"unrecognized arguments: {' '.join(unknown)}")
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer shall not fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except (GodwitError, OSError) as error:
        print(f"{parser.prog}: {_text(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _text(error: Exception) -> str:
    """What is wrong, after the file that it is wrong with.

    >>> _text(FileExistsError(17, "File exists", "grow.json"))
    'grow.json: file exists'
    """
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror.lower()}"
    return str(error)
