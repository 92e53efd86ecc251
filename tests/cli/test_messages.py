"""Messages count as people do: 1 worker, 2 workers."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from godwit.cli import COMMANDS, main
from godwit.model.routing import Routing
from tests.support.simulated import drive, publish

SOURCES = Path(__file__).parents[2] / "src" / "godwit"
COUNTED = re.compile(r" (workers|bins|epochs|executors)\b")


def test_one_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(driver := drive(tmp_path, workers=2, bins=2), 0)
    driver.requests.migrate("counts", Routing.even(2, 1))
    publish(driver, 1)
    assert main(["status", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "migration 1: 2 -> 1 worker, paced:20%, moving, 0 of 1 bin" in text
    publish(drive(tmp_path, workers=1, bins=1), 2)
    assert main(["status", str(tmp_path)]) == 0
    assert "counts: 1 worker, 1 bin, 0 row versions" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    told = capsys.readouterr().out
    assert told.startswith(f"usage: godwit {command} ")
    assert f"examples:\n  godwit {command} " in told


def test_every_number_of_workers_bins_epochs_or_executors_is_told_by_plural() -> None:
    told = {
        f"{path.relative_to(SOURCES)}:{line}"
        for path in SOURCES.rglob("*.py")
        for line in _counts(ast.parse(path.read_text()))
    }
    assert told == set()


def _counts(tree: ast.AST) -> Iterator[int]:
    """The lines of texts in which a value, but no list of them, stands before such a noun."""
    for text in ast.walk(tree):
        if isinstance(text, ast.JoinedStr):
            for value, noun in pairwise(text.values):
                match value, noun:
                    case ast.FormattedValue(value=ast.Call(func=ast.Attribute(attr="join"))), _:
                        pass
                    case ast.FormattedValue(), ast.Constant(value=str(words)):
                        if COUNTED.match(words):
                            yield value.lineno
