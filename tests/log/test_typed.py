"""Records of the log are decoded to values, once, in `log`: elsewhere nobody knows their keys."""

import ast
import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from godwit.log import Intent
from godwit.model.manifest import Manifest
from godwit.model.receipt import Receipt

ROOT = Path(__file__).parents[2]
RECORDS = ("manifest", "intent", "receipt")
DECODERS = ("to_json", "from_json", "to_text", "from_text")
LOG_DECODERS = (
    *("decode", "_written_routings"),  # of headers, of a part
    *("query_id", "planned_at"),  # of Spark's files
)
TIMES = "process_seconds"  # looks into times by the part of the work, which are no record


def fields_of(kind: type) -> Iterator[tuple[str, object]]:
    """The fields of a value and of the values in them, by name, with their types."""
    for name, hint in typing.get_type_hints(kind).items():
        yield f"{kind.__name__}.{name}", hint
        for part in _parts(hint):
            if dataclasses.is_dataclass(part) and isinstance(part, type):
                yield from fields_of(part)


def _parts(hint: object) -> Iterator[object]:
    yield hint
    for argument in typing.get_args(hint):
        yield from _parts(argument)


@pytest.mark.parametrize("kind", [Intent, Manifest, Receipt])
def test_no_field_of_a_record_is_anything(kind: type) -> None:
    """So that mypy finds whoever looks into a record by keys that it does not have."""
    known = dict(fields_of(kind))
    assert len(known) > 10
    assert not [name for name, hint in known.items() if typing.Any in _own_parts(hint)]


def _own_parts(hint: object) -> list[object]:
    """The parts of a type that are ours: an array's are numpy's."""
    origin = typing.get_origin(hint)
    if getattr(origin, "__module__", "").startswith("numpy"):
        return []
    return [hint, *(part for one in typing.get_args(hint) for part in _own_parts(one))]


class _Looks(ast.NodeVisitor):
    """Where a source looks by a key of its own into something that is named like a record; or into
    anything."""

    def __init__(self, anything: bool) -> None:
        self.found: list[int] = []
        self._anything = anything

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        exempt = (*DECODERS, *LOG_DECODERS, TIMES) if self._anything else DECODERS
        if node.name not in exempt:
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._look(node.value, node.slice, node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            self._look(node.func.value, node.args[0], node.lineno)
        self.generic_visit(node)

    def _look(self, value: ast.expr, key: ast.expr, line: int) -> None:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
            names += [node.attr for node in ast.walk(value) if isinstance(node, ast.Attribute)]
            if self._anything or any(name.strip("_").startswith(RECORDS) for name in names):
                self.found.append(line)


def looks(source: str, *, anything: bool = False) -> list[int]:
    """The lines of a source that look into a record, or into anything, by its keys."""
    visitor = _Looks(anything)
    visitor.visit(ast.parse(source))
    return visitor.found


def test_nobody_looks_into_a_record_by_its_keys() -> None:
    assert looks('sum(receipt["rows"] for receipt in group)') == [1]
    assert looks('self._manifest.trees["counts"].get("value")') == [1, 1]
    assert looks('def from_json(manifest):\n    return manifest["epoch"]') == []
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for directory in ("src/godwit", "lab")
        for path in sorted((ROOT / directory).rglob("*.py"))
        if "log" not in path.relative_to(ROOT).parts
        for line in looks(path.read_text())
    ]
    assert found == []


def test_the_log_looks_into_json_where_it_decodes_it_and_nowhere_else() -> None:
    assert looks('def taken(body):\n    return body["control"]', anything=True) == [2]
    assert looks('def since(entry):\n    return entry.get("since", 3)', anything=True) == [2]
    assert looks('def from_json(data):\n    return data["epoch"]', anything=True) == []
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "src/godwit/log").glob("*.py"))
        for line in looks(path.read_text(), anything=True)
    ]
    assert found == []
