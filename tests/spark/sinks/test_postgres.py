"""What the PostgreSQL sink writes into a real server, and what it refuses."""

import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi

import godwit as gw
from godwit.errors import ConfigError
from godwit.spark.sinks.postgres import PostgresSink
from tests.support.arrow_outputs import Row, outputs, started
from tests.support.postgres import execute, query

COLUMNS = "k string, n bigint"


def table(dsn: str, columns: str = "k, n, epoch") -> list[Row]:
    return query(dsn, f"SELECT {columns} FROM counts ORDER BY {columns}")


def test_an_epoch_is_appended_in_one_transaction(dsn: str, tmp_path: Path) -> None:
    sink = started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1), ("b", 2)), "q/0/1")
    sink.take(outputs(1, COLUMNS), "q/1/1")
    sink.take(outputs(2, COLUMNS, ("a", 3)), "q/2/1")
    assert table(dsn) == [("a", 1, 0), ("a", 3, 2), ("b", 2, 0)]
    assert query(dsn, "SELECT target, query, epoch, commit, checkpoint FROM godwit_commits") == [
        ("counts", "q", 2, "q/2/1", str(tmp_path / "checkpoint"))
    ]


def test_with_a_key_the_table_has_the_newest_result_of_each_key(dsn: str, tmp_path: Path) -> None:
    """The last one, where an epoch has several; null is a key like any other."""
    sink = started(gw.postgres(dsn, "counts", key="k"), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1), (None, 2), ("b", 3), ("a", 4)), "q/0/1")
    sink.take(outputs(1, COLUMNS, (None, 6), ("c", 5), (None, 7)), "q/1/1")
    assert table(dsn) == [("a", 4, 0), ("b", 3, 0), ("c", 5, 1), (None, 7, 1)]


def test_names_are_what_a_user_writes(dsn: str, tmp_path: Path) -> None:
    execute(dsn, 'CREATE SCHEMA IF NOT EXISTS "Other"')
    columns = '`My "key"` string, Day date, `order` bigint'
    sink = started(gw.postgres(dsn, "Other.Counts", key=['My "key"', "Day"]), columns, tmp_path)
    sink.take(outputs(0, columns, ("a", None, 1)), "q/0/1")
    sink.take(outputs(1, columns, ("a", None, 2)), "q/1/1")
    assert query(dsn, 'SELECT "order" FROM "Other"."Counts"') == [(2,)]
    assert query(dsn, 'SELECT target FROM "Other".godwit_commits') == [("Counts",)]
    execute(dsn, 'DROP SCHEMA "Other" CASCADE')


def test_a_key_that_is_all_of_a_row(dsn: str, tmp_path: Path) -> None:
    execute(dsn, "CREATE TABLE counts (k text PRIMARY KEY)")
    sink = started(gw.postgres(dsn, "counts", key="k"), "k string", tmp_path)
    sink.take(outputs(0, "k string", ("a",)), "q/0/1")
    sink.take(outputs(1, "k string", ("a",)), "q/1/1")
    assert table(dsn, "k") == [("a",)]


