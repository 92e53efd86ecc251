"""What the Kafka sink sends to librdkafka's mock cluster, and what it refuses."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import godwit as gw
from godwit.errors import ConfigError
from godwit.spark.sinks.kafka import KafkaSink
from godwit.state.output import OutputFiles
from godwit.storage.local import LocalStore
from tests.support.arrow_outputs import outputs, started
from tests.support.kafka import make_topics, messages, quiet

COLUMNS = "key string, value string"


def sent(servers: str, topic: str) -> list[tuple[Any, Any]]:
    return sorted(((one.key(), one.value()) for one in messages(servers, topic)), key=repr)


def markers(servers: str, topic: str) -> list[tuple[Any, Any]]:
    found = messages(servers, f"{topic}-godwit")
    return [(one.key(), json.loads(one.value() or b"")["commit"]) for one in found]


def test_rows_with_a_value_are_messages(kafka_cluster: str, topic: str, tmp_path: Path) -> None:
    columns = "key string, value binary, headers array<struct<key: string, value: binary>>"
    sink = started(quiet(topic, kafka_cluster), columns, tmp_path)
    header = [{"key": "h", "value": b"1"}, {"key": "none", "value": None}]
    sink.take(outputs(0, columns, ("a", b"1", header), (None, b"2", None)), "q/0/1")
    found = {one.value(): (one.key(), one.headers()) for one in messages(kafka_cluster, topic)}
    assert found == {b"1": (b"a", [("h", b"1"), ("none", None)]), b"2": (None, None)}


@pytest.mark.parametrize("id", [None, "mine"])
def test_an_epoch_is_sent_once(
    kafka_cluster: str, topic: str, tmp_path: Path, id: str | None
) -> None:
    """With a marker in a topic of its own; an epoch without rows has none."""

    def start() -> KafkaSink:
        sink = started(quiet(topic, kafka_cluster, transactional_id=id), COLUMNS, tmp_path)
        assert isinstance(sink, KafkaSink)
        return sink

    sink = start()
    sink.take(outputs(0, COLUMNS, ("a", "1"), ("b", "2")), "q/0/1")
    sink.take(outputs(1, COLUMNS), "q/1/1")
    sink.take(outputs(2, COLUMNS, ("a", "3")), "q/2/1")
    sink.take(outputs(2, COLUMNS, ("a", "3")), "q/2/1")
    start().take(outputs(2, COLUMNS, ("a", "3")), "q/2/1")
    assert sent(kafka_cluster, topic) == [(b"a", b"1"), (b"a", b"3"), (b"b", b"2")]
    name = (id or f"godwit-q-{topic}").encode()
    assert markers(kafka_cluster, topic) == [(name, "q/0/1"), (name, "q/2/1")]


def test_a_marker_is_found_behind_those_of_many_others(
    kafka_cluster: str, topic: str, tmp_path: Path
) -> None:
    sink = started(quiet(topic, kafka_cluster), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", "1")), "q/0/1")
    producer = Producer({"bootstrap.servers": kafka_cluster})
    for _ in range(1200):
        producer.produce(f"{topic}-godwit", key=b"other", value=b"{}", partition=0)
    assert producer.flush(30) == 0
    started(quiet(topic, kafka_cluster), COLUMNS, tmp_path).take(
        outputs(0, COLUMNS, ("a", "1")), "q/0/1"
    )
    assert sent(kafka_cluster, topic) == [(b"a", b"1")]


def test_an_id_of_another_query_is_refused(kafka_cluster: str, topic: str, tmp_path: Path) -> None:
    sink = started(quiet(topic, kafka_cluster, transactional_id="one"), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", "1")), "q/0/1")
    with pytest.raises(ConfigError, match=r"transactional id one .* is that of another query, q"):
        sink.take(outputs(5, COLUMNS, ("a", "1")), "other/5/1")


def test_an_id_of_another_topic_is_refused(kafka_cluster: str, topic: str, tmp_path: Path) -> None:
    """Its marker would say of both that they have an epoch which one of them has."""
    other = f"{topic}-other"
    make_topics(kafka_cluster, [other])
    shared = {"transactional_id": "one", "marker_topic": f"{topic}-godwit"}
    first, second = (
        started(quiet(name, kafka_cluster, **shared), COLUMNS, tmp_path) for name in (topic, other)
    )
    first.take(outputs(0, COLUMNS, ("a", "1")), "q/0/1")
    with pytest.raises(ConfigError, match=f"is that of another sink, for the topic {topic}; name"):
        second.take(outputs(0, COLUMNS, ("a", "1")), "q/0/1")


def test_after_a_failure_the_next_delivery_has_a_producer_of_its_own(
    kafka_cluster: str, topic: str, tmp_path: Path
) -> None:
    """It leaves no marker. The mock cluster shows what was aborted, so that is not looked at."""

    def fail() -> None:
        raise InterruptedError

    sink = started(quiet(topic, kafka_cluster), COLUMNS, tmp_path)
    sink.take(outputs(0, COLUMNS, ("a", "1")), "q/0/1")
    with pytest.raises(InterruptedError):
        sink.take(outputs(1, COLUMNS, ("b", "2"), meanwhile=fail), "q/1/1")
    sink.take(outputs(1, COLUMNS, ("b", "2")), "q/1/1")
    assert sent(kafka_cluster, topic) == [(b"a", b"1"), (b"b", b"2")]
    assert [commit for _, commit in markers(kafka_cluster, topic)] == ["q/0/1", "q/1/1"]


def test_more_messages_than_the_producer_has_room_for(
    kafka_cluster: str, topic: str, tmp_path: Path
) -> None:
    options = {"queue.buffering.max.messages": 10}
    sink = started(quiet(topic, kafka_cluster, options=options), COLUMNS, tmp_path)
    rows = [(None, str(number)) for number in range(100)]
    sink.take(outputs(0, COLUMNS, *rows), "q/0/1")
    assert len(messages(kafka_cluster, topic)) == 100


@pytest.mark.spark
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, None),
        ("Day", b"2024-01-02"),
        (["my `k`", "Day"], b'{"my `k`":"a","Day":"2024-01-02"}'),
    ],
)
def test_other_rows_are_json(
    spark: SparkSession, kafka_cluster: str, topic: str, tmp_path: Path, key: Any, expected: Any
) -> None:
    columns = "`my ``k``` string, Day date, n bigint"
    sink = started(quiet(topic, kafka_cluster, key=key), columns, tmp_path)
    rows = spark.sql("SELECT 'a' AS `my ``k```, DATE '2024-01-02' AS Day, 1L AS n")
    assert not sink.deliver_files(7, OutputFiles(LocalStore(tmp_path), ()), "q/7/1")
    sink.deliver(7, rows, "q/7/1", 1)
    ((found, value),) = sent(kafka_cluster, topic)
    assert found == expected
    assert json.loads(value) == {"my `k`": "a", "Day": "2024-01-02", "n": 1, "epoch": 7}


@pytest.mark.parametrize(
    ("columns", "key", "told"),
    [
        ("value string, n bigint", None, "'n' is no part of one: key, value, headers"),
        ("value bigint", None, "'value' is of type int64; a message has string or binary there"),
        ("key int, value string", None, "'key' is of type int32"),
        ("key string, value string", "key", "leave out key= of gw.kafka"),
        ("word string", "key", "key column 'key' is not in the output: word"),
        ("Epoch bigint", None, "column 'Epoch'"),
    ],
)
def test_an_output_that_makes_no_messages_is_refused(
    kafka_cluster: str, topic: str, tmp_path: Path, columns: str, key: str | None, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        started(quiet(topic, kafka_cluster, key=key), columns, tmp_path)


def test_topics_must_be_there(
    kafka_cluster: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock cluster makes none, so this one cannot make that of markers."""
    with pytest.raises(ConfigError, match="the Kafka topic none does not exist; create it"):
        started(quiet("none", kafka_cluster), COLUMNS, tmp_path)
    monkeypatch.setattr(sys.modules[KafkaSink.__module__], "TIMEOUT", 0.5)
    with pytest.raises(ConfigError, match=r"for markers.*create it with cleanup\.policy=compact"):
        started(quiet(topic, kafka_cluster, marker_topic="none"), COLUMNS, tmp_path)
    with pytest.raises(ConfigError, match="the Kafka topic counts cannot be used"):
        started(quiet("counts", "127.0.0.1:1"), COLUMNS, tmp_path)
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    with pytest.raises(ConfigError, match=r"pip install 'godwit\[kafka\]'"):
        started(quiet(topic, kafka_cluster), COLUMNS, tmp_path)


def test_credentials_are_not_shown() -> None:
    sink = gw.kafka("counts", "broker:9092", options={"sasl.password": "hush"})
    assert "hush" not in f"{sink} {sink!r}"
