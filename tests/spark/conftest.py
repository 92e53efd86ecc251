"""A feed of words, JVMs that start in half of the usual time, and a PostgreSQL server if this
machine has one, for tests on real Spark."""

import fcntl
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import postgres
from tests.support.feed import Feed
from tests.support.kills import bank
from tests.support.kills.application import QUICK_JAVA
from tests.support.kills.running import Application
from tests.support.kills.truth import check


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "input", "word string")


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Options of a JVM that starts in half of the usual time: it finds its classes in an archive.

    The archive is made by an application that nobody kills, whose results must be exact, too.
    Processes that run tests side by side share it.
    """
    side_by_side = "PYTEST_XDIST_WORKER" in os.environ
    shared = (
        tmp_path_factory.getbasetemp().parent if side_by_side else tmp_path_factory.getbasetemp()
    )
    archive = shared / "classes.jsa"
    options = f"{QUICK_JAVA} -XX:+IgnoreUnrecognizedVMOptions -XX:{{}}={{}}"
    with (shared / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            home = tmp_path_factory.mktemp("undisturbed")
            bank.write_input(home, range(2))
            with Application(home, options.format("ArchiveClassesAtExit", archive)) as application:
                application.start()
                assert application.wait() == 0
                application.wait_for_all()
            check(home, published=1, delivered=1)
    return options.format("SharedArchiveFile", archive)


@pytest.fixture(scope="session")
def quick(java: str) -> dict[str, str]:
    """The environment of a program that starts Spark itself, with such a JVM."""
    return {"PYSPARK_SUBMIT_ARGS": shlex.join(["--driver-java-options", java, "pyspark-shell"])}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The directory of its socket; it starts with the first test that needs it."""
    bin = postgres.programs()
    if bin is None:
        pytest.skip(postgres.INSTALL)
    with postgres.server(bin) as home:
        yield home


@pytest.fixture
def dsn(postgres_server: str) -> Iterator[str]:
    """How to connect to an empty schema."""
    with postgres.schema(postgres_server) as name:
        yield name
