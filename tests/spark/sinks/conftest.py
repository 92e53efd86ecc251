"""A PostgreSQL server, if this machine has one."""

from collections.abc import Iterator

import pytest

from tests.support import postgres


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
