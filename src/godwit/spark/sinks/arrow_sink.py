"""What sinks have in common that write Arrow to a table beyond Spark's reach."""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.log.history import History
from godwit.spark.sinks.sink import EPOCH, FileTaker, Maker
from godwit.state.output import OutputFiles
from godwit.storage.location import Location

PLACE: Final = "a row's place in its epoch"  # a column's name while rows are told apart


@dataclass(frozen=True, slots=True)
class Outputs:
    """The rows of an epoch, which can be read more than once."""

    epoch: int
    count: int
    read: Callable[[], Iterable[pa.RecordBatch]]

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows in the order in which operators gave them, with the columns of a schema: their
        own, the epoch, and nulls."""
        return filled(self.read(), schema, self.epoch)

    def reader(self, schema: pa.Schema) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(schema, self.batches(schema))

    def newest(self, schema: pa.Schema, key: Sequence[str]) -> pa.Table:
        """The last row of each key. With no key, all rows."""
        table = pa.Table.from_batches(self.batches(schema), schema)
        if not key:
            return table
        placed = table.select(key).append_column(PLACE, pa.array(range(len(table)), pa.int64()))
        last = placed.group_by(key).aggregate([(PLACE, "max")])[f"{PLACE}_max"]
        return table if len(last) == len(table) else table.take(last.sort())


def filled(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, epoch: int
) -> Iterator[pa.RecordBatch]:
    """Rows with the columns of a schema: their own, the epoch, and nulls."""
    for batch in batches:
        columns = [_column(batch, field, epoch) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


class ArrowSink(FileTaker, Maker):
    """Takes the rows of an epoch as Arrow batches: from the files of the operator, or out of the
    DataFrame code behind it."""

    @property
    def place(self) -> str:
        return str(self)

    def check(self, spark: SparkSession, schema: StructType, checkpoint: Location) -> None:
        self.prepare(schema, checkpoint, to_make=True)

    def refuse(self, spark: SparkSession, schema: StructType, checkpoint: Location) -> None:
        self.prepare(schema, checkpoint, to_make=False)

    @abstractmethod
    def prepare(self, schema: StructType, checkpoint: Location, *, to_make: bool) -> None:
        """Refuse what does not fit; make what is missing, if it is `to_make`."""
        ...

    @abstractmethod
    def take(self, outputs: Outputs, commit: str) -> None:
        """Take the rows of an epoch, or pass over a commit that is there."""
        ...

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        table = rows.toArrow()
        self.take(Outputs(epoch, len(table), table.to_batches), commit)

    def deliver_files(self, epoch: int, files: OutputFiles, commit: str) -> bool:
        self.take(Outputs(epoch, files.rows, files.batches), commit)
        return True


@dataclass(frozen=True, slots=True)
class Delivered:
    """The newest epoch of a query that a target has, and the id of its commit."""

    epoch: int
    commit: str

    def has(self, epoch: int, commit: str, where: str) -> bool:
        """Whether the target has this commit; an error if it has another one, or a later one."""
        if self.commit == commit:
            return True
        if self.epoch < epoch:
            return False
        raise ConfigError(
            f"{where} has epoch {self.epoch} of commit {self.commit}, but this query delivers "
            f"epoch {epoch} of commit {commit}: its checkpoint was restored since, or another "
            f"driver has taken it over. After a restore, name another target, or bring this one "
            "back to the restored epoch as the guide to sinks tells. Nothing was changed"
        )

    def check_start(self, checkpoint: Location, where: str) -> None:
        """Refuse what the query in a checkpoint has not published: an epoch later than all of its
        epochs, or one that it has published with another commit, as far as it knows that still."""
        history = History(checkpoint)
        last = history.last()
        known = last if last is None or last.epoch <= self.epoch else history.manifest(self.epoch)
        if known is not None:
            self.has(known.epoch, known.id, where)


def need(module: str, extra: str) -> None:
    """Refuse a sink whose package is not installed."""
    try:
        import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"the sink gw.{extra} needs the package {error.name or module}, which cannot be "
            f"imported ({error}): pip install 'godwit[{extra}]'"
        ) from error


def secrets_of(options: Mapping[str, str]) -> list[str]:
    """All values, but of `type`: a word that errors need.

    >>> secrets_of({"type": "sql", "token": "abc"})
    ['abc']
    """
    return [value for name, value in options.items() if name != "type"]


def hushed(told: str, secrets: Iterable[str]) -> str:
    """A text without secrets, and without the passwords of URLs in it."""
    for secret in filter(None, secrets):
        for form in (secret, unquote(secret)):
            told = told.replace(form, "***")
    return re.sub(r"://[^\s@/]*@", "://***@", told)


def check_key(key: Sequence[str], columns: pa.Schema) -> None:
    """Refuse a key that is not among the columns of the output, or cannot be compared."""
    for name in key:
        if name not in columns.names:
            raise ConfigError(
                f"the sink's key column '{name}' is not in the output: {', '.join(columns.names)}"
            )
        if pa.types.is_nested(columns.field(name).type):
            raise ConfigError(
                f"the sink's key column '{name}' is of type {columns.field(name).type}; a key has "
                "no nested columns: cast it"
            )
        if pa.types.is_floating(columns.field(name).type):
            raise ConfigError(
                f"the sink's key column '{name}' is of type {columns.field(name).type}, whose NaN "
                "and -0.0 make equality unreliable; cast it to decimal or string"
            )


def as_key(key: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns of a key, as a user writes it."""
    if key is not None and not isinstance(key, str | Sequence):
        raise ConfigError(f"the sink's key is a column or a list of columns, by name, not {key!r}")
    return (key,) if isinstance(key, str) else tuple(key or ())


