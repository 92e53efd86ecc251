"""What all commands have in common."""

import argparse
import math
import textwrap
from collections.abc import Callable
from typing import Any


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    help: str,
    description: str,
    examples: str,
) -> argparse.ArgumentParser:
    """A command on a checkpoint, with examples at the end of its help text."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=textwrap.fill(description, 100),
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpoint directory")
    parser.set_defaults(run=run)
    return parser


def seconds(text: str) -> float:
    """The type of an argument that says how long."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"it must be a number of seconds above 0, not '{text}'")
    return seconds