def test_a_table_of_ones_own_has_its_own_types_and_columns(dsn: str, tmp_path: Path) -> None:
    execute(dsn, "CREATE TABLE counts (n int, k varchar(9) PRIMARY KEY, at date DEFAULT 'epoch')")
    sink = started(gw.postgres(dsn, "counts", key="k"), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    assert table(dsn, "k, n, at::text") == [("a", 1, "1970-01-01")]


def test_values_of_every_type_come_back(dsn: str, tmp_path: Path) -> None:
    columns = (
        "b boolean, t tinyint, s smallint, i int, f float, d double, x binary, y date, "
        "z timestamp, zn timestamp_ntz, c decimal(10,2), l array<int>"
    )
    sink = started(gw.postgres(dsn, "counts"), columns, tmp_path)
    sink.take(outputs(0, columns, (True, 1, 2, 3, 0.5, 0.25, b"x", *[None] * 5)), "q/0/1")
    started(gw.postgres(dsn, "counts"), columns, tmp_path)
    assert table(dsn, "b, t, s, i, f, d, x") == [(True, 1, 2, 3, 0.5, 0.25, b"x")]


def test_two_drivers_wait_for_each_other(dsn: str, tmp_path: Path) -> None:
    """The second one finds what the first one has committed."""
    first = started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)
    second = started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)
    first.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    epoch = outputs(1, COLUMNS, ("b", 2))
    with ThreadPoolExecutor() as threads:

        def overtake() -> None:
            waiting.append(threads.submit(second.take, epoch, "q/1/1"))
            held = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while query(dsn, held) == [(0,)]:
                assert not waiting[0].done()

        waiting: list[Future[None]] = []
        first.take(outputs(1, COLUMNS, ("b", 2), meanwhile=overtake), "q/1/1")
    assert table(dsn) == [("a", 1, 0), ("b", 2, 1)]


def test_a_session_that_holds_the_table_is_named(dsn: str, tmp_path: Path) -> None:
    """Such as that of a driver that stands still while it sends rows. It may go on later."""
    old = started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)
    new = PostgresSink(dsn, "counts", (), lock_timeout="100ms")
    epoch = outputs(0, COLUMNS, ("a", 1))
    sending = (
        "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND wait_event = 'ClientRead'"
    )
    told: list[str] = []

    def stand_still() -> Iterator[pa.RecordBatch]:
        ((pid,),) = query(dsn, sending)
        told.append(f"session {pid} (user godwit, active, since ")
        told.append(f"SELECT pg_terminate_backend({pid}). Nothing was changed")
        for wait in (lambda: started(new, COLUMNS, tmp_path), lambda: new.take(epoch, "q/0/1")):
            with pytest.raises(ConfigError, match="more than 100ms: the oldest") as refusal:
                wait()
            told.append(str(refusal.value))
        yield from epoch.read()

    old.take(replace(epoch, read=stand_still), "q/0/1")
    *parts, at_start, at_delivery = told
    assert all(part in at_start and part in at_delivery for part in parts)
    assert table(dsn) == [("a", 1, 0)]


def test_a_driver_that_stands_still_in_its_transaction_loses_it(dsn: str, tmp_path: Path) -> None:
    """The next one delivers the epoch, and the one that wakes up changes nothing."""
    old = started(PostgresSink(dsn, "counts", ("k",), idle_timeout="100ms"), COLUMNS, tmp_path)
    new = started(gw.postgres(dsn, "counts", key="k"), COLUMNS, tmp_path)

    def take_over() -> None:
        new.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")

    with pytest.raises(dbapi.Error, match="idle-in-transaction timeout"):
        old.take(outputs(0, COLUMNS, ("a", 1), ("b", 2), meanwhile=take_over), "q/0/1")
    assert table(dsn) == [("a", 1, 0)]


def test_a_pooler_gives_all_epochs_the_same_session(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dbapi.connect(dsn) as session, monkeypatch.context() as patched:

        @contextmanager
        def lent(dsn: str) -> Iterator[dbapi.Connection]:
            yield session
            session.rollback()

        patched.setattr(dbapi, "connect", lent)
        sink = started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)
        for epoch in range(2):
            sink.take(outputs(epoch, COLUMNS, ("a", epoch)), f"q/{epoch}/1")
    assert table(dsn) == [("a", 0, 0), ("a", 1, 1)]


