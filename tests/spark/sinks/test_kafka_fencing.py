"""The Kafka sink beside other producers of its transactional id, alive and dead.

The mock cluster fences nobody by itself: here it answers as brokers do that have fenced a producer.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

import godwit as gw
from godwit.errors import ConfigError
from godwit.spark.sinks.kafka import KafkaSink, ProducerLostError
from tests.support.arrow_outputs import outputs, started
from tests.support.kafka import Cluster, Request, messages, quiet

COLUMNS = "key string, value string"


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [message.value() for message in messages(cluster.servers, topic)]


@pytest.mark.parametrize("error", [KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED])
@pytest.mark.parametrize("request_", Request)
def test_a_fenced_producer_is_told_in_one_sentence_and_the_next_one_delivers(
    cluster: Cluster, topic: str, tmp_path: Path, request_: Request, error: int
) -> None:
    """Where the transaction cannot be ended, its marker is there: this cluster shows aborted ones.
    So that delivery is not repeated, which it would be elsewhere."""
    sink = started(quiet(topic, cluster.servers), COLUMNS, tmp_path)
    epoch = outputs(0, COLUMNS, ("a", "1"))
    told = f"the Kafka topic {topic} has lost the transactional id godwit-q-{topic}: to an earlier"
    with cluster.refusing(request_, error, times=2), pytest.raises(ProducerLostError, match=told):
        sink.take(epoch, "q/0/1")
    sink.take(epoch, "q/0/1")
    sink.take(outputs(1, COLUMNS, ("b", "2")), "q/1/1")
    assert sorted(values(cluster, topic), key=str) == [b"1", b"2"]


def test_a_producer_that_is_lost_otherwise_is_told_by_its_cause(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    sink = started(quiet(topic, cluster.servers), COLUMNS, tmp_path)
    epoch = outputs(0, COLUMNS, ("a", "1"))
    denied = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with (
        cluster.refusing(Request.INIT_PRODUCER_ID, denied),
        pytest.raises(ProducerLostError, match=r"lost its producer: .*Transactional Id auth"),
    ):
        sink.take(epoch, "q/0/1")
    sink.take(epoch, "q/0/1")
    assert values(cluster, topic) == [b"1"]


def test_a_delivery_that_fails_in_the_middle_is_never_committed(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Its message is at the broker, in a transaction that nobody ends but the next producer, before
    it begins one. That readers of committed messages do not see it, this cluster cannot show."""
    sink = started(quiet(topic, cluster.servers), COLUMNS, tmp_path)
    epoch = outputs(0, COLUMNS, ("a", "1"), ("b", "2"))

    def dies() -> Iterator[pa.RecordBatch]:
        yield next(iter(epoch.read()))
        while not values(cluster, topic):
            pass
        raise InterruptedError

    with cluster.listening() as failed, pytest.raises(InterruptedError):
        sink.take(replace(epoch, read=dies), "q/0/1")
    assert failed.index(Request.ADD_PARTITIONS_TO_TXN) < failed.index(Request.PRODUCE)
    assert Request.END_TXN not in failed
    assert values(cluster, f"{topic}-godwit") == []
    with cluster.listening() as asked:
        sink.take(epoch, "q/0/1")
    first, *others = [kind for kind in asked if kind in [*Request]]
    assert first == Request.INIT_PRODUCER_ID
    assert others.count(Request.END_TXN) == 1
    assert others[-1] == Request.END_TXN
    assert len(values(cluster, f"{topic}-godwit")) == 1


def test_a_start_after_a_kill_does_not_wait_for_the_open_transaction(
    cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hides the end of the markers, until the first delivery ends it and reads them again.

    A transaction of another query may hide it for longer.
    """
    epoch = outputs(0, COLUMNS, ("a", "1"))
    started(quiet(topic, cluster.servers), COLUMNS, tmp_path).take(epoch, "q/0/1")

    class Consumer(confluent_kafka.Consumer):
        def poll(self, timeout: float | None = None) -> Any:
            """As before an open transaction: no message, and no end."""

    with monkeypatch.context() as patched:
        patched.setattr(confluent_kafka, "Consumer", Consumer)
        markers, options, clock = f"{topic}-godwit", {"log_level": 0}, count(0, 2).__next__
        hidden = KafkaSink(topic, cluster.servers, (), None, markers, options, clock)
        sink = started(hidden, COLUMNS, tmp_path)
        with pytest.raises(ConfigError, match="could not be read to their end within 60 s"):
            sink.take(epoch, "q/0/1")
    sink.take(epoch, "q/0/1")
    assert values(cluster, topic) == [b"1"]


@pytest.mark.parametrize(
    ("servers", "id", "is_refused"),
    [
        ("a:1,b:1", "mine", True),
        ("b:1, a:1", "mine", True),
        ("c:1", "mine", False),
        ("a:1,b:1", "other", False),
        ("a:1,b:1", None, False),
    ],
)
def test_two_sinks_with_one_transactional_id_are_refused(
    servers: str, id: str | None, is_refused: bool
) -> None:
    counts = gw.stream("word string").aggregate("counts", key="word", n=gw.count())
    one = counts.to(gw.kafka("t", "a:1,b:1", transactional_id="mine"))
    other = counts.to(gw.kafka("u", servers, transactional_id=id))
    if is_refused:
        with pytest.raises(ConfigError, match="2 sinks have the transactional id mine; name ano"):
            gw.query(one, other)
    else:
        gw.query(one, other)
