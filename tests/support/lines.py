"""How long are NEXMark's queries, here and in SQL? `python -m tests.support.lines`

Counted are lines with code in them: of a query and of what it calls, of a statement and of the
views that it names, without docstrings, comments and lines that are blank or close a bracket.
"""

import ast
import inspect
import re
from types import FunctionType

from lab.workloads.nexmark import queries, sql_suite
from tests.support.oracle import QUERIES, VIEWS

_FUNCTIONS = {
    name: value
    for module in (queries, sql_suite)
    for name, value in vars(module).items()
    if isinstance(value, FunctionType) and value.__module__ == module.__name__
}
NAMES = (*(f"q{n}" for n in (*range(1, 10), 11, *range(13, 23))), "hot_items", "nbqx")


def ours(name: str, seen: set[str] | None = None) -> int:
    """The lines of a query's function, and of those that it names."""
    seen = set() if seen is None else seen
    seen.add(name)
    (tree,) = ast.parse(inspect.getsource(_FUNCTIONS[name])).body
    assert isinstance(tree, ast.FunctionDef)
    tree.body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    lines = _count(ast.unparse(tree))  # a statement a line, however it was laid out
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return lines + sum(
        ours(name, seen) for name in sorted(named & _FUNCTIONS.keys()) if name not in seen
    )


def theirs(name: str) -> int:
    """The clauses of a query's statements, and of the views that they name."""
    name = "nbq5" if name == "hot_items" else name
    text = "\n".join(text for query, text in QUERIES.items() if query.split()[0] == name)
    views = dict(re.findall(r"CREATE \w+ (\w+)(.*?);", VIEWS, re.DOTALL))
    used, waiting = "", [text]
    while waiting:
        used += "\n" + (one := waiting.pop())
        waiting += [views.pop(view) for view in list(views) if re.search(rf"\b{view}\b", one)]
    return _count(used)


def _count(text: str) -> int:
    return sum(bool(re.search(r"\w", line)) for line in text.splitlines())


if __name__ == "__main__":
    print("| query | Godwit | SQL |\n|---|---|---|")
    for name in NAMES:
        print(f"| {name} | {ours(name)} | {theirs(name)} |")