def test_a_role_that_may_make_no_table_uses_those_that_are_there(dsn: str, tmp_path: Path) -> None:
    started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)
    role = f"r{uuid.uuid4().hex}"
    ((schema,),) = query(dsn, "SELECT current_schema()::text")
    execute(dsn, f"CREATE ROLE {role} LOGIN")
    execute(dsn, f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    execute(dsn, f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    other = dsn.replace("//godwit:", f"//{role}:")
    sink = started(gw.postgres(other, "counts"), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    assert table(dsn) == [("a", 1, 0)]
    execute(dsn, f"DROP OWNED BY {role}")
    execute(dsn, f"DROP ROLE {role}")


def test_a_driver_that_was_overtaken_is_refused(dsn: str, tmp_path: Path) -> None:
    old = started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)
    new = started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)
    new.take(outputs(1, COLUMNS, ("b", 2)), "q/1/2")
    for epoch, generation in ((0, 1), (1, 1)):
        with pytest.raises(ConfigError, match="another driver has taken it over"):
            old.take(outputs(epoch, COLUMNS, ("a", 1)), f"q/{epoch}/{generation}")
    assert table(dsn) == [("b", 2, 1)]


def test_a_failed_delivery_leaves_nothing(dsn: str, tmp_path: Path) -> None:
    execute(dsn, "CREATE TABLE counts (k text, n bigint CHECK (n < 3), epoch bigint)")
    sink = started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)
    with pytest.raises(Exception, match="check constraint"):
        sink.take(outputs(0, COLUMNS, ("a", 1), ("b", 3)), "q/0/1")
    assert table(dsn) == []
    sink.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    assert table(dsn) == [("a", 1, 0)]


def test_another_query_goes_on_in_a_table_when_the_user_says_so(dsn: str, tmp_path: Path) -> None:
    first = started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)
    first.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    with pytest.raises(ConfigError, match="DELETE FROM") as told:
        first.take(outputs(0, COLUMNS, ("b", 2)), "other/0/1")
    statement = str(told.value).partition("go on in it: ")[2].partition(". Nothing")[0]
    execute(dsn, statement)
    first.take(outputs(0, COLUMNS, ("b", 2)), "other/0/1")
    assert table(dsn) == [("a", 1, 0), ("b", 2, 0)]


@pytest.mark.parametrize(
    ("there", "key", "told"),
    [
        ("k text", None, "no column 'n'"),
        ("k text, n date", None, r'column "n" is of type date but expression is of type bigint'),
        ("k text, n bigint, x int NOT NULL", None, "'x', which must not be null"),
        ("k text, n bigint", "k", "no unique or exclusion constraint"),
        ("k text UNIQUE, n bigint", "k", "takes nulls in the key k for different ones"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    dsn: str, tmp_path: Path, there: str, key: str | None, told: str
) -> None:
    execute(dsn, f"CREATE TABLE counts ({there})")
    with pytest.raises(ConfigError, match=told):
        started(gw.postgres(dsn, "counts", key=key), COLUMNS, tmp_path)


def test_what_cannot_work_is_refused_at_the_start(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="key column 'word' is not in the output"):
        started(gw.postgres(dsn, "counts", key="word"), COLUMNS, tmp_path)
    with pytest.raises(ConfigError, match="the PostgreSQL table counts cannot be used"):
        started(gw.postgres(dsn, "counts"), "m map<string, int>", tmp_path)
    with pytest.raises(ConfigError, match=r'schema "none" does not exist'):
        started(gw.postgres(dsn, "none.counts"), COLUMNS, tmp_path)
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'godwit\[postgres\]'"):
        started(gw.postgres(dsn, "counts"), COLUMNS, tmp_path)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://godwit:hush@/postgres?host=/nowhere",
        "postgresql://godwit:hu%73h@127.0.0.1:1/postgres",
        "postgresql://godwit:hush@host:port/postgres",
        "host=/nowhere password=hush",
        "host=/nowhere password='hush' what",
        "hush",
        "password hush",
    ],
)
def test_a_password_is_not_shown(dsn: str, tmp_path: Path) -> None:
    sink = gw.postgres(dsn, "counts")
    with pytest.raises(ConfigError, match="cannot be used") as told:
        started(sink, COLUMNS, tmp_path)
    assert "hush" not in f"{sink} {sink!r} {told.value} {told.value.__cause__}"
    assert told.value.__suppress_context__
