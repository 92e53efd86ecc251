"""What holds for the tests themselves: tiers, imports and clocks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
STARTS_SPARK = {"spark", "java"}  # fixtures: a session, and the options of JVMs of applications


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(TESTS.rglob("*.py")):
        yield str(path.relative_to(TESTS)), path.read_text()


def test_who_uses_spark_is_marked(request: pytest.FixtureRequest) -> None:
    """Who starts it otherwise fails in `make check`, which has no Java."""
    unmarked = [
        item.nodeid
        for item in request.session.items
        if STARTS_SPARK & {*getattr(item, "fixturenames", ())}
        and not item.get_closest_marker("spark")
    ]
    assert unmarked == []


def test_nothing_is_imported_from_the_tests_of_a_sibling() -> None:
    imported = {
        (name, module)
        for name, text in sources()
        for node in ast.walk(ast.parse(text))
        for module in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
        if module.split(".")[0] == "tests" and module.split(".")[1:2] != ["support"]
    }
    assert imported == set()


def test_clocks_are_given_and_not_patched_into_modules() -> None:
    patched = re.compile(
        r"""(setattr|patch\.object)\([^)]*["'](time|monotonic|perf_counter|sleep)["']"""
    )
    assert [name for name, text in sources() if patched.search(text)] == []
