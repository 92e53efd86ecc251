"""What every operator checks when it is defined, and what it tells of itself."""

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from godwit.errors import ConfigError
from godwit.model.description import OperatorDescription, TableDescription
from godwit.model.schema import check_key, check_names, to_ddl
from godwit.model.time import Duration, micros
from godwit.operators.base import Horizon
from godwit.state.table import HASH, TableSpec
from godwit.state.timed import OWN

POSITION = "_pos"  # the sub-key of a list's table
INPUT = "_input"  # the number of the input that a record is from
RECORDS = "_records"  # how many records a folded row stands for
TIME = "_time"  # the time of a row that is joined, whatever its input calls it
MATCHED = "_matched"  # whether a row that is joined has found a match

_OWN = {POSITION, INPUT, TIME, MATCHED, *OWN}  # columns that Godwit adds
_NAME = re.compile(r"[A-Za-z0-9_-]+")


@contextmanager
def defining(operator: str) -> Iterator[None]:
    """Check the name of an operator, and put it before what is refused in its definition."""
    if not isinstance(operator, str) or not _NAME.fullmatch(operator):
        raise ConfigError(
            f"operator name {operator!r}: an operator is named with letters, digits, '_' and '-', "
            "for its name becomes a directory of the checkpoint"
        )
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"operator '{operator}': {error}") from None


def find(role: str, name: str, input: pa.Schema) -> pa.Field:
    """The input column called `name`, which must be there once."""
    if not isinstance(name, str):
        raise ConfigError(f"the {role} column must be given by its name, not as {name!r}")
    if name == HASH:
        raise ConfigError(f"{role} column '{name}' has a name that Godwit uses itself; rename it")
    found = input.get_all_field_indices(name)
    if len(found) != 1:
        trouble = "is there twice in" if found else "is not in"
        raise ConfigError(f"{role} column '{name}' {trouble} the input: {', '.join(input.names)}")
    return input.field(found[0])


def column_names(role: str, given: str | Iterable[str]) -> list[str]:
    """One column, or several, as a user names them."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable):
        raise ConfigError(f"the {role} is a column or a list of columns, by name, not {given!r}")
    return list(given)


def key_schema(key: str | Sequence[str], input: pa.Schema) -> pa.Schema:
    """The fields of the key; nulls are ordinary key values, so all of them are nullable."""
    names = column_names("key", key)
    schema = pa.schema([pa.field(name, find("key", name, input).type) for name in names])
    check_key(schema)
    check_names(schema)
    return schema


def time_field(time: str | None, input: pa.Schema) -> pa.Field | None:
    """The column that orders the records of a key."""
    if time is None:
        return None
    field = find("time", time, input)
    kind = field.type
    if not (pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        raise ConfigError(
            f"time column '{time}' is of type {kind}; it must be a timestamp, a date or an integer"
        )
    return field


def watermark_delay(time: pa.Field | None, delay: Duration | None) -> int | None:
    """How far the times of records may be behind the newest, in microseconds."""
    if delay is None:
        return None
    if time is None:
        raise ConfigError("it has a delay, but no time; name the column that has the event time")
    if not pa.types.is_timestamp(time.type):
        raise ConfigError(f"its event time '{time.name}' is of type {time.type}, not a timestamp")
    allowed = micros(delay)
    if allowed < 0:
        raise ConfigError(f"its delay cannot be negative, as '{delay}' is")
    return allowed


def check_window_time(time: str | None, delay: Duration | None, input: pa.Schema) -> None:
    """A window of time needs the event time of its records."""
    if time is None or delay is None:
        raise ConfigError(
            "a window needs the column of the event time, time=..., and delay=..., how far it may "
            "be behind the newest time seen"
        )
    watermark_delay(time_field(time, input), delay)


def own_time(time: str | None) -> Horizon:
    """The horizon of operators that judge a record by its own time: late before the watermark."""
    return Horizon(time or "", 1)


def check_attributes(what: str, names: Iterable[str], taken: Sequence[str] = ()) -> None:
    """Refuse names that cannot be, or already are, attributes of a Python object."""
    for name in names:
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            raise ConfigError(f"{what} '{name}' must be a Python name without a leading '_'")
        if name in taken:
            raise ConfigError(f"{what} '{name}' has the name of a method of the state; rename it")


def check_table(spec: TableSpec) -> None:
    """Key, sub-key and value stand side by side in files and in Spark, so their names differ."""
    keys = {name.lower() for name in spec.key.names}
    columns = [field for field in (*spec.sub, *spec.value) if field.name not in _OWN]
    for field in columns:
        if field.name.lower() in keys:
            raise ConfigError(f"column '{field.name}' of state '{spec.name}' is also a key column")
    check_names(pa.schema(columns))
    to_ddl(pa.schema(columns))  # refuses types that Spark does not have


def describe(
    kind: str, key: pa.Schema, tables: Iterable[TableSpec], output: pa.Schema
) -> OperatorDescription:
    """What is compared when a query goes on with a checkpoint.

    The output may change, but not between the publishing of an epoch and its delivery.
    """
    described = {
        spec.name: TableDescription(to_ddl(spec.sub), to_ddl(spec.value)) for spec in tables
    }
    return OperatorDescription(kind, to_ddl(key), to_ddl(output), described)