def columns_to_write(target: str, there: pa.Schema, output: pa.Schema) -> pa.Schema:
    """The columns of a table that the rows of an output fill, and the epoch if it has that.

    Refuses a column that the table lacks or has with another type, and one that must not be null
    and that the output lacks.
    """
    for field in output:
        if (index := there.get_field_index(field.name)) < 0:
            raise ConfigError(
                f"{target} has no column '{field.name}' of type {field.type}, which the output "
                "has; add it to the table, or name another table"
            )
        if not _same(there.field(index).type, field.type):
            raise ConfigError(
                f"{target} has the column '{field.name}' with type {there.field(index).type}, the "
                f"output with type {field.type}; cast it, or name another table"
            )
    names = [*output.names, EPOCH]
    for field in there:
        if field.name not in names and not field.nullable:
            raise ConfigError(
                f"{target} has the column '{field.name}', which must not be null and which the "
                "output lacks; add it to the output, or name another table"
            )
    if EPOCH in there.names and not pa.types.is_int64(there.field(EPOCH).type):
        raise ConfigError(
            f"{target} has the column '{EPOCH}' with type {there.field(EPOCH).type}; the sink "
            "fills it with the epoch's number, which is of type int64"
        )
    return pa.schema([field for field in there if field.name in names])


def _column(batch: pa.RecordBatch, field: pa.Field, epoch: int) -> pa.Array:
    if field.name == EPOCH:
        return pa.repeat(pa.scalar(epoch, field.type), len(batch))
    if field.name not in batch.schema.names:
        return pa.nulls(len(batch), field.type)
    return batch.column(field.name).cast(field.type)


def _same(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether types differ in nothing but the width of offsets and the names of list elements."""
    if pa.types.is_map(one) and pa.types.is_map(other):
        return _same(one.key_type, other.key_type) and _same(one.item_type, other.item_type)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return [field.name for field in one] == [field.name for field in other] and all(
            _same(a.type, b.type) for a, b in zip(one, other, strict=True)
        )
    if _is_list(one) and _is_list(other):
        return _same(one.value_type, other.value_type)
    return bool(_NARROW.get(one, one) == _NARROW.get(other, other))


def _is_list(type_: pa.DataType) -> bool:
    return isinstance(type_, pa.ListType | pa.LargeListType)


_NARROW: Final = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
