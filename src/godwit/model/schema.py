"""Spark's schema strings as Arrow schemas and back, and what Godwit asks of a schema."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import NoReturn

import pyarrow as pa

from godwit.errors import ConfigError

MAX_PRECISION = 38  # of a decimal
MAX_LENGTH = 2**31 - 1  # of a char or varchar

# The first name of a type is the one that `to_ddl` writes.
_ATOMS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS = ("decimal", "dec", "numeric")
_TEXTS = ("char", "character", "varchar")
_TYPES = (*_ATOMS, *_DECIMALS, *_TEXTS, "array", "map", "struct")

_TOKEN = re.compile(
    r"""\s*(?: (?P<word>\w+)
             | (?P<quoted>`(?:[^`]|``)+`)
             | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
             | (?P<symbol>[<>(),:])
             | (?P<end>\Z)
             | (?P<stray>.) )""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)


@lru_cache(1024)  # a log tells the same few schemas again and again
def parse(ddl: str) -> pa.Schema:
    """Read a schema as Spark's DDL writes it; a comment is allowed and dropped.

    The Arrow types are those that Spark hands to `mapInArrow`, with timestamps in UTC. The length
    of a char or varchar is not enforced, nor does Spark enforce it outside of tables.

    >>> parse("count long NOT NULL, prices array<decimal(10,2)>")
    count: int64 not null
    prices: list<element: decimal128(10, 2)>
      child 0, element: decimal128(10, 2)
    >>> parse("count lnog")
    Traceback (most recent call last):
    godwit.errors.ConfigError: type 'lnog' is not supported; did you mean 'long'?
      count lnog
            ^
    """
    if not isinstance(ddl, str):
        raise ConfigError(f"columns are a text such as 'user string, n long', not {ddl!r}")
    reader = _Reader(ddl)
    fields = reader.fields()
    reader.expect_end()
    return pa.schema(fields)


def to_ddl(schema: pa.Schema) -> str:
    """Write a schema so that `parse`, and Spark, read the same schema.

    DDL cannot say that the elements of an array or the values of a map are never null: they come
    back nullable, and every time zone comes back as UTC.

    >>> to_ddl(pa.schema({"word": pa.string(), "n": pa.int64()}))
    '`word` string, `n` bigint'
    """
    return ", ".join(_field_ddl(field, " ") for field in schema)


def check_key(schema: pa.Schema) -> None:
    """Refuse columns that cannot be compared for equality in the same way everywhere."""
    if not schema.names:
        raise ConfigError("a key needs at least one column")
    for field in schema:
        described = f"key column '{field.name}' is of type {_type_ddl(field.type)}"
        if pa.types.is_floating(field.type):
            raise ConfigError(
                f"{described}, whose NaN, -0.0 and rounding make equality unreliable; "
                "cast it to decimal or string"
            )
        if pa.types.is_nested(field.type):
            raise ConfigError(
                f"{described}; make the parts that matter key columns of their own, "
                "or cast it to string"
            )


def check_names(schema: pa.Schema) -> None:
    """Refuse names that Spark cannot tell apart, and names that Godwit's own columns might have."""
    for name in schema.names:
        if name.startswith("_"):
            raise ConfigError(
                f"column '{name}' begins with an underscore, as only Godwit's own columns do; "
                "rename it"
            )
        if "." in name or "`" in name:
            raise ConfigError(f"column '{name}' has a dot or backtick in its name; rename it")
    _check_distinct(schema.names, "")
    for field in schema:
        _check_parts(field.type, field.name)


def _check_parts(type_: pa.DataType, path: str) -> None:
    parts = [type_.field(i) for i in range(type_.num_fields)]
    if pa.types.is_struct(type_):
        _check_distinct([part.name for part in parts], f" of '{path}'")
    for part in parts:
        _check_parts(part.type, f"{path}.{part.name}")


