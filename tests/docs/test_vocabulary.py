"""The vocabulary has the words of the code: what operators, planners and strategies there are."""

import inspect
import re
from pathlib import Path

import godwit as gw
from godwit.inspect.targets import PLANNERS
from godwit.migration.strategies import STRATEGIES

VOCABULARY = Path(__file__).parents[2] / "docs" / "reference" / "vocabulary.md"


def names_in(word: str) -> set[str]:
    """What the meaning of a word names as code, without arguments."""
    (meaning,) = re.findall(
        rf"^\| \*\*{word}\*\* \| (.*) \|$", VOCABULARY.read_text(), re.MULTILINE
    )
    return {name.partition(":")[0] for name in re.findall(r"`([^`]+)`", meaning)}


def test_it_names_all_operators() -> None:
    """A method of a stream that names a step adds an operator."""
    methods = inspect.getmembers(gw.Stream, inspect.isfunction)
    adding = {
        name
        for name, method in methods
        if not name.startswith("_") and "name" in inspect.signature(method).parameters
    }
    assert names_in("operator") == adding


def test_it_names_all_strategies() -> None:
    assert names_in("strategy") == {strategy.name for strategy in STRATEGIES}


def test_it_names_all_planners() -> None:
    assert names_in("planner") == set(PLANNERS)


def test_no_word_stands_twice() -> None:
    rows = re.findall(r"^\| (\*\*.+?) \|", VOCABULARY.read_text(), re.MULTILINE)
    words = [word for row in rows for word in re.findall(r"\*\*(.+?)\*\*", row)]
    assert {"graph", "sink"} <= set(words)
    assert sorted(set(words)) == sorted(words)
