"""Applications to be killed."""

from functools import partial

import pytest

from tests.support import postgres
from tests.support.kills.graph_playing import Stage
from tests.support.kills.running import Application, Launch


@pytest.fixture(scope="session")
def launch(java: str) -> Launch:
    return partial(Application, java=java)


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, java: str, tmp_path_factory: pytest.TempPathFactory
) -> Stage:
    """Where stories are played; with a PostgreSQL server, if this machine has one."""
    dsn = request.getfixturevalue("dsn") if postgres.programs() else None
    launch = partial(Application, java=java, program="graph_application")
    return Stage(launch, tmp_path_factory.mktemp("story"), dsn)
