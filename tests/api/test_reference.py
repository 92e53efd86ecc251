"""The public face: what is exported, documented, shown by an example, and made of public types."""

import builtins
import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import godwit as gw
import godwit.testing
from godwit.spark.dataflow import Dataflow
from godwit.spark.node import Node

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
OUTSIDE = ("builtins", "typing", "types", "collections", "datetime", "pathlib", "os")
LIBRARIES = ("numpy", "pyarrow", "pyspark")
OPTIONS = REFERENCE.parent / "options.md"
REPORTS = (
    *(gw.EpochReport, gw.OperatorReport, gw.WorkerReport, gw.ReplicaReport),
    *(gw.UnreadFiles, gw.MigrationProgress, gw.Routing),
)
HANDLES = (gw.Migration, gw.Scheduled, gw.Handover, gw.Draining)
LATE_NAMES = {
    "DataFrame": DataFrame,
    "Dataflow": Dataflow,
    "Node": Node,
    "SparkSession": SparkSession,
    "Stream": gw.Stream,
    "StreamingQuery": StreamingQuery,
    "StructType": StructType,
}


def documented() -> dict[str, list[str]]:
    """The headings of the reference, such as `count(column=None)`, with the members below them."""
    found: dict[str, list[str]] = {}
    for line in REFERENCE.read_text().splitlines():
        if heading := re.match(r"### `([^`]+)`$", line):
            found[heading[1]] = []
        elif member := re.match(r"- `\.([^`]+)`", line):
            found[list(found)[-1]].append(member[1])
    return found


def named(text: str) -> str:
    return text.partition("(")[0]


def public(name: str) -> Any:
    return getattr(godwit.testing if name in godwit.testing.__all__ else gw, named(name))


DOCUMENTED = documented()
MEMBERS = [(owner, member) for owner, members in DOCUMENTED.items() for member in members]


def shown(name: str, thing: Any) -> str:
    """A function as the reference shows it: its parameters and their defaults."""
    signature = inspect.signature(thing)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "unknown")
    ]
    plain = inspect.Signature(parameters)
    return re.sub(r"<[^>]*>", "...", f"{name}{plain}")


def test_the_reference_has_all_public_names_and_no_other() -> None:
    names = [named(heading) for heading in DOCUMENTED]
    assert sorted(names) == sorted([*gw.__all__, *godwit.testing.__all__])
    assert gw.__all__ == sorted(gw.__all__)


@pytest.mark.parametrize("heading", [heading for heading in DOCUMENTED if "(" in heading])
def test_the_reference_shows_how_a_name_is_called(heading: str) -> None:
    assert heading == shown(named(heading), public(named(heading)))


@pytest.mark.parametrize(("owner", "member"), MEMBERS)
def test_the_reference_shows_the_members_of_a_class(owner: str, member: str) -> None:
    cls = public(named(owner))
    if "(" in member:
        assert member == shown(named(member), getattr(cls, named(member)))
    else:
        fields = getattr(cls, "__dataclass_fields__", {})
        attribute = inspect.getattr_static(cls, member, None)
        assert member in fields or isinstance(attribute, property)


@pytest.mark.parametrize("cls", [gw.Stream, gw.Job, gw.Query, godwit.testing.Simulation])
def test_what_the_reference_leaves_out_is_private_by_name(cls: type) -> None:
    members = [name for name in dir(cls) if not name.startswith("_")]
    (shown,) = (known for one, known in DOCUMENTED.items() if named(one) == cls.__name__)
    assert sorted(map(named, shown)) == members


def test_a_simulation_has_no_public_attribute_that_the_reference_leaves_out() -> None:
    job = gw.stream("user string").aggregate("n", key="user", n=gw.count()).to(gw.console())
    attributes = vars(godwit.testing.Simulation(job))
    assert [name for name in attributes if not name.startswith("_")] == []


@pytest.mark.parametrize("cls", HANDLES)
def test_the_fields_of_a_handle_that_the_reference_leaves_out_are_private(cls: type) -> None:
    fields = [name for name in dir(cls) if not name.startswith("_")]
    (shown,) = (known for one, known in DOCUMENTED.items() if named(one) == cls.__name__)
    assert sorted(map(named, shown)) == fields


@pytest.mark.parametrize("cls", REPORTS)
def test_the_reference_has_all_fields_of_a_report(cls: type) -> None:
    (shown,) = (known for one, known in DOCUMENTED.items() if named(one) == cls.__name__)
    assert {field.name for field in dataclasses.fields(cls)} <= set(shown)


@pytest.mark.parametrize(
    ("heading", "known"), [("Of `start`", gw.Job.start), ("`gw.Options`", gw.Options)]
)
def test_the_tables_of_options_have_all_and_no_other(heading: str, known: Any) -> None:
    (section,) = re.findall(rf"^## {heading}$(.*?)^## ", OPTIONS.read_text(), re.M | re.S)
    parameters = inspect.signature(known).parameters.values()
    names = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == names


@pytest.mark.parametrize("name", [*gw.__all__, *godwit.testing.__all__])
def test_every_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (public(name).__doc__ or "")


def functions() -> Iterator[tuple[str, Any]]:
    """All that a user calls."""
    for heading, members in DOCUMENTED.items():
        thing = public(named(heading))
        if not inspect.isclass(thing):
            yield heading, thing
        elif "(" in heading:
            yield heading, thing.__init__
        for member in members:
            found = inspect.getattr_static(thing, named(member), None)
            found = getattr(found, "fget", None) or getattr(found, "__func__", found)
            if inspect.isfunction(found):
                yield f"{named(heading)}.{member}", found


def types_in(hint: Any) -> Iterator[type]:
    """The classes that an annotation names."""
    if typing.is_typeddict(hint):
        for part in typing.get_type_hints(hint).values():
            yield from types_in(part)
    elif typing.get_origin(hint) is typing.Literal:
        return
    elif isinstance(hint, list | tuple):
        for part in hint:
            yield from types_in(part)
    elif typing.get_args(hint):
        yield from types_in(typing.get_origin(hint))
        yield from types_in(typing.get_args(hint))
    elif inspect.isclass(hint):
        yield hint


FUNCTIONS = dict(functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_type_in_a_public_signature_is_public(name: str) -> None:
    function = inspect.unwrap(FUNCTIONS[name])
    exported = {getattr(gw, one) for one in gw.__all__}
    hints = typing.get_type_hints(function, localns=LATE_NAMES)
    for hint in hints.values():
        for one in types_in(hint):
            outside = one.__module__.partition(".")[0] in (*OUTSIDE, *LIBRARIES)
            assert outside or one in exported, f"{one} is not exported"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_error_that_a_docstring_names_is_public(name: str) -> None:
    for error in re.findall(r"\b\w+Error\b", FUNCTIONS[name].__doc__ or ""):
        assert error in gw.__all__ or hasattr(builtins, error)


def test_every_error_of_godwit_is_public() -> None:
    def leaves(error: type[gw.GodwitError]) -> Iterator[type[gw.GodwitError]]:
        yield error
        for one in error.__subclasses__():
            yield from leaves(one)

    own = [one for one in leaves(gw.GodwitError) if one.__module__.startswith("godwit")]
    assert {one.__name__ for one in own} <= set(gw.__all__)
