"""A place may have several names, and one name be of several places: sinks tell which is which."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.errors import ConfigError
from godwit.model.schema import parse
from godwit.spark.sinks.sink import Maker
from godwit.spark.start_check import check_identities
from godwit.spark.types import to_spark
from tests.support import kafka, postgres
from tests.support.arrow_outputs import started

COLUMNS = "k string, n bigint"
NO_SPARK = cast(SparkSession, None)


def identities(directory: Path, *sinks: gw.Sink) -> list[object]:
    ready = [started(sink, COLUMNS, directory) for sink in sinks]
    return [sink.identity(NO_SPARK) for sink in ready]


def are_one(found: list[object]) -> bool:
    assert len(set(found)) in (1, len(found))
    return len(set(found)) == 1


def test_two_names_of_a_place_are_refused(tmp_path: Path) -> None:
    """Of two sinks with one table, the second would take each epoch for delivered."""
    sinks = [gw.delta(tmp_path / "a b"), gw.delta(f"file://{tmp_path}/a%20b", key="k")]
    for sink in sinks:
        started(sink, COLUMNS, tmp_path)
    told = r"two streams end in the Delta table .*/a b, which is also the Delta table .*; name an"
    with pytest.raises(ConfigError, match=told):
        check_identities(NO_SPARK, sinks)
    other = gw.delta(tmp_path / "ab")
    started(other, COLUMNS, tmp_path)
    check_identities(NO_SPARK, [sinks[0], other])


def test_a_sink_that_is_alone_of_its_kind_is_not_asked() -> None:
    check_identities(NO_SPARK, [gw.table("t"), gw.delta("t"), gw.console(), gw.console()])


def test_names_of_a_delta_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "table")
    names = ("table", "./table/", f"{tmp_path}/x/../table", f"file://{tmp_path}/table", "link")
    assert are_one(identities(tmp_path, *map(gw.delta, names)))
    assert not are_one(identities(tmp_path, gw.delta("table"), gw.delta("table2")))


def test_names_of_an_iceberg_table(tmp_path: Path) -> None:
    def lake(name: str, catalog: str) -> gw.Sink:
        uri = f"sqlite:///{tmp_path}/{name}"
        about = {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}/{name}-files"}
        return gw.iceberg("ns.counts", catalog=catalog, properties=about)

    one, same = lake("one", "lake"), lake("one", "lake")
    assert are_one(identities(tmp_path, one, same))
    assert not are_one(identities(tmp_path, one, lake("two", "lake")))


def test_names_of_a_postgres_table(tmp_path: Path, dsn: str, postgres_server: str) -> None:
    schema = dsn.rpartition("%3D")[2]
    named = gw.postgres(f"{dsn}&application_name=other", f"{schema}.counts")
    assert are_one(identities(tmp_path, gw.postgres(dsn, "counts"), named))
    with postgres.schema(postgres_server) as other:
        both = gw.postgres(dsn, "counts"), gw.postgres(other, "counts")
        assert not are_one(identities(tmp_path, *both))


def test_names_of_a_kafka_topic(tmp_path: Path, kafka_cluster: str, topic: str) -> None:
    brokers = kafka_cluster.split(",")
    names = ",".join(reversed(brokers)), ",".join([*brokers, "localhost:1"])
    sinks = [kafka.quiet(topic, servers) for servers in (kafka_cluster, *names)]
    assert are_one(identities(tmp_path, *sinks))
    with kafka.cluster() as other:
        kafka.make_topics(other.servers, [topic, f"{topic}-godwit"])
        both = kafka.quiet(topic, kafka_cluster), kafka.quiet(topic, other.servers)
        assert not are_one(identities(tmp_path, *both))


def test_one_name_of_two_places_is_no_reason_to_refuse() -> None:
    counts = gw.stream("k string").aggregate("counts", key="k", n=gw.count())

    def both(one: gw.Sink, other: gw.Sink) -> Any:
        return gw.query(counts.to(one), counts.to(other))

    both(gw.postgres("host=a", "counts"), gw.postgres("host=b", "counts"))
    both(gw.iceberg("a.b", catalog="one"), gw.iceberg("a.b", catalog="two"))
    both(gw.kafka("counts", "one:9092"), gw.kafka("counts", "two:9092"))


def test_files_through_a_link_are_the_same_files(tmp_path: Path) -> None:
    counts = gw.stream("k string").aggregate("counts", key="k", n=gw.count())
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(ConfigError, match=r"two streams end in files in .*/out; name another"):
        gw.query(counts.to(gw.files(tmp_path / "out")), counts.to(gw.files(tmp_path / "link")))


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.spark
def test_names_of_a_table_of_spark(spark: SparkSession, table: str, tmp_path: Path) -> None:
    sinks = [gw.table(name) for name in (table, f"default.{table}", table.upper())]
    for sink in sinks:
        sink.check(spark, to_spark(parse(COLUMNS)), str(tmp_path))
    assert are_one([sink.identity(spark) for sink in sinks if isinstance(sink, Maker)])
    with pytest.raises(ConfigError, match=f"two streams end in table {table}, which is also"):
        check_identities(spark, sinks)
