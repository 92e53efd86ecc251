"""A PostgreSQL server for tests: Debian's own, on a socket in a directory of its own."""

import os
import pwd
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

INSTALL: Final = "no PostgreSQL server: apt-get install postgresql"
USERS: Final = ("postgres", "nobody")  # a server refuses to be run by root


def programs() -> Path | None:
    """Where the programs of the newest server are."""
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    found = [*Path("/usr/lib/postgresql").glob("*/bin")]  # where Debian keeps them
    return max(found, key=lambda path: float(path.parent.name), default=None)


@contextmanager
def server(bin: Path) -> Iterator[str]:
    """The directory with the socket of a server that is up."""
    home = Path(mkdtemp(prefix="godwit-postgres-"))  # that of a test would be too long a name
    user = _unprivileged(home)
    data, log = home / "data", home / "log"

    def run(*command: object) -> None:
        subprocess.run(
            [str(part) for part in command],
            check=True,
            user=user,
            cwd=home,
            stdout=subprocess.DEVNULL,
        )

    try:
        run(bin / "initdb", "-D", data, "-U", "godwit", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses='' -c fsync=off -k {home}"
        run(bin / "pg_ctl", "start", "-w", "-D", data, "-l", log, "-o", options)
        try:
            yield str(home)
        finally:
            run(bin / "pg_ctl", "stop", "-m", "immediate", "-D", data)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def schema(home: str) -> Iterator[str]:
    """How to connect to a schema of one's own."""
    name = f"s{uuid.uuid4().hex}"
    dsn = f"postgresql://godwit:hush@/postgres?host={home}"
    execute(dsn, f"CREATE SCHEMA {name}")
    yield f"{dsn}&options=-csearch_path%3D{name}"
    execute(dsn, f"DROP SCHEMA {name} CASCADE")


def execute(dsn: str, statement: str) -> None:
    with adbc.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(statement)


def query(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with adbc.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()]


def table(dsn: str, statement: str) -> pa.Table:
    with adbc.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetch_arrow_table()


def _unprivileged(home: Path) -> str | None:
    """Who runs the server; None is the one who runs the tests."""
    if os.getuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    user = next(name for name in USERS if name in known)
    shutil.chown(home, user)
    return user
