"""The reference of the command line is what the commands say of themselves."""

import argparse
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

from godwit.cli import COMMANDS, Parser

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def helps() -> dict[str, str]:
    """The help text of each command, 100 columns wide."""
    commands = Parser(prog="godwit").add_subparsers()
    for command in COMMANDS:
        import_module(f"godwit.cli.{command}").add_to(commands)
    parsers: Mapping[str, argparse.ArgumentParser] = commands.choices
    return {name: parser.format_help() for name, parser in parsers.items()}


def test_the_reference_has_the_help_of_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    found = re.findall(r"## (\S+)\n\n```\n(.*?)```\n", REFERENCE.read_text(), re.DOTALL)
    assert dict(found) == helps(), "write what `godwit COMMAND --help` says, 100 columns wide"
