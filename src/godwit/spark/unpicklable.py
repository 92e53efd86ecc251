"""What is in the way when a function cannot be sent to executors."""

import builtins
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from pyspark import cloudpickle

from godwit.errors import ConfigError
from godwit.operators.base import Operator

DEPTH: Final = 8  # from an operator down to the value in the way
_OPAQUE = ("pyspark.", "py4j.")  # what they consist of tells a user nothing


def check_operators(operators: Iterable[Operator]) -> None:
    """Raise ConfigError for an operator that executors cannot be sent, with what is in the way."""
    for operator in operators:
        if (path := _path_to_culprit(operator)) is not None:
            raise ConfigError(
                f"operator '{operator.name}': its {_told(path)}; {_next_step(path[-1][1])}"
            )


def _path_to_culprit(root: Any) -> list[tuple[str, Any]] | None:
    """From `root`, which has no name, to the innermost value that cannot be pickled; None if all
    can be."""
    if _can_be_sent(root):
        return None
    path, seen = [("", root)], {id(root)}
    while len(path) <= DEPTH:
        for name, value in _parts(path[-1][1]):
            if id(value) not in seen and not _can_be_sent(value):
                seen.add(id(value))
                path.append((name, value))
                break
        else:
            break
    return path


def _told(path: list[tuple[str, Any]]) -> str:
    """The last function on the way, and the variable of it that is or holds what is in the way."""
    calls = [place for place, (_, value) in enumerate(path) if _is_function(value)]
    *_, last = calls or [0]
    function = getattr(path[last][1], "__qualname__", "").rpartition(".")[2]
    told = f"function `{function}`" if calls else "definition"
    names = path[last + 1 :]
    if not names:
        return f"{told} cannot be sent to executors: it cannot be pickled"
    (variable, first), (_, culprit) = names[0], names[-1]
    whole = f"the variable `{variable}` ({_kind(first)})"
    if len(names) > 1:
        whole += f" holds `{_dotted(name for name, _ in names)}` ({_kind(culprit)}), which"
    return f"{told} cannot be sent to executors: {whole} cannot be pickled"


def _next_step(culprit: Any) -> str:
    if type(culprit).__module__.startswith(_OPAQUE):
        return (
            "sessions, DataFrames and the like live on the driver only. Collect what the function "
            "needs before the start, or join it to the stream as a DataFrame"
        )
    return "make it inside of the function, or leave it out"


def _dotted(names: Iterable[str]) -> str:
    """
    >>> _dotted(["client", "locks", "[0]"])
    'client.locks[0]'
    """
    return "".join(name if name.startswith("[") else f".{name}" for name in names).lstrip(".")


def _kind(value: Any) -> str:
    """
    >>> _kind({})
    'a dict'
    """
    kind = type(value)
    outer = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return f"a {outer}{kind.__qualname__}"


def _can_be_sent(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    except Exception:
        return False
    return True


def _is_function(value: Any) -> bool:
    return isinstance(value, FunctionType | MethodType)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What is pickled with a value, by name."""
    if isinstance(value, FunctionType):
        yield from _variables(value)
    elif isinstance(value, MethodType):
        yield "self", value.__self__
        yield value.__name__, value.__func__
    elif isinstance(value, partial):
        yield "func", value.func
        yield from ((f"[{place}]", one) for place, one in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", one) for key, one in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{place}]", one) for place, one in enumerate(value))
    elif isinstance(value, type):
        yield from ((name, one) for name, one in vars(value).items() if callable(one))
    elif not type(value).__module__.startswith(_OPAQUE):
        yield from getattr(value, "__dict__", {}).items()
        for slot in _slots(type(value)):
            if hasattr(value, slot):
                yield slot, getattr(value, slot)
        if type(value).__module__ == "__main__":
            yield "class", type(value)


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """A function's closure, the globals that it names, and its defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is empty yet
            continue
    for name in _names(function.__code__):
        if name in function.__globals__ and not hasattr(builtins, name):
            yield name, function.__globals__[name]
    code, defaults = function.__code__, function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    yield from zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = getattr(base, "__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
