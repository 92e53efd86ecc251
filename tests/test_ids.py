"""Ids have types: what takes several of them cannot be given one in the place of another."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "godwit"
ROOMS = ("model", "placement", "migration", "state", "log", "worker", "inspect", "driver", "spark")
IDS = {
    *("epoch", "begun", "ended", "since"),
    *("bin", "worker", "slot", "executor", "home", "place"),
    *("source", "target", "origin", "destination", "owner"),
}
BARE = {"int", "str", "int | None", "str | None"}


def test_nothing_public_takes_two_ids_as_plain_numbers_or_texts() -> None:
    found = {
        name: bare
        for name, parameters in _signatures()
        if len(bare := [one for one, kind in parameters if one in IDS and kind in BARE]) > 1
    }
    assert found == {  # users write these, with plain numbers
        "Update": ["epoch", "bin", "worker"],
        "ReplicaReport": ["worker", "executor"],
    }


def test_nothing_public_takes_a_mapping_from_numbers_to_numbers() -> None:
    found = {
        name
        for name, parameters in _signatures()
        for _, kind in parameters
        if "Mapping[int, int]" in kind or "dict[int, int]" in kind
    }
    assert found == {
        "Routing.assign",  # which users call with plain numbers
        "Graph",  # microseconds of sources, which have places in a tuple and no ids
    }


def _signatures() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Public functions, methods and classes by name, with their parameters or fields."""
    for room in ROOMS:
        for file in sorted((SOURCES / room).rglob("*.py")):
            yield from _within(ast.parse(file.read_text()).body, "")


def _within(body: list[ast.stmt], owner: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for node in body:
        if isinstance(node, ast.FunctionDef) and _is_public(node.name):
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            kinds = [(one.arg, ast.unparse(one.annotation)) for one in every if one.annotation]
            returned = [("", ast.unparse(node.returns))] if node.returns else []
            yield owner + node.name, kinds + returned
        elif isinstance(node, ast.ClassDef) and _is_public(node.name):
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            yield (
                owner + node.name,
                [(ast.unparse(one.target), ast.unparse(one.annotation)) for one in fields],
            )
            yield from _within(node.body, f"{owner}{node.name}.")


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"
