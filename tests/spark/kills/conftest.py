"""Applications to be killed, which start in half of the usual time."""

import fcntl
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.spark.kills import bank
from tests.spark.kills.running import Application
from tests.spark.kills.truth import check

Launch = Callable[[Path], Application]


@pytest.fixture(scope="session")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Makes applications whose JVM finds its classes in an archive.

    The archive is made by one that nobody kills, whose results must be exact, too. Processes that
    run tests side by side share it.
    """
    side_by_side = "PYTEST_XDIST_WORKER" in os.environ
    shared = (
        tmp_path_factory.getbasetemp().parent if side_by_side else tmp_path_factory.getbasetemp()
    )
    archive = shared / "classes.jsa"
    java = "-XX:+IgnoreUnrecognizedVMOptions -XX:{}={}"
    with (shared / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            home = tmp_path_factory.mktemp("undisturbed")
            bank.write_input(home, range(2))
            with Application(home, java.format("ArchiveClassesAtExit", archive)) as application:
                application.start()
                assert application.wait() == 0
                application.wait_for_all()
            check(home, published=1, delivered=1)
    return partial(Application, java=java.format("SharedArchiveFile", archive))
