"""Outputs in a table of a PostgreSQL database."""

import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from godwit import faults
from godwit.errors import ConfigError
from godwit.log.history import History
from godwit.spark.sinks.arrow_sink import (
    ArrowSink,
    Delivered,
    Outputs,
    as_key,
    check_key,
    hushed,
    need,
)
from godwit.spark.sinks.sink import EPOCH, Sink, check_no_epoch, with_epoch
from godwit.spark.types import to_arrow
from godwit.storage.location import Location

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Cursor

COMMITS: Final = "godwit_commits"
STAGED: Final = "godwit_staged"
LOCKED: Final = "55P03"  # the server's code for a lock that it has not got in time
OLDEST: Final = 150000  # the first version in which a null can equal a null


def postgres(dsn: str, table: str, *, key: str | Sequence[str] | None = None) -> Sink:
    """A PostgreSQL table, made if missing: an epoch is one transaction.

    With a `key`, the table has the newest result of each key; without, all rows. `dsn` is a URI or
    a connection string of libpq. The table may be in a schema: `schema.table`. Needs
    `pip install 'godwit[postgres]'` and PostgreSQL 15 or newer.

    >>> postgres("postgresql://godwit:secret@db/shop", "counts", key="word")
    PostgresSink(table='counts', key=('word',))
    """
    return PostgresSink(dsn, table, as_key(key))


