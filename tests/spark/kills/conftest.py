"""Applications to be killed, which start in half of the usual time."""

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

    The archive is made by one that nobody kills, whose results must be exact, too.
    """
    home = tmp_path_factory.mktemp("undisturbed")
    archive = home / "classes.jsa"
    bank.write_input(home, range(2))
    java = "-XX:+IgnoreUnrecognizedVMOptions -XX:{}={}"
    with Application(home, java.format("ArchiveClassesAtExit", archive)) as application:
        application.start()
        assert application.wait() == 0
        application.wait_for_all()
    check(home, published=1, delivered=1)
    return partial(Application, java=java.format("SharedArchiveFile", archive))
