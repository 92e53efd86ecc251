"""A Kafka cluster."""

import uuid
from collections.abc import Iterator

import pytest

from tests.support import kafka


@pytest.fixture(scope="session")
def cluster() -> Iterator[kafka.Cluster]:
    with kafka.cluster() as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(cluster: kafka.Cluster) -> str:
    """Its bootstrap servers."""
    return cluster.servers


@pytest.fixture
def topic(kafka_cluster: str) -> str:
    """An empty topic, which has one for markers."""
    name = f"t{uuid.uuid4().hex}"
    kafka.make_topics(kafka_cluster, [name, f"{name}-godwit"])
    return name