def _check_distinct(names: list[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.get(name.lower())) is not None:
            raise ConfigError(
                f"columns '{other}' and '{name}'{where} have the same name to Spark, which ignores "
                "case; rename one of them"
            )
        seen[name.lower()] = name


def _field_ddl(field: pa.Field, separator: str) -> str:
    if not field.name:
        raise ConfigError("a column has an empty name, which a schema string cannot say; rename it")
    name = field.name.replace("`", "``")
    null = "" if field.nullable else " NOT NULL"
    return f"`{name}`{separator}{_type_ddl(field.type)}{null}"


def _type_ddl(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"array<{_type_ddl(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{_type_ddl(type_.key_type)},{_type_ddl(type_.item_type)}>"
    if pa.types.is_struct(type_) and type_.num_fields:
        return f"struct<{','.join(_field_ddl(field, ':') for field in type_)}>"
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    for name, atom in _ATOMS.items():
        if type_ == atom:
            return name
    raise ConfigError(f"Arrow's type {type_} has no counterpart in a Spark schema; cast it")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else f"'{self.text}'"


def _tokens(ddl: str) -> Iterator[_Token]:
    """The tokens of `ddl`, the last of which is its end."""
    for match in _TOKEN.finditer(ddl):
        kind = match.lastgroup or "end"
        yield _Token(kind, match[kind], match.start(kind))


class _Reader:
    """A cursor over a schema string; each method reads one thing and moves behind it."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = _tokens(ddl)
        self._next = next(self._tokens)

    def fields(self) -> list[pa.Field]:
        fields = [self._field()]
        while self._accept(","):
            fields.append(self._field())
        return fields

    def expect_end(self) -> None:
        if self._next.kind != "end":
            self._refuse("expected a comma or the end")

    def _field(self) -> pa.Field:
        name = self._name()
        self._accept(":")
        type_ = self._type()
        nullable = True
        if self._accept("not"):
            self._expect("null")
            nullable = False
        if self._accept("comment"):
            if self._next.kind != "text":
                self._refuse("expected a quoted comment")
            self._take()
        return pa.field(name, type_, nullable=nullable)

    def _name(self) -> str:
        if self._next.kind == "quoted":
            return self._take()[1:-1].replace("``", "`")
        if self._next.kind != "word":
            self._refuse("expected a column name")
        if self._next.text[0].isdigit():
            self._fail(f"the name {self._next} begins with a digit, so it goes in `backticks`")
        return self._take()

    def _type(self) -> pa.DataType:
        if self._next.kind != "word":
            self._refuse("expected a type")
        name = self._next.text.lower()
        if name not in _TYPES:
            near = get_close_matches(name, _TYPES, n=1, cutoff=0.7)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            self._fail(f"type {self._next} is not supported{hint}")
        self._take()
        if name in _DECIMALS:
            return self._decimal()
        if name in _TEXTS:
            return self._text()
        if name in _ATOMS:
            return _ATOMS[name]
        self._expect("<")
        nested = self._nested(name)
        self._expect(">")
        return nested

    def _nested(self, name: str) -> pa.DataType:
        if name == "struct":
            return pa.struct(self.fields())
        if name == "array":
            return pa.list_(pa.field("element", self._type()))
        key = self._type()
        self._expect(",")
        return pa.map_(key, self._type())

    def _decimal(self) -> pa.DataType:
        if not self._accept("("):
            return pa.decimal128(10, 0)
        precision = self._number(1, MAX_PRECISION)
        scale = self._number(0, precision) if self._accept(",") else 0
        self._expect(")")
        return pa.decimal128(precision, scale)

    def _text(self) -> pa.DataType:
        self._expect("(")
        self._number(1, MAX_LENGTH)
        self._expect(")")
        return pa.string()

    def _number(self, low: int, high: int) -> int:
        text = self._next.text
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            self._refuse(f"expected a number from {low} to {high}")
        return int(self._take())

    def _accept(self, text: str) -> bool:
        """Move behind `text`, a symbol or a word in lower case, if it is next."""
        accepted = self._next.kind in ("word", "symbol") and self._next.text.lower() == text
        if accepted:
            self._take()
        return accepted

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._refuse(f"expected '{text}'")

    def _take(self) -> str:
        text = self._next.text
        self._next = next(self._tokens)
        return text

    def _refuse(self, expected: str) -> NoReturn:
        hint = "; a name that is no plain word goes in `backticks`"
        self._fail(f"{expected}, not {self._next}{hint if self._next.kind == 'stray' else ''}")

    def _fail(self, reason: str) -> NoReturn:
        """Raise with the line of the schema string, and below it a caret at the next token."""
        start = self._ddl.rfind("\n", 0, self._next.at) + 1
        line = self._ddl[start:].partition("\n")[0].replace("\t", " ")
        raise ConfigError(f"{reason}\n  {line}\n  {' ' * (self._next.at - start)}^")
