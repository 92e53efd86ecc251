"""A PostgreSQL server, if this machine has one, and a Kafka cluster."""

import uuid
from collections.abc import Iterator

import pytest

from tests.support import kafka, postgres


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


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[str]:
    """Its bootstrap servers."""
    with kafka.cluster() as servers:
        yield servers


@pytest.fixture
def topic(kafka_cluster: str) -> str:
    """An empty topic, which has one for markers."""
    name = f"t{uuid.uuid4().hex}"
    kafka.make_topics(kafka_cluster, [name, f"{name}-godwit"])
    return name
