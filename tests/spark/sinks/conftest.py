"""A Kafka cluster, a server of objects, and places for outputs."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from godwit.spark.sinks import lake_sink
from tests.support import kafka, object_servers
from tests.support.sink_places import PLACES, Place, opened


@pytest.fixture(scope="session")
def cluster() -> Iterator[kafka.Cluster]:
    with kafka.cluster() as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(cluster: kafka.Cluster) -> str:
    """Its bootstrap servers."""
    return cluster.servers


@pytest.fixture(scope="session")
def s3() -> Iterator[object_servers.ObjectServer]:
    """A server that speaks as S3 does."""
    with object_servers.moto() as server:
        yield server


@pytest.fixture
def topic(kafka_cluster: str) -> str:
    """An empty topic, which has one for markers."""
    name = f"t{uuid.uuid4().hex}"
    kafka.make_topics(kafka_cluster, [name, f"{name}-godwit"])
    return name


@pytest.fixture(params=PLACES)
def place(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    """A place for outputs, of each kind."""
    if "large" in request.param:
        monkeypatch.setattr(lake_sink, "LARGE", 1)
    yield from opened(request.param, request, spark, tmp_path, capsys)