@dataclass
class PostgresSink(ArrowSink):
    """The rows of an epoch and its commit's id, which is a row of another table, are one
    transaction; whoever holds that row is alone."""

    dsn: str = field(repr=False)
    table: str
    key: tuple[str, ...]
    lock_timeout: str = field(default="60s", repr=False)  # for a lock that another session holds
    idle_timeout: str = field(default="5min", repr=False)  # for a driver that stands still
    _columns: pa.Schema = field(default=None, init=False, repr=False)
    _checkpoint: str = field(default="", init=False, repr=False)

    @property
    def guarantee(self) -> str:
        return (
            "exactly once: the rows of an epoch and the id of its commit are one transaction; "
            "another query's output is refused"
        )

    def prepare(self, schema: StructType, checkpoint: Location, *, to_make: bool) -> None:
        need("adbc_driver_postgresql.dbapi", "postgres")
        check_no_epoch(schema)
        check_key(self.key, to_arrow(schema))
        try:
            with self._transaction(to_keep=to_make) as cursor:
                if _one(cursor, "SELECT current_setting('server_version_num')::int") < OLDEST:
                    raise ConfigError(f"{self} is in a server older than PostgreSQL 15; update it")
                if not self._columns_there(cursor):
                    self._make(cursor, to_arrow(with_epoch(schema)))
                cursor.execute("SELECT to_regclass($1) IS NULL", (self._commits,))
                if cursor.fetchone() == (True,):  # to ask for it takes a right that a role may lack
                    cursor.execute(
                        f"CREATE TABLE IF NOT EXISTS {self._commits} (target text PRIMARY KEY, "
                        "query text NOT NULL, epoch bigint NOT NULL, commit text NOT NULL, "
                        "checkpoint text NOT NULL)"
                    )
                delivered = self._lock(cursor, History(checkpoint).query or "", str(checkpoint))
                self._columns = self._fitting(cursor, to_arrow(schema))
        except _error() as error:
            raise ConfigError(f"{self} cannot be used: {self._hushed(error)}") from None
        self._checkpoint = str(checkpoint)
        if delivered.epoch >= 0:
            delivered.check_start(checkpoint, str(self))

    def identity(self, spark: SparkSession) -> Hashable:
        with self._transaction() as cursor:
            cursor.execute(
                "SELECT system_identifier, current_database(), to_regclass($1)::oid::bigint "
                "FROM pg_control_system()",
                (self._target,),
            )
            return cursor.fetchone()

    def take(self, outputs: Outputs, commit: str) -> None:
        epoch, query = outputs.epoch, commit.partition("/")[0]
        with self._transaction() as cursor:
            delivered = self._lock(cursor, query, self._checkpoint)
            if delivered.has(epoch, commit, str(self)):
                return
            if outputs.count:
                rows = outputs.reader(self._columns)
                self._write(cursor, outputs.newest(self._columns, self.key) if self.key else rows)
                cursor.execute(
                    f"UPDATE {self._commits} SET epoch = $1, commit = $2 WHERE target = $3",
                    (epoch, commit, self._name),
                )
            faults.reach("rows", "after", epoch)

    def __str__(self) -> str:
        return f"the PostgreSQL table {self.table.removeprefix('public.')}"

    @contextmanager
    def _transaction(self, to_keep: bool = True) -> "Iterator[Cursor]":
        """A connection for one transaction, which an error rolls back; so it is if not `to_keep`.

        Also for what it makes: PostgreSQL takes tables back. It waits for no other session for
        ever, and if its driver stands still, the server ends it.
        """
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.dsn) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = '{self.lock_timeout}'")
            cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{self.idle_timeout}'")
            try:
                yield cursor
            except dbapi.Error as error:
                if error.sqlstate != LOCKED:
                    raise
                connection.rollback()
                raise ConfigError(
                    f"{self} is locked by another session for more than {self.lock_timeout}: "
                    f"{self._holder(cursor)}. Nothing was changed"
                ) from None
            if to_keep:
                connection.commit()

    def _holder(self, cursor: "Cursor") -> str:
        """Who probably holds a lock: the oldest transaction on the tables that waits for none."""
        cursor.execute(
            "SELECT pid, concat_ws(', ', 'user ' || usename, 'client ' || client_addr, state, "
            "'since ' || xact_start) FROM pg_stat_activity AS a WHERE pid <> pg_backend_pid() "
            "AND wait_event_type IS DISTINCT FROM 'Lock' AND EXISTS (SELECT FROM pg_locks AS l "
            "WHERE l.pid = a.pid AND granted AND relation IN (to_regclass($1), to_regclass($2))) "
            "ORDER BY xact_start LIMIT 1",
            (self._commits, self._target),
        )
        if (found := cursor.fetchone()) is None:
            return "which has ended by now; start again"
        pid, told = found
        return (
            f"the oldest transaction on its tables is that of session {pid} ({told}). If that is "
            f"no driver that should run, end it: SELECT pg_terminate_backend({pid})"
        )

    def _lock(self, cursor: "Cursor", query: str, checkpoint: str) -> Delivered:
        """What the table has of a query, which nobody else changes until this transaction ends."""
        cursor.execute(
            f"INSERT INTO {self._commits} VALUES ($1, $2, -1, '', $3) ON CONFLICT DO NOTHING",
            (self._name, query, checkpoint),
        )
        cursor.execute(
            f"SELECT query, epoch, commit, checkpoint FROM {self._commits} "
            "WHERE target = $1 FOR UPDATE",
            (self._name,),
        )
        found = cursor.fetchone()
        assert found is not None
        owner, epoch, commit, where = found
        if epoch < 0:  # it has nothing yet
            cursor.execute(
                f"UPDATE {self._commits} SET query = $1, checkpoint = $2 WHERE target = $3",
                (query, checkpoint, self._name),
            )
        elif owner != query:
            raise ConfigError(
                f"{self} holds the output of another query, in checkpoint {where}. Name another "
                f"table, or, to let this query go on in it: DELETE FROM {self._commits} WHERE "
                f"target = '{self._name}'. Nothing was changed"
            )
        return Delivered(epoch, commit)

    def _write(self, cursor: "Cursor", rows: pa.Table | pa.RecordBatchReader) -> None:
        """Load rows into a table of their own types, and from there into that of the sink."""
        cursor.adbc_ingest(STAGED, rows, mode="create", temporary=True)
        names = _quoted(self._columns.names)
        insert = f"INSERT INTO {self._target} ({names}) SELECT {names} FROM {STAGED}"
        if self.key:
            others = [name for name in self._columns.names if name not in self.key]
            changes = ", ".join(
                f"{_quoted([name])} = EXCLUDED.{_quoted([name])}" for name in others
            )
            change = f"UPDATE SET {changes}" if changes else "NOTHING"
            insert += f" ON CONFLICT ({_quoted(self.key)}) DO {change}"
        cursor.execute(insert)
        cursor.execute(f"DROP TABLE {STAGED}")  # behind a pooler, the session lives on

    def _make(self, cursor: "Cursor", columns: pa.Schema) -> None:
        """Make the table, with the types that PostgreSQL gives to those of Arrow."""
        cursor.adbc_ingest(STAGED, columns.empty_table(), mode="create", temporary=True)
        cursor.execute(f"CREATE TABLE {self._target} (LIKE {STAGED})")
        cursor.execute(f"DROP TABLE {STAGED}")
        if self.key:
            unique = f"UNIQUE NULLS NOT DISTINCT ({_quoted(self.key)})"
            cursor.execute(f"ALTER TABLE {self._target} ADD {unique}")

    def _fitting(self, cursor: "Cursor", output: pa.Schema) -> pa.Schema:
        """The columns that rows of an output fill. Writes none, for PostgreSQL to find what does
        not fit, and look whether a null would be taken for another key than the same null."""
        there = self._columns_there(cursor)
        epoch = [pa.field(EPOCH, pa.int64())] if EPOCH in there else []
        self._columns = pa.schema([*output, *epoch])
        for name in output.names:
            if name not in there:
                raise ConfigError(
                    f"{self} has no column '{name}', which the output has; add it to the table, "
                    "or name another one"
                )
        for name, (optional, _) in there.items():
            if not optional and name not in self._columns.names:
                raise ConfigError(
                    f"{self} has the column '{name}', which must not be null and which the output "
                    "lacks; add it to the output, or name another table"
                )
        cursor.execute("SAVEPOINT fitting")
        self._write(cursor, self._columns.empty_table())
        cursor.execute("ROLLBACK TO SAVEPOINT fitting")
        if any(there[name][1] for name in self.key) and not self._nulls_are_equal(cursor):
            raise ConfigError(
                f"{self} takes nulls in the key {', '.join(self.key)} for different ones; make "
                "its columns NOT NULL, or the constraint UNIQUE NULLS NOT DISTINCT"
            )
        return self._columns

    def _columns_there(self, cursor: "Cursor") -> dict[str, tuple[bool, bool]]:
        """The columns of the table; whether each can be left out, and whether it can be null."""
        cursor.execute(
            "SELECT attname, NOT attnotnull OR atthasdef OR attidentity <> '', NOT attnotnull "
            "FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 "
            "AND NOT attisdropped",
            (self._target,),
        )
        return {name: (optional, nullable) for name, optional, nullable in cursor.fetchall()}

    def _nulls_are_equal(self, cursor: "Cursor") -> bool:
        cursor.execute(
            "SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute ON attrelid = "
            "indexrelid WHERE indrelid = to_regclass($1) AND indisunique AND indnullsnotdistinct "
            "AND indpred IS NULL GROUP BY indexrelid",
            (self._target,),
        )
        return any(set(columns) == set(self.key) for (columns,) in cursor.fetchall())

    @property
    def _name(self) -> str:
        """The table within its schema."""
        return self.table.rpartition(".")[2]

    @property
    def _target(self) -> str:
        return self._beside(self._name)

    @property
    def _commits(self) -> str:
        return self._beside(COMMITS)

    def _beside(self, name: str) -> str:
        """A table in the schema of the sink's, as SQL names it."""
        schema = self.table.rpartition(".")[0]
        return ".".join(_quoted([part]) for part in (schema, name) if part)

    def _hushed(self, error: Exception) -> str:
        """What an error tells, without the password."""
        secrets = re.findall(_PASSWORD, self.dsn)
        found = [part.strip("'") for parts in secrets for part in parts]
        return hushed(str(error).strip(), [self.dsn, *found])


_PASSWORD: Final = r"://[^:@/]*:([^@]*)@|password\s*=\s*('(?:\\.|[^'])*'|[^\s&]+)"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join('"{}"'.format(name.replace('"', '""')) for name in names)


def _one(cursor: "Cursor", statement: str) -> Any:
    cursor.execute(statement)
    row = cursor.fetchone()
    assert row is not None
    return row[0]


def _error() -> type[Exception]:
    from adbc_driver_postgresql import dbapi

    kind: type[Exception] = dbapi.Error
    return kind
