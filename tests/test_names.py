"""One word for one thing: no two public classes of the library and its lab share a name."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_two_public_classes_share_a_name() -> None:
    """Not even up to case: `Handover` and `HandOver` would be one word for two things."""
    homes: dict[str, list[str]] = {}
    for name, home in _public_classes():
        homes.setdefault(name.lower(), []).append(f"{name} in {home}")
    assert {"query", "runreport"} <= homes.keys()  # both rooms were read
    assert [places for places in homes.values() if len(places) > 1] == []


def _public_classes() -> Iterator[tuple[str, str]]:
    for room in ("src/godwit", "lab"):
        for file in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, str(file.relative_to(ROOT))
